// The three lanes of the run that is shown, live: its UI events, its notifications, its questions and replies; and what
// plugins cost.

import { el } from "./dom.js";

const PHASES = ["created", "loading_context", "ready", "compacting", "generating", "running_tool", "completed", "failed", "cancelled"];
const KEPT = 200;

export class Lanes {
  constructor(node) {
    this.node = node;
    this.phases = el("ol", { class: "phases", "aria-label": "Phases" });
    this.ui = el("ol", { class: "lane", tabindex: "0", "aria-label": "UI stream" });
    this.notifications = el("ol", { class: "lane", tabindex: "0", "aria-label": "Notifications" });
    this.replies = el("ol", { class: "lane", tabindex: "0", "aria-label": "Questions and replies" });
    this.ledger = el("div", { class: "ledger" });
    this.count = el("span", { class: "count" });
    node.append(
      el("h2", {}, "Phase"), this.phases,
      el("h2", {}, "UI stream ", this.count), this.ui,
      el("h2", {}, "Notifications"), this.notifications,
      el("h2", {}, "Replies"), this.replies,
      el("h2", {}, "Plugins"), this.ledger,
    );
    this.reset();
  }

  reset() {
    this.phases.replaceChildren(...PHASES.map((name) => el("li", { dataset: { phase: name } }, name.replace("_", " "))));
    for (const lane of [this.ui, this.notifications, this.replies]) lane.replaceChildren();
    this.ledger.replaceChildren(el("p", { class: "dim" }, "Shown when a run has ended."));
    this.count.textContent = "";
  }

  apply(event) {
    if (event.type === "run_started") this.reset();
    this._phase(event.phase);
    this.count.textContent = `· ${event.seq}`;
    this._add(this.ui, `${event.seq}`, event.type, event.milestone ? "" : "dim");
    if (event.type === "reply_requested") this._add(this.replies, "?", `${event.question.kind}: ${event.question.prompt}`);
    if (event.type === "reply_received") this._add(this.replies, "!", event.receipt.status);
    if (event.result?.ledger) this._ledger(event.result);
  }

  /** The lanes were out of sight, where nothing scrolls. */
  shown() {
    for (const lane of [this.ui, this.notifications, this.replies]) lane.scrollTop = lane.scrollHeight;
  }

  notify(notification) {
    this._add(this.notifications, "·", notification.name);
  }

  _phase(phase) {
    const name = String(phase).toLowerCase();
    for (const item of this.phases.children) {
      const current = item.dataset.phase === name;
      item.classList.toggle("current", current);
      if (current) {
        item.classList.add("visited");
        item.setAttribute("aria-current", "step");
      } else {
        item.removeAttribute("aria-current");
      }
    }
  }

  _add(lane, mark, text, kind = "") {
    const last = lane.lastElementChild;
    if (last && last.dataset.text === text) {
      const times = Number(last.dataset.times) + 1;
      last.dataset.times = times;
      last.querySelector(".times").textContent = `× ${times}`;
      last.querySelector(".mark").textContent = mark;
    } else {
      lane.append(
        el("li", { class: kind, dataset: { text, times: 1 } }, el("span", { class: "mark" }, mark), el("span", {}, text), el("span", { class: "times" })),
      );
      while (lane.childElementCount > KEPT) lane.firstElementChild.remove();
    }
    lane.scrollTop = lane.scrollHeight;
  }

  _ledger(result) {
    if (!result.ledger.length) {
      this.ledger.replaceChildren(el("p", { class: "dim" }, "No plugin was called."));
      return;
    }
    const head = ["plugin", "hook", "calls", "errors", "ms"].map((text) => el("th", { scope: "col" }, text));
    const rows = result.ledger.map((row) =>
      el("tr", {}, ...[row.plugin, row.hook, row.calls, row.errors, (row.seconds * 1000).toFixed(1)].map((cell) => el("td", {}, String(cell)))),
    );
    this.ledger.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
  }
}
