// A client of trilane-web for browsers and other JavaScript programs: no dependencies, no build. Types: client.d.ts.
//
// It reconnects by itself and goes on after the last event it has, so every event is delivered once and in order.
// Acknowledging is the caller's: call `acknowledge(run, seq)` when an event was shown.

export const PROTOCOL = 1;
const TERMINAL = new Set(["run_completed", "run_failed", "run_cancelled"]);
const REPEATABLE = new Set(["start", "resume", "reply", "stop", "watch", "ping"]);

export class RequestRefused extends Error {
  constructor(code, message) {
    super(message);
    this.name = "RequestRefused";
    this.code = code;
  }
}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

class FrameEvent extends Event {
  constructor(type, detail) {
    super(type);
    this.detail = detail;
  }
}

export class TrilaneClient extends EventTarget {
  // Events: "status" {state, reason}, "welcome", "events" {run, events}, "attached", "gap", "notification".
  constructor(url, options = {}) {
    super();
    this.url = String(url);
    this.options = { token: "", client: newId(), lanes: false, frameSeconds: 0, ...options };
    this.welcome = null;
    this.runs = new Map(); // run id -> {session, run, last, driver, over}
    this._asked = new Map();
    this._socket = null;
    this._tries = 0;
    this._closed = false;
    this._timer = 0;
    this._deaf = 0;
  }

  // ---- connection ---------------------------------------------------------------------------------------------------

  connect() {
    this._closed = false;
    clearTimeout(this._timer);
    this._emit("status", { state: "connecting" });
    const socket = new WebSocket(this.url, "trilane.v1");
    this._socket = socket;
    socket.onopen = () => {
      const { token, client, lanes, frameSeconds } = this.options;
      this._write({ type: "hello", protocol: PROTOCOL, token, client, lanes, frame_seconds: frameSeconds });
    };
    socket.onmessage = (message) => this._take(JSON.parse(message.data));
    socket.onclose = () => this._lost(socket);
  }

  close() {
    this._closed = true;
    clearTimeout(this._timer);
    clearTimeout(this._deaf);
    this._socket?.close(1000);
    this._fail(new RequestRefused("closed", "the client was closed"), () => true);
  }

  retryNow() {
    if (this.welcome === null && !this._closed && this._socket?.readyState !== WebSocket.CONNECTING) this.connect();
  }

  _lost(socket) {
    if (socket !== this._socket) return;
    this.welcome = null;
    clearTimeout(this._deaf);
    // What is not safe to say twice is given up; everything else is asked again.
    this._fail(
      new RequestRefused("lost", "the connection was lost; it is not known whether this arrived"),
      (message) => !REPEATABLE.has(message.type),
    );
    if (this._closed) return;
    this._tries += 1;
    const pause = Math.min(10_000, 250 * 2 ** Math.min(this._tries, 6)) * (0.75 + Math.random() / 2);
    this._emit("status", { state: "offline", retryIn: pause });
    this._timer = setTimeout(() => this.connect(), pause);
  }

  _listenForSilence() {
    // A network that went away without a word: the server says something within its heartbeat.
    clearTimeout(this._deaf);
    const seconds = (this.welcome?.heartbeat_seconds ?? 20) * 2.5;
    this._deaf = setTimeout(() => {
      const socket = this._socket;
      socket?.close();
      if (socket) this._lost(socket);
    }, seconds * 1000 + 5000);
  }

  // ---- down -----------------------------------------------------------------------------------------------------------

  _take(message) {
    this._listenForSilence();
    switch (message.type) {
      case "welcome":
        this.welcome = message;
        this._tries = 0;
        this._emit("status", { state: "online" });
        this._emit("welcome", message);
        // What waits for an answer first: a `watch` among it may be of a run that goes on further along.
        for (const { message: asked } of [...this._asked.values()]) this._write(asked);
        for (const run of this.runs.values()) if (!run.over) this._watchAgain(run);
        return;
      case "events":
        this._takeEvents(message);
        return;
      case "run":
        if (message.run) this._attach(message);
        break;
      case "gap": {
        const run = this.runs.get(message.run);
        if (run) run.last = message.first - 1;
        this._emit("gap", message);
        break;
      }
      case "notification":
        this._emit("notification", message);
        return;
      case "ping":
        this._write({ type: "pong" });
        return;
      case "closing":
        if (!message.again) this._refused(message.reason);
        return;
      case "error":
        if (message.code === "not_authenticated" || message.code === "wrong_protocol") {
          this._refused(message.message, message.code);
        }
        break;
      default:
    }
    const asked = this._asked.get(message.re);
    if (!asked) return;
    this._asked.delete(message.re);
    if (message.type === "error") asked.reject(new RequestRefused(message.code, message.message));
    else asked.resolve(message);
  }

  _takeEvents(message) {
    const first = message.events[0];
    const run = this.runs.get(message.run) ?? this._remember(first.session_id, message.run, first.seq - 1);
    const events = message.events.filter((event) => event.seq > run.last);
    if (events.length === 0) return;
    run.last = events.at(-1).seq;
    if (TERMINAL.has(events.at(-1).type)) run.over = true;
    this._emit("events", { session: run.session, run: run.run, events });
  }

  _attach(message) {
    const run = this.runs.get(message.run) ?? this._remember(message.session, message.run, message.next - 1);
    run.driver = message.driver;
    this._emit("attached", message);
  }

  _remember(session, run, last) {
    const entry = { session, run, last, driver: false, over: false };
    this.runs.set(run, entry);
    return entry;
  }

  _refused(reason, code = "closed") {
    this._closed = true;
    this._emit("status", { state: "refused", reason, code });
    this._fail(new RequestRefused(code, reason), () => true);
  }

  _fail(error, which) {
    for (const [id, asked] of this._asked) {
      if (!which(asked.message)) continue;
      this._asked.delete(id);
      asked.reject(error);
    }
  }

  _emit(type, detail) {
    this.dispatchEvent(new FrameEvent(type, detail));
  }

  // ---- up -------------------------------------------------------------------------------------------------------------

  _write(message) {
    if (this._socket?.readyState === WebSocket.OPEN) this._socket.send(JSON.stringify(message));
  }

  ask(message) {
    const asked = { ...message, id: newId() };
    return new Promise((resolve, reject) => {
      this._asked.set(asked.id, { message: asked, resolve, reject });
      if (this.welcome !== null) this._write(asked);
    });
  }

  _watchAgain(run) {
    this.ask({ type: "watch", session: run.session, run: run.run, after: run.last }).catch((error) => {
      run.over = true;
      this._emit("gone", { session: run.session, run: run.run, reason: error.message });
    });
  }

  start(text, { session = null, acknowledgement = null, onDisconnect = null } = {}) {
    return this.ask({
      type: "start", text, session, acknowledgement, on_disconnect: onDisconnect, key: newId(),
    });
  }

  resume(session, { acknowledgement = null, onDisconnect = null } = {}) {
    return this.ask({ type: "resume", session, acknowledgement, on_disconnect: onDisconnect, key: newId() });
  }

  async watch(session, run = "", after = 0) {
    const answer = await this.ask({ type: "watch", session, run, after });
    return answer.run ? answer : null;
  }

  async unwatch(run) {
    this.runs.delete(run);
    if (this.welcome !== null) await this.ask({ type: "unwatch", run });
  }

  acknowledge(run, seq) {
    if (this.welcome !== null) this._write({ type: "ack", run, seq });
  }

  reply(session, question, payload) {
    return this.ask({ type: "reply", session, question, payload });
  }

  steer(session, text) {
    return this.ask({ type: "steer", session, text });
  }

  followUp(session, text) {
    return this.ask({ type: "follow_up", session, text });
  }

  stop(session, { when = "now", reason = "stopped by the user" } = {}) {
    return this.ask({ type: "stop", session, when, reason });
  }
}
