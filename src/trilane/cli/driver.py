"""Driving one run from the command line: its events to a renderer, its questions to somebody, signals to its end.

What a run looks like is in `rendering.py` and `terminal.py`; what the options mean is in `run.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from trilane.errors import AgentProtocolError, RunCancelledError, TrilaneError
from trilane.events import Question, ReplyRequested

from .answers import Answers, NobodyAnswers
from .interrupts import Interrupts
from .rendering import Renderer
from .tally import Tally

if TYPE_CHECKING:
    from trilane import RunStream
    from trilane.result import RunResult

_CTRL_C = 130

__all__ = ["Attend", "MakeInterrupts", "Outcome", "drive", "summary", "unless_gone"]

Attend: TypeAlias = "Callable[[RunStream[Any]], AbstractContextManager[object]]"
MakeInterrupts: TypeAlias = "Callable[[RunStream[Any], Renderer, Tally], Interrupts]"


@dataclass(slots=True)
class Outcome:
    """How a run ended, for the exit status.

    Attributes:
        result: What the run returned, if it got as far as having a result.
        error: What it raised.
        exit_status: 0, 1, or 128 and the number of the signal that ended it.
        reason: Why it was ended by a signal; empty if it was not.
        tally: What was done.
    """

    result: RunResult[Any] | None = None
    error: BaseException | None = None
    exit_status: int = 0
    reason: str = ""
    tally: Tally = field(default_factory=Tally)

    @property
    def is_put_aside(self) -> bool:
        """True if its process was terminated, so that it goes on when it is resumed."""
        return self.exit_status not in (0, 1, _CTRL_C)


async def drive(
    start: Callable[[], RunStream[Any]],
    renderer: Renderer,
    answers: Answers,
    *,
    attend: Attend = nullcontext,
    make_interrupts: MakeInterrupts | None = None,
) -> Outcome:
    """Work the run that `start` makes to its end.

    Args:
        start: Makes the run's stream.
        renderer: Is shown every event.
        answers: Answers the run's questions.
        attend: Makes a context that is entered while the run is on; a chat steers from there.
        make_interrupts: Makes what signals do while the run is on.

    Raises:
        BrokenPipeError: nobody reads the output any more; the run has been stopped.
    """
    outcome = Outcome()
    run: RunStream[Any] | None = None
    try:
        async with start() as run:
            with (make_interrupts or _interrupts)(run, renderer, outcome.tally) as interrupts, attend(run):
                try:
                    async for event in run:
                        outcome.tally.add(event)
                        renderer.show(event)
                        if isinstance(event, ReplyRequested) and answers.attended:
                            await _answer(run, event.question, renderer, answers, interrupts)
                        elif isinstance(event, ReplyRequested):
                            renderer.note(answers.remark(event.question))
                except RunCancelledError as error:
                    outcome.error = error
                except OSError:  # the terminal is gone, and the signal that says so has come
                    if not interrupts.puts_aside:
                        raise
                    await run.suspend()
                    await interrupts.interrupted.wait()
                if interrupts.exit_status:
                    await run.close()
                    outcome.exit_status, outcome.reason = interrupts.exit_status, interrupts.reason
            outcome.result = run.result
    except BrokenPipeError:
        raise
    except SystemExit as error:
        outcome.result = _result_of(run)
        if outcome.result is None or outcome.result.error is not error:
            raise
        # Not ours: a tool or a plugin called `sys.exit`. That is its failure, and no reason to leave with its status.
        outcome.error = TrilaneError(
            f"a tool or plugin tried to end the program (SystemExit: {error}); the run has failed. "
            "Let it raise ToolError instead."
        )
    except Exception as error:
        outcome.error = error
        outcome.result = getattr(error, "result", None) or _result_of(run)
    finally:
        unless_gone(renderer.close)
    if outcome.exit_status:
        unless_gone(lambda: renderer.note(summary(outcome.error, outcome.tally, outcome.reason)))
    elif outcome.error is not None:
        outcome.exit_status = 1
    return outcome


def _result_of(run: RunStream[Any] | None) -> RunResult[Any] | None:
    """What a run that failed had reached; None if it had not even begun."""
    if run is None:
        return None
    try:
        return run.result
    except AgentProtocolError:
        return None


def unless_gone(write: Callable[[], None]) -> None:
    """Write to a terminal that may be gone."""
    try:
        write()
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _interrupts(run: RunStream[Any], renderer: Renderer, tally: Tally) -> Interrupts:
    def first(text: str) -> None:
        unless_gone(lambda: renderer.note(text))

    def give_up() -> None:
        renderer.close()
        renderer.note(summary(None, tally))

    return Interrupts(run, on_first=first, on_give_up=give_up)


def summary(error: BaseException | None, tally: Tally, reason: str = "") -> str:
    """Why a run was stopped, and below it what was done and what was not."""
    if not reason:
        reason = str(error) if isinstance(error, RunCancelledError) and str(error) else "interrupted by Ctrl-C"
    return "\n".join([f"{reason[0].upper()}{reason[1:]}.", *tally.lines()])


async def _answer(
    run: RunStream[Any], question: Question, renderer: Renderer, answers: Answers, interrupts: Interrupts
) -> None:
    """Hold the event while somebody answers: nothing else may write on the terminal, and the tools go on meanwhile."""
    renderer.pause()
    try:
        asking = asyncio.ensure_future(answers.answer(question, lambda payload: run.reply(question.id, payload)))
        stopped = asyncio.ensure_future(interrupts.interrupted.wait())
        try:
            await asyncio.wait({asking, stopped}, timeout=_seconds_left(question), return_when=asyncio.FIRST_COMPLETED)
            late = "" if stopped.done() else "nobody answered in time"
            note = asking.result() if asking.done() else late
        except NobodyAnswers as error:
            note = str(error)
            run.stop(note)
        finally:
            for task in (asking, stopped):
                task.cancel()
    finally:
        renderer.resume()
    if note:
        renderer.note(note)


def _seconds_left(question: Question) -> float | None:
    if question.expires is None:
        return None
    return max((question.expires - datetime.now(UTC)).total_seconds(), 0.0)
