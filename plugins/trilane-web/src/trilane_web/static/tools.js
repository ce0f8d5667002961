// A tool call as a card that folds: arguments, progress, result, time.

import { el, pretty, seconds } from "./dom.js";

const STATES = {
  writing: "being written", waiting: "waiting", running: "running", ok: "done", error: "error", denied: "denied",
  interrupted: "interrupted", timed_out: "timed out", not_started: "not started", still_running: "still running",
  superseded: "superseded",
};

export class ToolCard {
  constructor(callId, name) {
    this.callId = callId;
    this.name = el("span", { class: "tool-name" }, name || "tool");
    this.state = el("span", { class: "tool-state" });
    this.time = el("span", { class: "tool-time" });
    this.arguments = el("pre", { class: "mono", tabindex: "0" });
    this.body = el("div", { class: "tool-body" }, el("p", { class: "label" }, "Arguments"), this.arguments);
    this.node = el(
      "details",
      { class: "tool", dataset: { call: callId } },
      el("summary", {}, this.name, this.state, this.time),
      this.body,
    );
    this._started = 0;
    this._written = "";
    this._timer = 0;
    this._setState("writing");
  }

  _setState(state) {
    this.node.dataset.state = state;
    this.state.textContent = STATES[state] ?? state;
  }

  write(piece) {
    this._written += piece;
    this.arguments.textContent = this._written;
  }

  show(call) {
    if (call.name) this.name.textContent = call.name;
    this.arguments.textContent = Object.keys(call.arguments).length ? pretty(call.arguments) : "(none)";
    if (this.node.dataset.state === "writing") this._setState("waiting");
  }

  start(call) {
    this.show(call);
    this._setState("running");
    this._started = performance.now();
    this._timer = setInterval(() => (this.time.textContent = seconds(performance.now() - this._started)), 500);
  }

  progress(event) {
    if (!this._progress) {
      this._progress = el("progress", { max: 1, "aria-label": "Progress" });
      this._progressText = el("p", { class: "progress-text" });
      this.body.append(this._progress, this._progressText);
    }
    if (event.fraction !== null && event.fraction !== undefined) this._progress.value = event.fraction;
    else this._progress.removeAttribute("value");
    this._progressText.textContent = event.text || (event.data === null ? "" : pretty(event.data));
    if (event.text) this.state.textContent = `running · ${event.text.slice(0, 60)}`;
  }

  finish(result) {
    clearInterval(this._timer);
    if (this._started) this.time.textContent = seconds(performance.now() - this._started);
    this._progress?.remove();
    this._progressText?.remove();
    this._setState(result.outcome);
    const parts = typeof result.content === "string" ? [result.content] : result.content;
    this.body.querySelector(".tool-result")?.remove();
    this.body.append(
      el(
        "div",
        { class: "tool-result" },
        el("p", { class: "label" }, "Result"),
        ...parts.map((part) =>
          typeof part === "string"
            ? el("pre", { class: "mono", tabindex: "0" }, part || "(no output)")
            : media(part),
        ),
      ),
    );
  }

  /** The run has ended and says no more about this call. */
  abandon() {
    clearInterval(this._timer);
    if (["writing", "waiting", "running"].includes(this.node.dataset.state)) this._setState("interrupted");
  }
}

export function media(part) {
  const isPicture = part.kind === "image" && part.data && /^image\/(png|jpeg|gif|webp|avif)$/.test(part.media_type);
  if (isPicture) return el("img", { src: `data:${part.media_type};base64,${part.data}`, alt: "Image", class: "media" });
  return el("p", { class: "media" }, `[${part.kind}: ${part.name || part.media_type || part.url || ""}]`);
}
