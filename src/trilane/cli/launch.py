"""From the options of `trilane run` to a finished run and its exit status."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from trilane.config import Limits
from trilane.errors import RunLimitError

from .answers import Answers, TerminalLines, can_prompt
from .choice import ModelChoice, choose_model
from .console import UsageError, logging_to, report_error, say
from .driver import Outcome, drive
from .options import blocked_names
from .rendering import JsonRenderer, PlainRenderer, Renderer
from .text import visible

if TYPE_CHECKING:
    from trilane.agent import Agent

__all__ = ["Launch", "OwnStdout", "launch", "make_agent", "set_root"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The options of `trilane run`, as they were given."""

    request: str
    model: str = ""
    session: str = ""
    go_on: bool = False
    resume: bool = False
    store: str = ""
    root: str = ""
    plugin_options: tuple[str, ...] = ()
    max_turns: int | None = None
    approve: bool | None = None
    json_lines: bool = False
    verbose: bool = False
    stats: bool = False
    trace_plugins: bool = False
    debug: bool = False


def launch(options: Launch) -> int:
    """Work the request and return the exit status.

    Raises:
        BrokenPipeError: nobody reads the output any more.
        KeyboardInterrupt: Ctrl-C before the run had begun.
    """
    try:
        if options.session and options.go_on:
            raise UsageError("--session and --continue exclude each other: say which session, or take the last")
        text = "" if options.resume else _request_text(options.request)
        blocked = blocked_names(options.plugin_options)
        set_root(options.root)
        encoding = "utf-8" if options.json_lines else sys.stdout.encoding
        with (
            OwnStdout(separate=options.json_lines or not sys.stdout.isatty(), encoding=encoding) as out,
            logging_to(say, debug=options.debug),
        ):
            return _work(text, blocked, options, out)
    except BrokenPipeError:
        raise
    except Exception as error:
        return report_error(error, debug=options.debug)


def _work(text: str, blocked: tuple[str, ...], options: Launch, out: IO[str]) -> int:
    from trilane._loop import run_loop

    from .sessions_run import is_kept, keep_session, leave_session

    agent, choice = make_agent(options.model, blocked)
    renderer = _renderer(out, options)
    if options.verbose or not choice.is_default or sys.stderr.isatty():
        say(f"model {choice.model}: {choice.reason}")
    answers = Answers(approve=options.approve, lines=TerminalLines() if can_prompt() else None)
    run_options: dict[str, Any] = {}
    if not answers.attended:
        run_options["answer"] = answers.unattended
    if options.trace_plugins:
        run_options["trace_plugins"] = True
    if options.max_turns is not None:
        run_options["limits"] = Limits(turns=options.max_turns)

    async def work() -> Outcome:
        try:
            session = await keep_session(agent, options)
            if options.resume:
                return await drive(lambda: agent.resume(session, **run_options), renderer, answers)
            return await drive(lambda: agent.stream(text, session=session or None, **run_options), renderer, answers)
        finally:
            await agent.aclose()
            leave_session(agent)

    outcome = run_loop(work())
    status = outcome.exit_status
    if outcome.is_put_aside and outcome.result is not None and is_kept(agent):
        say(f"go on with: trilane sessions resume {visible(outcome.result.session_id)}")
    if status == 1 and outcome.error is not None:
        if isinstance(outcome.error, RunLimitError) and options.max_turns is not None:
            outcome.error.add_note("Here --max-turns sets Limits.turns; trilane sessions resume goes on.")
        status = report_error(outcome.error, debug=options.debug)
    if options.trace_plugins and outcome.result is not None:
        from .trace import trace_lines

        say("\n".join(trace_lines(outcome.result)))
    if options.stats and outcome.result is not None:
        from .stats import stats_lines

        say("\n".join(stats_lines(outcome.result)))
    return status


def _request_text(request: str) -> str:
    """The request, from standard input if it is `-`."""
    if request == "-":
        if sys.stdin is None:
            raise UsageError("the request should come from standard input, but that is closed")
        request = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not request.strip():
        raise UsageError('the request is empty; say what to do, for example: trilane run "Which files are there?"')
    return request


def set_root(root: str) -> None:
    """Say to file tools which folder they may see.

    Raises:
        UsageError: there is no such folder.
    """
    if not root:
        return
    if not os.path.isdir(root):
        raise UsageError(f"--root {root}: there is no such folder")
    os.environ["TRILANE_FILES_ROOT"] = os.path.abspath(root)


def make_agent(model: str, blocked: tuple[str, ...]) -> tuple[Agent[None, str], ModelChoice]:
    """The agent with every installed plugin that is not blocked, and the model it was given."""
    from trilane.agent import Agent
    from trilane.plugins import discover, installed

    names = {info.name for info in discover()} - set(blocked)
    choice = choose_model(model, os.environ, names)
    return Agent(choice.model, plugins=installed(), disabled_plugins=blocked, replayable=True), choice


def _renderer(out: IO[str], options: Launch) -> Renderer:
    if options.json_lines:
        return JsonRenderer(out)
    if not out.isatty():
        return PlainRenderer(out, verbose=options.verbose)
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return PlainRenderer(out, verbose=options.verbose, live=True)
    from rich.console import Console

    from .terminal import TerminalRenderer

    return TerminalRenderer(Console(file=out, highlight=False), verbose=options.verbose)


class OwnStdout:
    """Context manager that gives stdout to the renderer alone: whatever else prints, prints to stderr meanwhile.

    A plugin's stray `print`, or a program that a tool starts, must not end up among the JSON lines or in the answer.
    """

    def __init__(self, *, separate: bool, encoding: str) -> None:
        self._separate = separate
        self._encoding = encoding
        self._saved = -1
        self._out: IO[str] = sys.stdout

    def __enter__(self) -> IO[str]:
        if self._separate:
            sys.stdout.flush()
            self._saved = os.dup(1)
            os.dup2(2, 1)
            self._out = os.fdopen(os.dup(self._saved), "w", encoding=self._encoding, errors="replace", newline="\n")
        return self._out

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._separate:
            return
        try:
            sys.stdout.flush()
        finally:
            os.dup2(self._saved, 1)
            os.close(self._saved)
            try:
                self._out.close()
            except BrokenPipeError:
                if kind is None:
                    raise
