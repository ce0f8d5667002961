// A question as a card: what is asked, a form, and what became of the reply.

import { el, pretty } from "./dom.js";
import { argumentFields, fieldFor } from "./forms.js";

const WORDS = {
  accepted: "Accepted.",
  duplicate: "This was answered before; that answer counts.",
  expired: "This was withdrawn; the run does not wait for it any more.",
  unknown: "The run does not know this question any more.",
  wrong_session: "This question belongs to another session.",
};

export class QuestionCard {
  /** `answer(payload)` sends a reply and returns its receipt. */
  constructor(question, answer) {
    this.question = question;
    this._answer = answer;
    this.open = true;
    this.status = el("p", { class: "receipt", role: "status" });
    this.form = el("form", { class: "question-form", autocomplete: "off" });
    const kind = { approval: "Approval needed", question: "Question", external_tool: "Tool for you to run" }[question.kind];
    const heading = `question-${question.id}`;
    this.node = el(
      "section",
      { class: "question", "aria-labelledby": heading, dataset: { question: question.id, kind: question.kind } },
      el("h2", { id: heading }, kind, question.asked_by ? el("span", { class: "by" }, ` · ${question.asked_by}`) : null),
      el("p", { class: "prompt" }, question.prompt),
      this.form,
      this.status,
    );
    if (question.kind === "approval" && question.schema?.properties?.approve) this._approval();
    else this._general();
    if (question.expires) this.status.textContent = `Can be answered until ${new Date(question.expires).toLocaleTimeString()}.`;
  }

  _approval() {
    const call = this.question.call;
    const original = call?.arguments ?? {};
    const fields = argumentFields(original);
    const reason = fieldFor({ type: "string" }, { label: "Reason, if you deny", required: false, single: true });
    const arguments_ = fields.count
      ? el("fieldset", { class: "arguments" }, el("legend", {}, `Arguments of ${call.name}`), ...fields.nodes)
      : null;
    const approve = el("button", { type: "submit", class: "primary" }, "Approve");
    const deny = el("button", { type: "button", class: "danger" }, "Deny");
    deny.addEventListener("click", () => this._send(() => ({ approve: false, reason: reason.read() ?? "" }), "Denied."));
    this.form.append(...[arguments_, reason.node, el("div", { class: "buttons" }, approve, deny)].filter(Boolean));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._send(() => {
        const edited = fields.read();
        const changed = JSON.stringify(edited) !== JSON.stringify(original);
        return changed ? { approve: true, arguments: edited } : { approve: true };
      });
    });
  }

  _general() {
    const field = fieldFor(this.question.schema, { label: "Your answer" });
    if (this.question.call && this.question.kind === "external_tool") {
      this.form.append(el("pre", { class: "mono" }, `${this.question.call.name} ${pretty(this.question.call.arguments)}`));
    }
    this.form.append(field.node, el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Answer")));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._send(() => field.read());
    });
  }

  /** `done` is said when the reply was accepted. */
  async _send(read, done = WORDS.accepted) {
    let payload;
    try {
      payload = read();
    } catch (error) {
      this._say(error.message, "invalid");
      return;
    }
    this._enable(false);
    this._say("Sending…", "");
    try {
      const receipt = await this._answer(payload);
      const reasons = receipt.reasons.join("; ");
      const words = { ...WORDS, accepted: done, invalid: `This does not fit: ${reasons}` };
      this._say(words[receipt.status], receipt.status);
      if (receipt.status === "invalid") this._enable(true);
      else this.open = false;
    } catch (error) {
      this._say(error.message, "invalid");
      this._enable(true);
    }
  }

  /** The run says what became of the question. */
  settle(status) {
    this.open = false;
    this._enable(false);
    this.node.classList.add("settled");
    if (!this.status.dataset.status || this.status.dataset.status === "invalid") {
      this._say(status === "accepted" ? "Answered." : "Withdrawn.", status);
    }
  }

  _say(text, status) {
    this.status.textContent = text;
    this.status.dataset.status = status;
  }

  _enable(enabled) {
    for (const control of this.form.querySelectorAll("input, textarea, select, button")) control.disabled = !enabled;
  }
}
