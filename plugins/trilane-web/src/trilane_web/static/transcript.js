// The conversation: history from the store, then the events of a run, each applied once and in order.

import { el } from "./dom.js";
import { GrowingMarkdown } from "./markdown.js";
import { QuestionCard } from "./questions.js";
import { ToolCard, media } from "./tools.js";

const ORIGINS = { steering: "said while it worked", follow_up: "said for later", feedback: "sent back" };

export class Transcript {
  /** `actions`: reply(question, payload), announce(text), and where a page offers it fork(messageId), retry(message). */
  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this._top = 0;
    this.clear();
    node.addEventListener("scroll", () => {
      // Only who scrolls up wants to stay there; that more has come below is no wish.
      if (node.scrollHeight - node.scrollTop - node.clientHeight < 60) this._follow = true;
      else if (node.scrollTop < this._top - 2) this._follow = false;
      this._top = node.scrollTop;
    });
    // What stands below it may grow, as the message box and the keyboard of a phone do.
    new ResizeObserver(() => this.scroll()).observe(node);
  }

  clear() {
    for (const card of this.tools?.values() ?? []) card.abandon();
    this.node.replaceChildren();
    this.messages = new Map(); // message id -> {node, parts}
    this.tools = new Map(); // call id -> ToolCard
    this.questions = new Map();
    this._warnings = new Map(); // text -> the note that counts how often it came
    this._follow = true;
    this._growing = new Set();
  }

  get isEmpty() {
    return this.node.childElementCount === 0;
  }

  // ---- history --------------------------------------------------------------------------------------------------------

  showHistory(session) {
    if (session.truncated) this._note("Earlier messages are not shown.");
    for (const message of session.messages) {
      if (message.kind === "user") this._user(message, message.origin);
      else if (message.kind === "assistant") this._whole(message);
      else if (message.kind === "tool") for (const result of message.results) this.tools.get(result.call_id)?.finish(result);
    }
    for (const [callId, result] of Object.entries(session.results)) this.tools.get(callId)?.finish(result);
    this.scroll(true);
  }

  _whole(message) {
    const entry = this._message(message.id);
    message.parts.forEach((part, index) => {
      if (part.kind === "text") this._part(entry, index, "text").set(part.text);
      else if (part.kind === "reasoning") this._part(entry, index, "reasoning").set(part.text);
      else if (part.kind === "tool_call") this._tool(entry, part.call.id, part.call.name).show(part.call);
      else if (part.kind === "citation") entry.body.append(el("p", { class: "citation" }, part.title || part.source || part.text));
      else if (part.kind === "server_tool") entry.body.append(el("p", { class: "citation" }, `${part.name} (run by the provider)`));
      else entry.body.append(media(part));
    });
    this._complete(entry, message);
  }

  // ---- events ---------------------------------------------------------------------------------------------------------

  apply(event) {
    switch (event.type) {
      case "user_message_added":
        return this._user(event.message, event.origin);
      case "message_started":
        return void this._message(event.message_id);
      case "text_delta":
        return this._grow(event, "text");
      case "reasoning_delta":
        return this._grow(event, "reasoning");
      case "reasoning_completed":
        return this._foldReasoning(event);
      case "tool_call_delta":
        return this._writtenCall(event);
      case "message_completed":
        return this._messageCompleted(event);
      case "tool_started":
        return this._toolOf(event.call).start(event.call);
      case "tool_progress":
        return this.tools.get(event.call_id)?.progress(event);
      case "tool_completed": {
        const card = this._toolOf(event.call);
        card.show(event.call);
        return card.finish(event.result);
      }
      case "reply_requested":
        return this.ask(event.question);
      case "reply_received":
        return this.questions.get(event.question_id)?.settle(event.receipt.status);
      case "compaction_completed":
        return event.changed ? this._note("Earlier messages were summed up for the model.") : undefined;
      case "plugin_failed":
        return this._warn(`The plugin ${event.plugin} failed in ${event.hook}: ${event.error.type}`);
      case "child_event":
        return this._child(event);
      case "run_completed":
        this._ended();
        return this.actions.announce(`Answer: ${this._said(event.result.text).slice(0, 500)}`);
      case "run_failed":
        this._ended();
        this._note(`The run failed: ${event.error.type}: ${event.error.message}`, "error");
        return this.actions.announce("The run failed.");
      case "run_cancelled":
        this._ended();
        this._note(`Stopped: ${event.reason}`, "stopped");
        return this.actions.announce("The run was stopped.");
      default:
        return undefined;
    }
  }

  /** Draw what has not been drawn yet. */
  flush() {
    for (const growing of this._growing) growing.flush();
    this._growing.clear();
    this.scroll();
  }

  scroll(force = false) {
    if (force || this._follow) this.node.scrollTop = this.node.scrollHeight;
  }

  gap() {
    this._note("Some events were missed and are not available any more; reload to see the stored messages.", "warning");
  }

  // ---- parts ----------------------------------------------------------------------------------------------------------

  _user(message, origin) {
    const texts = message.parts.map((part) => (part.kind === "text" ? el("p", {}, part.text) : media(part)));
    const note = ORIGINS[origin] ? el("p", { class: "origin" }, ORIGINS[origin]) : null;
    const node = el("article", { class: `message user ${origin}`, "aria-label": "You" }, note, ...texts);
    if (origin === "request" && this.actions.retry) {
      const retry = el("button", { type: "button", class: "quiet retry", title: "Ask this again in a new session", "aria-label": "Retry" });
      retry.addEventListener("click", () => this.actions.retry(message));
      node.append(retry);
    }
    this.node.append(node);
    this.scroll(origin === "request");
  }

  _message(id) {
    let entry = this.messages.get(id);
    if (!entry) {
      const body = el("div", { class: "body" });
      const foot = el("footer", {});
      const node = el("article", { class: "message assistant", "aria-label": "Agent", dataset: { message: id } }, body, foot);
      entry = { node, body, foot, parts: new Map(), written: new Map() };
      this.messages.set(id, entry);
      this.node.append(node);
    }
    return entry;
  }

  _part(entry, index, kind) {
    const key = `${kind}-${index}`;
    let part = entry.parts.get(key);
    if (!part) {
      part = new GrowingMarkdown();
      if (kind === "reasoning") {
        part.folded = el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), part.node);
        entry.body.append(part.folded);
      } else {
        entry.body.append(part.node);
      }
      entry.parts.set(key, part);
    }
    return part;
  }

  _grow(event, kind) {
    const entry = this._message(event.message_id);
    entry.node.classList.add("growing");
    const part = this._part(entry, event.index, kind);
    part.text += event.text;
    this._growing.add(part);
  }

  _foldReasoning(event) {
    const part = this.messages.get(event.message_id)?.parts.get(`reasoning-${event.index}`);
    const words = part?.text.trim().split(/\s+/).length ?? 0;
    if (part) part.folded.querySelector("summary").textContent = `Reasoning (${words} words)`;
  }

  _messageCompleted(event) {
    const entry = this._message(event.message.id);
    this.flush();
    const written = [...entry.written.values()];
    for (const part of event.message.parts) {
      if (part.kind !== "tool_call") continue;
      const card = written.shift();
      if (card && card.callId !== part.call.id) this._rename(card, part.call.id);
      this._tool(entry, part.call.id, part.call.name).show(part.call);
    }
    entry.written.clear();
    // A message of which no deltas came, or which a plugin has changed, is shown as it was kept.
    const texts = event.message.parts.filter((part) => part.kind === "text");
    const shown = [...entry.parts].filter(([key]) => key.startsWith("text-")).map(([, part]) => part);
    if (texts.map((part) => part.text).join("") !== shown.map((part) => part.text).join("")) {
      const whole = texts.map((part) => part.text).join("\n\n");
      if (shown.length) {
        shown[0].set(whole);
        for (const other of shown.slice(1)) other.set("");
      } else if (whole) {
        this._part(entry, 0, "text").set(whole);
      }
    }
    this._complete(entry, event.message, event);
  }

  _complete(entry, message, { superseded = false } = {}) {
    entry.node.classList.remove("growing");
    entry.node.classList.toggle("superseded", superseded);
    const notes = [];
    if (message.interrupted) notes.push("cut off");
    if (superseded) notes.push("superseded");
    if (["refusal", "content_filter", "length"].includes(message.stop_reason)) notes.push(message.stop_reason.replace("_", " "));
    const shown = notes.length ? [el("span", {}, notes.join(", "))] : [];
    if (this.actions.fork) {
      const fork = el("button", { type: "button", class: "quiet fork", title: "New session from here" }, "Fork");
      fork.addEventListener("click", () => this.actions.fork(message.id));
      shown.push(fork);
    }
    entry.foot.replaceChildren(...shown);
  }

  _tool(entry, callId, name) {
    let card = this.tools.get(callId);
    if (!card) {
      card = new ToolCard(callId, name);
      this.tools.set(callId, card);
      entry.body.append(card.node);
    }
    return card;
  }

  /** Only the first delta of a call has its id for certain; the others are known by their place in the message. */
  _writtenCall(event) {
    const entry = this._message(event.message_id);
    let card = entry.written.get(event.index);
    if (!card) {
      card = this._tool(entry, event.call_id || `${event.message_id}-${event.index}`, event.name);
      entry.written.set(event.index, card);
    }
    card.write(event.arguments);
  }

  _rename(card, callId) {
    if (this.tools.get(card.callId) === card) this.tools.delete(card.callId);
    card.callId = card.node.dataset.call = callId;
    this.tools.set(callId, card);
  }

  _toolOf(call) {
    const known = this.tools.get(call.id);
    if (known) return known;
    const card = new ToolCard(call.id, call.name);
    this.tools.set(call.id, card);
    this.node.append(card.node);
    return card;
  }

  ask(question) {
    const known = this.questions.get(question.id);
    if (known?.open && known.node.isConnected) return;
    known?.node.remove(); // asked again, after a restart
    const card = new QuestionCard(question, (payload) => this.actions.reply(question, payload));
    this.questions.set(question.id, card);
    const tool = question.call && this.tools.get(question.call.id);
    if (tool) tool.node.after(card.node);
    else this.node.append(card.node);
    card.node.scrollIntoView({ block: "nearest" });
    this.scroll();
    this.actions.announce(`${question.kind === "approval" ? "Approval needed" : "Question"}: ${question.prompt}`);
  }

  _child(event) {
    const inner = event.event;
    if (inner.type === "reply_requested") this.ask(inner.question);
    else if (inner.type === "reply_received") this.questions.get(inner.question_id)?.settle(inner.receipt.status);
    else if (inner.type === "tool_started" || inner.type === "tool_completed") {
      const card = this._toolOf({ ...inner.call, id: `${event.path.join("/")}/${inner.call.id}` });
      if (inner.type === "tool_started") card.start(inner.call);
      else card.finish(inner.result);
    }
  }

  _ended() {
    this.flush();
    for (const card of this.tools.values()) card.abandon();
    for (const question of this.questions.values()) if (question.open) question.settle("expired");
    for (const { node } of this.messages.values()) node.classList.remove("growing");
  }

  /** The last answer as it reads, without the marks of its markdown. */
  _said(text) {
    const last = [...this.messages.values()].at(-1);
    const shown = [...(last?.parts ?? [])].filter(([key]) => key.startsWith("text-")).map(([, part]) => part.node.textContent);
    return shown.join(" ").trim() || text;
  }

  /** Says it once, and counts. */
  _warn(text) {
    const known = this._warnings.get(text);
    const times = Number(known?.dataset.times ?? 0) + 1;
    const note = known ?? this._note("", "warning");
    note.dataset.times = times;
    note.textContent = times > 1 ? `${text} (${times} times)` : text;
    this._warnings.set(text, note);
  }

  _note(text, kind = "") {
    const note = el("p", { class: `note ${kind}` }, text);
    this.node.append(note);
    this.scroll();
    return note;
  }
}
