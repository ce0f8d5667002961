// Types of client.js. Events and messages in full: GET api/protocol.json.

export const PROTOCOL: 1;
export type AckPolicy = "strict" | "windowed" | "detached";
export type DisconnectPolicy = "pause" | "cancel" | "continue";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** An event of the UI stream; `type` tells which, and with it the other fields. */
export interface RunEvent {
  type: string;
  seq: number;
  run_id: string;
  session_id: string;
  phase: string;
  milestone: boolean;
  [field: string]: Json;
}

export interface Welcome {
  type: "welcome";
  protocol: number;
  server: string;
  principal: string;
  agent: string;
  acknowledgement: AckPolicy;
  heartbeat_seconds: number;
  lanes: boolean;
}

export interface Attached {
  type: "run";
  session: string;
  run: string;
  next: number;
  active: boolean;
  driver: boolean;
  acknowledgement: AckPolicy | null;
}

export interface Gap {
  type: "gap";
  session: string;
  run: string;
  after: Json;
  first: number;
  reason: "discarded" | "future" | "unreadable";
}

export interface Receipt {
  type: "receipt";
  session: string;
  question: string;
  status: "accepted" | "invalid" | "unknown" | "wrong_session" | "duplicate" | "expired";
  reasons: string[];
}

export interface Notification {
  type: "notification";
  session: string;
  run: string;
  name: string;
  data: Json;
}

export interface Status {
  state: "connecting" | "online" | "offline" | "refused";
  reason?: string;
  code?: string;
  retryIn?: number;
}

export interface RunPolicies {
  acknowledgement?: AckPolicy | null;
  onDisconnect?: DisconnectPolicy | null;
}

/** The server did not do what was asked, or (code "lost") it is not known whether it did. */
export class RequestRefused extends Error {
  readonly code: string;
}

export function newId(): string;

export interface ClientEvents {
  status: Status;
  welcome: Welcome;
  events: { session: string; run: string; events: RunEvent[] };
  attached: Attached;
  gap: Gap;
  gone: { session: string; run: string; reason: string };
  notification: Notification;
}

export class TrilaneClient extends EventTarget {
  constructor(url: string | URL, options?: { token?: string; client?: string; lanes?: boolean; frameSeconds?: number });
  readonly welcome: Welcome | null;
  readonly runs: ReadonlyMap<string, { session: string; run: string; last: number; driver: boolean; over: boolean }>;
  connect(): void;
  close(): void;
  retryNow(): void;
  start(text: string, options?: RunPolicies & { session?: string | null }): Promise<Attached>;
  resume(session: string, options?: RunPolicies): Promise<Attached>;
  watch(session: string, run?: string, after?: number): Promise<Attached | null>;
  unwatch(run: string): Promise<void>;
  acknowledge(run: string, seq: number): void;
  reply(session: string, question: string, payload: Json): Promise<Receipt>;
  steer(session: string, text: string): Promise<{ type: "done" }>;
  followUp(session: string, text: string): Promise<{ type: "done" }>;
  stop(session: string, options?: { when?: "now" | "boundary"; reason?: string }): Promise<{ type: "done" }>;
  addEventListener<K extends keyof ClientEvents>(
    type: K, listener: ((event: Event & { detail: ClientEvents[K] }) => void) | null, options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions,
  ): void;
}
