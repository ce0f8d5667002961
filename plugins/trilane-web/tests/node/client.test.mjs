// The JavaScript client against a real server; `test_client_js.py` starts that and says where it is.

import assert from "node:assert/strict";
import { after, test } from "node:test";

const { PROTOCOL, RequestRefused, TrilaneClient, newId } = await import(process.env.TRILANE_CLIENT);
const url = process.env.TRILANE_URL;
const PATIENCE = { timeout: 30_000 };
const TERMINAL = ["run_completed", "run_failed", "run_cancelled"];
const opened = [];

after(() => opened.forEach((client) => client.close()));

/** A connected client that keeps what it is told, and acknowledges it unless told otherwise. */
async function connected(options = {}, { acknowledges = true } = {}) {
  const client = new TrilaneClient(url, { token: "secret", ...options });
  opened.push(client);
  client.seen = [];
  client.log = [];
  for (const name of ["status", "attached", "gap", "gone", "notification"]) {
    client.addEventListener(name, ({ detail }) => client.log.push([name, detail]));
  }
  client.addEventListener("events", ({ detail: { run, events } }) => {
    client.seen.push(...events);
    if (acknowledges) client.acknowledge(run, events.at(-1).seq);
  });
  const welcome = next(client, "welcome");
  client.connect();
  await welcome;
  return client;
}

function next(client, name) {
  return new Promise((resolve) => client.addEventListener(name, ({ detail }) => resolve(detail), { once: true }));
}

/** The first event of one of these types, which has come or will come. */
async function until(client, run, ...types) {
  for (;;) {
    const found = client.seen.find((event) => event.run_id === run && types.includes(event.type));
    if (found) return found;
    await next(client, "events");
  }
}

const numbers = (client, run) => client.seen.filter((event) => event.run_id === run).map((event) => event.seq);
const isWhole = (found) => found.every((seq, index) => seq === index + 1);
const refusal = (code) => (error) => error instanceof RequestRefused && error.code === code;

test("a greeting", PATIENCE, async () => {
  const client = await connected();
  assert.equal(client.welcome.protocol, PROTOCOL);
  assert.equal(client.welcome.agent, "helper");
  assert.deepEqual(client.log.map(([, detail]) => detail.state), ["connecting", "online"]);
  assert.notEqual(newId(), newId());
  assert.match(newId(), /^[0-9a-f]{24}$/);
});

test("a run is told whole, and waits for what is not acknowledged", PATIENCE, async () => {
  const client = await connected({}, { acknowledges: false });
  const { run, session, driver, next: first } = await client.start("words 20", { acknowledgement: "strict" });
  assert.equal(driver, true);
  assert.equal(first, 1);
  await until(client, run, "run_started");
  let acknowledged = 0;
  while (!client.seen.some((event) => event.run_id === run && TERMINAL.includes(event.type))) {
    const last = numbers(client, run).at(-1);
    assert.ok(last - acknowledged <= 8, "it went ahead by more than what is handed over together");
    acknowledged = last;
    const more = next(client, "events");
    client.acknowledge(run, last);
    await more;
  }
  assert.ok(isWhole(numbers(client, run)));
  const text = client.seen.filter((event) => event.type === "text_delta").map((event) => event.text).join("");
  assert.equal(text, Array.from({ length: 20 }, (_, number) => `w${number} `).join(""));
  assert.equal(client.seen.at(-1).type, "run_completed");
  assert.equal(client.runs.get(run).over, true);
  assert.equal(client.runs.get(run).session, session);
});

test("replies and their receipts", PATIENCE, async () => {
  const client = await connected();
  const { run, session } = await client.start("pay");
  const { question } = await until(client, run, "reply_requested");
  const invalid = await client.reply(session, question.id, { approve: "perhaps" });
  assert.equal(invalid.status, "invalid");
  assert.ok(invalid.reasons.length > 0);
  assert.equal((await client.reply(session, "nothing", true)).status, "unknown");
  const other = await client.start("pay");
  assert.equal((await client.reply(other.session, question.id, { approve: true })).status, "wrong_session");
  await client.stop(other.session);
  const edited = { approve: true, arguments: { amount: 7 } };
  assert.equal((await client.reply(session, question.id, edited)).status, "accepted");
  assert.equal((await client.reply(session, question.id, edited)).status, "duplicate");
  const { result } = await until(client, run, "tool_completed");
  assert.equal(result.content, "paid 7");
  const late = await until(client, other.run, "reply_requested");
  assert.equal((await client.reply(other.session, late.question.id, { approve: true })).status, "expired");
});

test("steering, following up and stopping", PATIENCE, async () => {
  const client = await connected();
  const { run, session } = await client.start("hold");
  await until(client, run, "text_delta");
  assert.equal((await client.steer(session, "words 2")).type, "done");
  assert.equal((await client.followUp(session, "words 3")).type, "done");
  assert.equal((await client.start("words 1", { session }).catch((error) => error)).code, "busy");
  await client.stop(session, { reason: "enough" });
  assert.equal((await until(client, run, "run_cancelled")).reason, "enough");
  await assert.rejects(client.stop(session), refusal("not_running"));
  await assert.rejects(client.steer(session, "x"), refusal("not_running"));
  const again = await client.start("words 1", { session });
  await until(client, again.run, "run_completed");
  await assert.rejects(client.resume(session), refusal("not_resumable"));
  assert.equal(await client.watch(session), null);
});

test("a second client watches from where it likes", PATIENCE, async () => {
  const one = await connected();
  const two = await connected();
  const { run, session } = await one.start("hold");
  await until(one, run, "text_delta");
  const attached = await two.watch(session, run);
  assert.equal(attached.driver, false);
  await until(two, run, "text_delta");
  const third = await connected();
  await third.watch(session, run, 3);
  await until(third, run, "text_delta");
  assert.equal(numbers(third, run)[0], 4);
  const fourth = await connected();
  await fourth.watch(session, run, 10_000);
  await until(fourth, run, "text_delta");
  assert.deepEqual(fourth.log.filter(([name]) => name === "gap").map(([, gap]) => [gap.reason, gap.first]), [["future", 1]]);
  await third.unwatch(run);
  assert.equal(third.runs.has(run), false);
  await one.stop(session);
  await until(one, run, "run_cancelled");
  await until(two, run, "run_cancelled");
  await until(fourth, run, "run_cancelled");
  assert.deepEqual(numbers(two, run), numbers(one, run));
  assert.ok(isWhole(numbers(fourth, run)));
});

test("connections are cut and every event comes once", PATIENCE, async () => {
  const client = await connected();
  const { run } = await client.start("cut cut cut", { acknowledgement: "strict" });
  await until(client, run, "run_completed");
  assert.ok(isWhole(numbers(client, run)));
  const states = client.log.filter(([name]) => name === "status").map(([, status]) => status.state);
  assert.equal(states.filter((state) => state === "offline").length, 3);
  assert.equal(states.at(-1), "online");
});

test("what is asked while there is no connection is asked when it is back; what is not safe to say twice is not", PATIENCE, async () => {
  const client = await connected();
  const { session } = await client.start("words 1");
  client.log.length = 0;
  const offline = new Promise((resolve) => client.addEventListener("status", ({ detail }) => detail.state === "offline" && resolve()));
  const lost = client.steer("nothing-of-ours", "x");
  client._socket.close();
  await assert.rejects(lost, (error) => ["lost", "not_running", "not_found"].includes(error.code));
  await offline;
  const started = client.start("words 1");
  client.retryNow();
  const { run, session: other } = await started;
  assert.notEqual(other, session);
  await until(client, run, "run_completed");
});

test("a start that is repeated after a loss gives the run it had started", PATIENCE, async () => {
  const client = await connected();
  const message = { type: "start", text: "words 1", session: null, acknowledgement: null, on_disconnect: null, key: newId() };
  const [one, two] = await Promise.all([client.ask(message), client.ask(message)]);
  assert.equal(one.run, two.run);
});

test("a wrong token is refused for good", PATIENCE, async () => {
  const client = new TrilaneClient(url, { token: "wrong" });
  const refused = new Promise((resolve) => client.addEventListener("status", ({ detail }) => detail.state === "refused" && resolve(detail)));
  client.connect();
  assert.equal((await refused).code, "not_authenticated");
  client.close();
});

test("notifications come to who asks for them", PATIENCE, async () => {
  const client = await connected({ lanes: true });
  const { run } = await client.start("words 1");
  await until(client, run, "run_completed");
  const names = client.log.filter(([name]) => name === "notification").map(([, one]) => one.name);
  assert.ok(names.includes("PhaseTransitionEvent"));
});

test("closing gives up what was asked", PATIENCE, async () => {
  const client = await connected();
  const asked = client.ask({ type: "nothing of the kind" });
  client.close();
  await assert.rejects(asked, (error) => ["closed", "bad_message"].includes(error.code));
});
