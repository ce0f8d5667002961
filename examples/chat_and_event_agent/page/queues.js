// The page of the example: a conversation over the WebSocket, and beside it what goes through the three queues.
//
// The conversation is drawn by the modules of the chat page. They know nothing of the event agent, which is the point:
// the WebSocket says the same as if one agent did everything.

import { TrilaneClient, newId } from "../../static/client.js";
import { byId, el } from "../../static/dom.js";
import { Transcript } from "../../static/transcript.js";

const TERMINAL = new Set(["run_completed", "run_failed", "run_cancelled"]);
const QUEUES = [
  ["input", "browser and event agent", "chat agent", "messages and results, on their way in"],
  ["events", "chat agent", "event agent", "calls, for whoever executes them"],
  ["output", "chat agent", "browser", "the UI stream, on its way out"],
];
const SHOWN = 14; // items of a queue that were taken and are still drawn
const STEPS = 300;

const base = new URL("..", document.baseURI);
const socketUrl = new URL("ws", base);
socketUrl.protocol = socketUrl.protocol === "https:" ? "wss:" : "ws:";
const client = new TrilaneClient(socketUrl, { client: newId() });
const state = { session: null, run: "", running: false };

// ---- the conversation ---------------------------------------------------------------------------------------------------

const transcript = new Transcript(byId("transcript"), {
  reply: (question, payload) => client.reply(question.session_id || state.session, question.id, payload),
  announce: (text) => (byId("announce").textContent = text),
});
const box = byId("message");

function showRunning(running) {
  state.running = running;
  byId("stop").hidden = !running;
  byId("send").textContent = running ? "Steer" : "Send";
}

function complain(error) {
  transcript.node.append(el("p", { class: "note error", role: "alert" }, error.message));
  transcript.scroll();
}

async function send() {
  const text = box.value.trim();
  if (!text) return;
  box.value = "";
  try {
    if (state.running) {
      await client.steer(state.session, text);
    } else {
      showRunning(true);
      const answer = await client.start(text, { session: state.session });
      state.session = answer.session;
    }
  } catch (error) {
    if (!state.run) showRunning(false);
    box.value = box.value || text;
    complain(error);
  }
}

client.addEventListener("events", ({ detail: { session, run, events } }) => {
  Object.assign(state, { run, session });
  for (const event of events) {
    transcript.apply(event);
    document.body.dataset.seq = event.seq;
  }
  transcript.flush();
  const last = events.at(-1);
  const shown = () => client.acknowledge(run, last.seq);
  if (document.hidden) shown();
  else requestAnimationFrame(shown);
  if (TERMINAL.has(last.type)) {
    state.run = "";
    showRunning(false);
  }
});

client.addEventListener("gone", () => {
  state.run = "";
  showRunning(false);
  complain(new Error("The server was restarted. Reload the page."));
});

client.addEventListener("status", ({ detail }) => {
  const words = { connecting: "connecting", online: "connected", offline: "no connection", refused: "refused" };
  const shown = byId("connection");
  shown.textContent = detail.reason ?? words[detail.state];
  shown.dataset.state = detail.state;
});

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
byId("stop").addEventListener("click", () => client.stop(state.session).catch(() => {}));
byId("theme").addEventListener("click", () => {
  const set = document.documentElement.dataset.theme;
  const dark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});

// ---- the queues ---------------------------------------------------------------------------------------------------------

class Queue {
  constructor([name, from, to, what]) {
    this.name = name;
    this.items = el("ol", { class: "items", "aria-label": `Items of ${name}`, tabindex: "0" });
    this.counts = el("p", { class: "counts" });
    this.waiting = []; // items that were put and not taken, oldest first
    this.put = 0;
    this.taken = 0;
    this.node = el(
      "section",
      { class: "queue", dataset: { queue: name }, "aria-label": `Queue ${name}` },
      el("h2", {}, name, el("small", {}, ` ${what}`)),
      el("p", { class: "way" }, el("span", {}, from), el("span", { class: "arrow", "aria-hidden": "true" }, "→"), el("span", { class: "hidden" }, " to "), el("span", {}, to)),
      this.items,
      this.counts,
    );
    this._count();
  }

  step({ step, kind, text }) {
    if (step === "put") this._put(kind, text);
    else this._take();
    this._count();
    this.items.scrollLeft = this.items.scrollWidth;
  }

  _put(kind, text) {
    const last = this.items.lastElementChild;
    this.put += 1;
    if (kind === "event" && last?.dataset.text === text) {
      // Deltas come by the hundred: one item that counts.
      const times = Number(last.dataset.times) + 1;
      last.dataset.times = times;
      last.querySelector(".times").textContent = ` × ${times}`;
      last.classList.add("waits");
      this.waiting.push(last);
      return;
    }
    const item = el(
      "li",
      { class: "item waits", title: text, dataset: { kind, text, times: 1 } },
      el("span", { class: "kind" }, kind === "event" ? "" : kind),
      el("span", { class: "text" }, text),
      el("span", { class: "times" }),
    );
    this.waiting.push(item);
    this.items.append(item);
    while (this.items.childElementCount > SHOWN + this.waiting.length) this.items.firstElementChild.remove();
  }

  _take() {
    const item = this.waiting.shift();
    this.taken += 1;
    if (item && !this.waiting.includes(item)) item.classList.remove("waits");
  }

  _count() {
    const waits = this.put - this.taken;
    this.counts.textContent = `${this.put} put, ${this.taken} taken, ${waits ? `${waits} waiting` : "empty"}`;
    this.node.dataset.waiting = waits;
  }
}

const queues = new Map(QUEUES.map((one) => [one[0], new Queue(one)]));
byId("queues").append(...[...queues.values()].map((queue) => queue.node));

const list = byId("steps");

function log(step) {
  if (step.lane === "output" && step.step === "take") return;
  const words = step.step === "put" ? "put on" : "taken off";
  const last = list.lastElementChild;
  const text = `${words} ${step.lane}: ${step.kind === "event" ? "" : `${step.kind} `}${step.text}`;
  if (last?.dataset.text === text) {
    last.dataset.times = Number(last.dataset.times) + 1;
    last.querySelector(".times").textContent = ` × ${last.dataset.times}`;
    return;
  }
  list.append(
    el("li", { dataset: { text, times: 1, lane: step.lane, step: step.step }, value: step.n }, text, el("span", { class: "times" })),
  );
  while (list.childElementCount > STEPS) list.firstElementChild.remove();
  list.scrollTop = list.scrollHeight;
}

async function follow() {
  let after = 0;
  for (;;) {
    try {
      const answer = await fetch(new URL(`queues/steps?after=${after}`, base));
      const steps = await answer.json();
      if (steps.length && steps[0].n > after + 1) list.replaceChildren(); // what was before is not kept any more
      for (const step of steps) {
        queues.get(step.lane).step(step);
        log(step);
        after = step.n;
      }
    } catch {
      await new Promise((resume) => setTimeout(resume, 1000)); // the server is away; the connection says so
      after = 0;
    }
  }
}

client.connect();
follow();
box.focus();
