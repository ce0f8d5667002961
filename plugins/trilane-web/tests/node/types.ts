// Checked by tsc with `strict`: what a program in TypeScript may write, and what it may not.

import { PROTOCOL, RequestRefused, TrilaneClient, newId } from "../../src/trilane_web/static/client.js";
import type { Attached, Gap, Json, Receipt, RunEvent, Welcome } from "../../src/trilane_web/static/client.js";

const version: 1 = PROTOCOL;
const client = new TrilaneClient(new URL("ws://127.0.0.1/ws"), { token: "t", client: newId(), lanes: true, frameSeconds: 0.1 });

client.addEventListener("welcome", ({ detail }) => {
  const welcome: Welcome = detail;
  console.log(welcome.agent, welcome.acknowledgement === "strict", version);
});
client.addEventListener("events", ({ detail: { run, events } }) => {
  const last: RunEvent | undefined = events.at(-1);
  if (last) client.acknowledge(run, last.seq);
});
client.addEventListener("gap", ({ detail }) => {
  const gap: Gap = detail;
  console.log(gap.first, gap.reason === "discarded");
});
client.addEventListener("notification", ({ detail }) => console.log(detail.name));
client.addEventListener("status", ({ detail }) => console.log(detail.state === "online", detail.retryIn));

async function use(payload: Json): Promise<void> {
  const started: Attached = await client.start("hello", { acknowledgement: "strict", onDisconnect: "cancel", session: null });
  const receipt: Receipt = await client.reply(started.session, "q", payload);
  if (receipt.status === "invalid") console.log(receipt.reasons.join());
  const watched: Attached | null = await client.watch(started.session, started.run, 3);
  await client.steer(started.session, watched?.run ?? "");
  await client.followUp(started.session, "x");
  await client.resume(started.session, { acknowledgement: "detached" });
  await client.unwatch(started.run);
  await client.stop(started.session, { when: "boundary", reason: "enough" });
  client.retryNow();
  client.close();
  const known = client.runs.get(started.run);
  console.log(known?.last, client.welcome?.principal);
}

use({ approve: true, arguments: { to: ["a", 1, null] } }).catch((error: unknown) => {
  if (error instanceof RequestRefused) console.log(error.code, error.message);
});

// @ts-expect-error there is no such policy
void client.start("hello", { acknowledgement: "loose" });
// @ts-expect-error a reply is JSON
void client.reply("s", "q", () => 1);
// @ts-expect-error there is no such event
client.addEventListener("welcome", ({ detail }) => console.log(detail.nothing));
// @ts-expect-error the code is read only
new RequestRefused("a").code = "b";
// @ts-expect-error a status is one of six
const wrong: Receipt["status"] = "perhaps";
void wrong;
