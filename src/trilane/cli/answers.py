"""Answering a run's questions: at the prompt of a terminal, or by `--yes` and `--no`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .text import call_text, visible

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.events import Question, Receipt

__all__ = ["Answers", "NobodyAnswers", "TerminalLines", "approval", "can_prompt", "nobody"]

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no", ""})


class NobodyAnswers(Exception):
    """The terminal was closed, or there is none."""


def can_prompt() -> bool:
    """True if somebody sits at a terminal: stdin to type on, stderr to read the question from."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


class TerminalLines:
    """Lines from the terminal without blocking the event loop, and so that waiting for one can be cancelled."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._rest = b""

    async def read(self) -> str:
        """The next line, without its end.

        Raises:
            NobodyAnswers: the terminal was closed (Ctrl-D).
        """
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        while b"\n" not in self._rest:
            ready.clear()
            loop.add_reader(self._fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self._fd)
            try:
                got = os.read(self._fd, 4096)
            except OSError:
                got = b""
            if not got:
                raise NobodyAnswers("the terminal was closed")
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode("utf-8", "replace").rstrip("\r")


class Answers:
    """Answers questions; `approve` is what `--yes` (True) and `--no` (False) say, None asks at the prompt."""

    def __init__(
        self,
        *,
        approve: bool | None = None,
        lines: TerminalLines | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._approve = approve
        self._lines = lines
        self._show = show or _prompt

    async def answer(self, question: Question, reply: Callable[[JsonValue], Receipt]) -> str:
        """Get an answer to `question` and pass it to `reply`, again if it is not accepted.

        Returns:
            A line that says what was answered; empty if the person at the prompt knows.

        Raises:
            NobodyAnswers: there is nobody to ask.
        """
        if question.kind == "approval" and self._approve is not None:
            given = "--yes" if self._approve else "--no"
            reply(approval(self._approve, f"answered by {given}"))
            what = question.call.name if question.call is not None else question.prompt
            return f"{'approved' if self._approve else 'denied'} by {given}: {visible(what)}"
        if self._lines is None:
            raise NobodyAnswers(nobody(question))
        self._show(_heading(question))
        while True:
            payload = await self._ask(question, self._lines)
            receipt = reply(payload)
            if receipt.status != "invalid":
                return "" if receipt.status == "accepted" else f"the answer came too late ({receipt.status})"
            self._show(f"that cannot be used: {visible('; '.join(receipt.reasons))}\n")

    async def _ask(self, question: Question, lines: TerminalLines) -> JsonValue:
        while True:
            self._show("allow it? [y/N] " if question.kind == "approval" else "> ")
            line = (await lines.read()).strip()
            if question.kind == "approval":
                word = line.lower()
                if word in _YES or word in _NO:
                    return approval(word in _YES, "" if word in _YES else "denied at the prompt")
                self._show("answer y or n\n")
                continue
            problem, value = _value(line, question.schema)
            if not problem:
                return value
            self._show(f"{problem}\n")


def approval(approve: bool, reason: str) -> JsonValue:
    """The reply to an approval question."""
    return {"approve": approve, "reason": reason}


def nobody(question: Question) -> str:
    """Why a question cannot be answered and what to do."""
    if question.kind == "approval":
        return "nobody can answer: this is not a terminal; run again with --yes or --no"
    return "nobody can answer: this is not a terminal"


def _prompt(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # the terminal is gone; reading the answer will say so
        pass


def _heading(question: Question) -> str:
    who = f" ({question.asked_by})" if question.asked_by else ""
    text = f"? {visible(question.prompt)}{who}\n"
    if question.call is not None and question.kind != "question":
        text += f"  {call_text(question.call, 200, question.path)}\n"
    options = question.schema.get("enum")
    if isinstance(options, list):
        text += f"  one of: {', '.join(map(str, options))}\n"
    return text


def _value(line: str, schema: Mapping[str, JsonValue]) -> tuple[str, JsonValue]:
    """What a typed line means under a JSON Schema: what is wrong with it, and the value."""
    options = schema.get("enum")
    if isinstance(options, list):
        for option in options:
            if str(option) == line:
                return "", option
        return f"answer one of: {', '.join(map(str, options))}", None
    kind = schema.get("type")
    if kind == "boolean":
        word = line.lower()
        if word in _YES or (word in _NO and word):
            return "", word in _YES
        return "answer y or n", None
    if kind in ("string", None) and not ({"anyOf", "properties", "$ref"} & set(schema)):
        return "", line
    try:
        return "", json.loads(line)
    except ValueError:
        names = {"integer": "a whole number", "number": "a number"}
        return f"answer with {names.get(str(kind), 'JSON')}", None
