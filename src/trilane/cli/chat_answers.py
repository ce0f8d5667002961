"""Questions of a run, answered at the prompt of a chat: forms, and approvals whose arguments can be edited first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .answers import Answers, TerminalLines
from .chat_forms import Field, FieldError, assemble, fields_of, text_of_value
from .text import call_text, visible

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.events import Question, Receipt

__all__ = ["ChatAnswers", "Desk"]

_APPROVE = "allow it? [y]es, [N]o, [e]dit: "


class Desk(Protocol):
    """Where questions are put to somebody."""

    async def ask(self, prompt: str, text: str = "", *, choices: Sequence[str] = ()) -> str:
        """What was typed; `text` is there to be edited.

        Raises:
            NobodyAnswers: the prompt was closed.
        """
        ...

    def show(self, text: str) -> None:
        """Show lines."""
        ...


class ChatAnswers(Answers):
    """Answers at `desk`; without one as `trilane run` does."""

    def __init__(self, desk: Desk | None, *, approve: bool | None = None) -> None:
        super().__init__(approve=approve, lines=None if desk is None else TerminalLines())
        self._desk = desk

    async def answer(self, question: Question, reply: Callable[[JsonValue], Receipt]) -> str:
        """Get an answer to `question` and pass it to `reply`, again if it is not accepted.

        Returns:
            A line that says what was answered; empty if the person at the prompt knows.

        Raises:
            NobodyAnswers: the prompt was closed.
        """
        is_approval = _is_approval(question)
        if self._desk is None or (is_approval and self._approve is not None):
            return await super().answer(question, reply)
        self._desk.show(_heading(question))
        form = _Approval(self._desk, question) if is_approval else _Form(self._desk, question.schema)
        while True:
            receipt = reply(await form.ask())
            if receipt.status != "invalid":
                return "" if receipt.status == "accepted" else f"the answer came too late ({receipt.status})"
            form.reject(receipt.reasons)


class _Form:
    """Asks for the fields of a schema, and again for those that were not right."""

    def __init__(self, desk: Desk, schema: Mapping[str, Any]) -> None:
        self._desk = desk
        self._fields = fields_of(schema)
        self._values: dict[tuple[str, ...], Any] = {}
        self._texts: dict[tuple[str, ...], str] = {}
        self._wrong: set[tuple[str, ...]] = {field.path for field in self._fields}

    async def ask(self) -> JsonValue:
        for field in self._fields:
            if field.path in self._wrong:
                await self._ask(field)
        self._wrong = set()
        return assemble(self._fields, self._values)

    def reject(self, reasons: Sequence[str]) -> None:
        for reason in reasons:
            self._desk.show(f"  that cannot be used: {visible(reason)}")
        for field in self._fields:
            if any(_is_about(reason, field) for reason in reasons):
                self._wrong.add(field.path)
        if not self._wrong:  # it is about the whole, or about something that was not asked for
            self._wrong = {field.path for field in self._fields}

    async def _ask(self, field: Field) -> None:
        name = visible(field.name)
        self._desk.show(f"  {name}: {field.described()}" if name else f"  {field.described()}")
        prompt = f"  {name}> " if name else "> "
        choices = [text_of_value(choice) for choice in field.choices]
        while True:
            line = await self._desk.ask(prompt, self._texts.get(field.path, ""), choices=choices)
            try:
                self._values[field.path] = field.parse(line)
            except FieldError as error:
                self._desk.show(f"  that cannot be used: {visible(str(error))}")
                continue
            self._texts[field.path] = line
            return


class _Approval:
    """Asks whether a call may run, and lets its arguments be edited before."""

    def __init__(self, desk: Desk, question: Question) -> None:
        self._desk = desk
        self._question = question
        call = question.call
        self._arguments: dict[str, JsonValue] = {} if call is None else dict(call.arguments)
        self._edited = False

    async def ask(self) -> JsonValue:
        while True:
            line = (await self._desk.ask(_APPROVE)).strip()
            word, _, rest = line.partition(" ")
            word = word.lower()
            if word in ("y", "yes"):
                return {"approve": True, "arguments": self._arguments if self._edited else None, "reason": ""}
            if word in ("n", "no", ""):
                return {"approve": False, "reason": rest.strip() or "denied at the prompt"}
            if word in ("e", "edit"):
                await self._edit()
            else:
                self._desk.show("  answer y, n (a reason may follow) or e")

    def reject(self, reasons: Sequence[str]) -> None:
        self._desk.show(f"  that cannot be used: {visible('; '.join(reasons))}")

    async def _edit(self) -> None:
        call = self._question.call
        if call is None or not self._arguments:
            self._desk.show("  the call has no arguments")
            return
        for name, value in self._arguments.items():
            self._arguments[name] = await self._argument(name, value)
        self._edited = self._arguments != dict(call.arguments)
        self._desk.show(f"  {call_text(call.replace(arguments=self._arguments), 400, self._question.path)}")

    async def _argument(self, name: str, value: JsonValue) -> JsonValue:
        """The new value of an argument: a text stays a text, everything else is written as JSON."""
        is_text = isinstance(value, str)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        while True:
            line = await self._desk.ask(f"  {visible(name)}> ", text)
            if is_text:
                return line
            try:
                changed: JsonValue = json.loads(line)
            except (ValueError, RecursionError) as error:
                self._desk.show(f"  that is no JSON ({error}); it was {visible(text)}")
                continue
            return changed


def _is_approval(question: Question) -> bool:
    properties = question.schema.get("properties")
    return question.kind == "approval" and isinstance(properties, dict) and "approve" in properties


def _is_about(reason: str, field: Field) -> bool:
    where = reason.partition(":")[0]
    return bool(field.path) and (where == field.name or where.startswith(f"{field.name}."))


def _heading(question: Question) -> str:
    tool = "" if question.call is None or question.kind == "question" else question.call.name
    who = f" ({visible(question.asked_by)})" if question.asked_by not in ("", tool) else ""
    lines = [f"? {visible(question.prompt)}{who}"]
    if question.call is not None and question.kind != "question":
        lines.append(f"  {call_text(question.call, 400, question.path)}")
    return "\n".join(lines)
