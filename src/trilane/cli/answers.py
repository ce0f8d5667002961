"""Answering a run's questions: at the prompt of a terminal, or by `--yes` and `--no`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trilane.errors import NoAnswererError

from .text import call_text, one_line, visible

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.events import Question, Receipt

__all__ = ["Answers", "NobodyAnswers", "TerminalLines", "can_prompt"]

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no", ""})  # no answer is no


class NobodyAnswers(NoAnswererError):
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
    """Answers questions; `approve` is what `--yes` (True) and `--no` (False) say, None asks at the prompt.

    Without `lines` nobody is there: the run then gets `unattended` as its `answer=` function.
    """

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

    @property
    def attended(self) -> bool:
        """True if somebody can be asked."""
        return self._lines is not None

    def remark(self, question: Question) -> str:
        """What is told about a question that nobody is asked about."""
        what = call_text(question.call, 100, question.path) if question.call is not None else question.prompt
        if not _is_yes_or_no(question) or self._approve is None:
            return f"{_nobody(question)}: {one_line(question.prompt, 160)}"
        return f"{'approved' if self._approve else 'denied'} by {self._option}: {visible(what)}"

    async def unattended(self, question: Question) -> JsonValue:
        """The answer without asking anybody.

        Raises:
            NobodyAnswers: it is not for `--yes` and `--no` to answer.
        """
        if not _is_yes_or_no(question):
            raise NobodyAnswers(_nobody(question))
        if self._approve is None:
            return _approval(False, _nobody(question))
        return _approval(self._approve, f"answered by {self._option}")

    async def answer(self, question: Question, reply: Callable[[JsonValue], Receipt]) -> str:
        """Get an answer to `question` and pass it to `reply`, again if it is not accepted.

        Returns:
            A line that says what was answered; empty if the person at the prompt knows.

        Raises:
            NobodyAnswers: the terminal was closed.
        """
        if _is_yes_or_no(question) and self._approve is not None:
            reply(await self.unattended(question))
            return self.remark(question)
        if self._lines is None:
            raise NobodyAnswers(_nobody(question))
        self._show(_heading(question))
        while True:
            receipt = reply(await self._ask(question, self._lines))
            if receipt.status != "invalid":
                return "" if receipt.status == "accepted" else f"the answer came too late ({receipt.status})"
            self._show(f"that cannot be used: {visible('; '.join(receipt.reasons))}\n")

    @property
    def _option(self) -> str:
        return "--yes" if self._approve else "--no"

    async def _ask(self, question: Question, lines: TerminalLines) -> JsonValue:
        yes_or_no = _is_yes_or_no(question)
        while True:
            self._show("allow it? [y/N] " if yes_or_no else "> ")
            line = (await lines.read()).strip()
            if not yes_or_no:
                return _value(line, question.schema)
            word = line.lower()
            if word in _YES or word in _NO:
                return _approval(word in _YES, "" if word in _YES else "denied at the prompt")
            self._show("answer y or n\n")


def _is_yes_or_no(question: Question) -> bool:
    """True for an approval; a plugin may also ask for something else before a call."""
    properties = question.schema.get("properties")
    return question.kind == "approval" and isinstance(properties, dict) and "approve" in properties


def _approval(approve: bool, reason: str) -> JsonValue:
    """The reply to an approval question."""
    return {"approve": approve, "reason": reason}


def _nobody(question: Question) -> str:
    """Why a question cannot be answered and what to do."""
    if question.kind == "approval":
        return "nobody can answer, this is not a terminal; run it again with --yes or --no"
    return "nobody can answer, this is not a terminal"


def _prompt(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # the terminal is gone; reading the answer will say so
        pass


def _heading(question: Question) -> str:
    tool = "" if question.call is None or question.kind == "question" else question.call.name
    who = f" ({question.asked_by})" if question.asked_by not in ("", tool) else ""
    text = f"? {visible(question.prompt)}{who}\n"
    if question.call is not None and question.kind != "question":
        text += f"  {call_text(question.call, 200, question.path)}\n"
    options = question.schema.get("enum")
    if isinstance(options, list):
        text += f"  one of: {', '.join(map(str, options))}\n"
    return text


def _value(line: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """What a typed line means under a JSON Schema; whether it fits is for whoever asked to say."""
    options = schema.get("enum")
    if isinstance(options, list):
        return next((option for option in options if str(option) == line), line)
    kind = schema.get("type")
    if kind == "boolean" and line.lower() in _YES | _NO:
        return line.lower() in _YES
    if kind == "string":
        return line
    try:
        value: JsonValue = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return value
