"""The conversation of a chat: one request after the other on one session, whatever becomes of each.

Where lines come from and where things are shown is the front's affair, `chat_front.py`; slash commands are in
`chat_commands.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from trilane.errors import AgentProtocolError, RunCancelledError, SessionError

from .chat_answers import ChatAnswers
from .chat_commands import COMMANDS, find_command
from .chat_front import ChatFront, ChatLeft
from .driver import Outcome, drive, summary
from .text import error_paragraph, one_line

if TYPE_CHECKING:
    from trilane import RunStream
    from trilane.agent import Agent

    from .choice import ModelChoice

__all__ = ["Chat"]

#: The exit status that says so.
_CTRL_C = 130


class Chat:
    """A chat with `agent` at `front`.

    Attributes:
        agent: The agent.
        front: Whoever uses the chat.
        choice: The model, and why it was taken.
        session: The session that requests go to.
        exit_status: 1 after a line that failed where nobody sits at the front, otherwise 0.
        is_over: True once somebody said that the chat should end.
        used: The sessions that runs were made on.
    """

    def __init__(
        self,
        agent: Agent[None, str],
        front: ChatFront,
        choice: ModelChoice,
        *,
        session: str,
        options: dict[str, Any] | None = None,
        approve: bool | None = None,
        debug: bool = False,
    ) -> None:
        self.agent = agent
        self.front = front
        self.choice = choice
        self.session = session
        self.exit_status = 0
        self.is_over = False
        self.used: list[str] = []
        self._options = options or {}
        self._debug = debug
        self._answers = ChatAnswers(front if front.can_ask else None, approve=approve)
        self._run: RunStream[Any] | None = None
        self._said: list[str] = []
        self._refused: list[str] = []  # said too late

    async def work(self) -> int:
        """Take requests until there are no more; returns the exit status."""
        try:
            while not self.is_over:
                await self._take(await self.front.request())
        except ChatLeft as left:
            return left.exit_status or self.exit_status
        return self.exit_status

    async def _take(self, text: str) -> None:
        if text.startswith("/"):
            await self._command(text)
        elif text.strip():
            await self.run(lambda options: self.agent.stream(text, **options))

    # ---- runs --------------------------------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Take up the session's last run where it was left."""
        session = self.session
        options = {key: value for key, value in self._run_options().items() if key != "session"}
        await self.run(lambda _: self.agent.resume(session, **options))

    async def compact(self) -> None:
        """Shorten what models see of the session, and say what came of it."""
        session = self.session
        options = {key: value for key, value in self._run_options().items() if key != "session"}
        await self.run(lambda _: self.agent.stream_compaction(session, **options), stopped="nothing was changed")

    async def run(
        self, start: Callable[[dict[str, Any]], RunStream[Any]], *, stopped: str = "/resume takes it up again"
    ) -> None:
        """Work one run to its end. Whatever it raises is told and does not end the chat; `stopped` says what then."""
        options = self._run_options()
        self._said, self._refused = [], []
        outcome = await drive(
            lambda: start(options),
            self.front.renderer(),
            self._answers,
            attend=self._attend,
            make_interrupts=self.front.make_interrupts,
        )
        if outcome.result is not None and self.session not in self.used:
            self.used.append(self.session)
        if outcome.is_put_aside:  # how to go on is told when the terminal is given back, if it is still there
            raise ChatLeft(outcome.exit_status)
        self._tell(outcome, stopped)
        self._give_back(outcome)
        if outcome.exit_status == _CTRL_C and not self.front.is_interactive:
            raise ChatLeft(outcome.exit_status)
        if outcome.exit_status and not self.front.is_interactive:
            self.exit_status = 1

    def _run_options(self) -> dict[str, Any]:
        options = {**self._options, "session": self.session, "model": self.choice.model}
        if not self.front.can_ask:
            options["answer"] = self._answers.unattended
        return options

    def _attend(self, run: RunStream[Any]) -> AbstractContextManager[object]:
        self._run = run
        return self.front.attend(run, self._hear)

    def _tell(self, outcome: Outcome, stopped: str) -> None:
        """How a run ended, if not well."""
        error = outcome.error
        if self._debug and error is not None:
            import traceback

            self.front.note("".join(traceback.format_exception(error)).rstrip())
        if isinstance(error, RunCancelledError):
            if outcome.exit_status == 1:  # stopped by a command or by a plugin; after a signal this was told before
                self.front.note(summary(error, outcome.tally))
            self.front.note(stopped)
        elif isinstance(error, SessionError):
            self.front.error(error_paragraph(error))
        elif error is not None:
            kept = "what was said before it is kept; say it again, or /resume" if outcome.result is not None else ""
            self.front.error(f"{error_paragraph(error)}{f' ({kept})' if kept else ''}")
        if outcome.result is not None and outcome.result.store_error is not None:
            self.front.error(error_paragraph(outcome.result.store_error))

    def _give_back(self, outcome: Outcome) -> None:
        """What was said too late is put back; what was accepted and not heard, the next run on the session hears."""
        heard = [] if outcome.result is None else [m.text for m in outcome.result.new_messages if m.kind == "user"]
        for text in self._said:
            said = text.removeprefix(">").strip()
            if said in heard:
                heard.remove(said)
            else:
                self.front.note(f"the next run hears: {one_line(said, 160)}")
        refused, self._run = self._refused, None
        self._said, self._refused = [], []
        if refused:
            self.front.give_back("\n".join(refused))

    # ---- what is said while a run is on ------------------------------------------------------------------------------

    def _hear(self, text: str) -> None:
        """Something was said while the run works: a command, a follow-up (`>`), or steering."""
        if text.startswith("/"):
            self._command_meanwhile(text)
            return
        assert self._run is not None
        said = text.removeprefix(">").strip()
        if not said:
            return
        try:
            (self._run.follow_up if text.startswith(">") else self._run.steer)(said)
        except AgentProtocolError:  # it has ended a moment ago; what was said goes back to the prompt
            self._refused.append(text)
        else:
            self._said.append(text)

    def stop(self) -> bool:
        """Stop the run at its next boundary; False if none is on."""
        if self._run is None:
            return False
        self._run.stop("stopped by /stop")
        return True

    # ---- commands ----------------------------------------------------------------------------------------------------

    async def _command(self, text: str) -> None:
        try:
            command, argument = find_command(text)
            work = COMMANDS[command].run(self, argument)
            if work is not None:
                await work
        except ChatLeft:
            raise
        except Exception as error:
            self._failed(error)

    def _command_meanwhile(self, text: str) -> None:
        try:
            command, argument = find_command(text)
            if not COMMANDS[command].meanwhile:
                self.front.note(f"/{command} has to wait until the run has ended; /stop stops it")
                return
            COMMANDS[command].run(self, argument)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A command failed."""
        self.front.error(error_paragraph(error))
        if not self.front.is_interactive:
            self.exit_status = 1
