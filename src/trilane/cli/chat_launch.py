"""From the options of `trilane chat` to a chat that was left, and its exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from trilane.config import Limits
from trilane.messages import new_id

from .chat_commands import completions
from .chat_front import ChatFront
from .chat_plain import ChatPlain
from .chat_sessions import where_it_stands
from .chat_talk import Chat
from .console import UsageError, logging_to, report_error, say
from .launch import Launch, OwnStdout, make_agent, set_root
from .options import blocked_names
from .sessions_run import keep_session, leave_session
from .text import visible

if TYPE_CHECKING:
    from trilane.agent import Agent

    from .choice import ModelChoice

__all__ = ["ChatOptions", "launch_chat"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatOptions:
    """The options of `trilane chat`, as they were given."""

    model: str = ""
    session: str = ""
    go_on: bool = False
    store: str = ""
    root: str = ""
    plugin_options: tuple[str, ...] = ()
    max_turns: int | None = None
    approve: bool | None = None
    verbose: bool = False
    debug: bool = False


def launch_chat(options: ChatOptions) -> int:
    """Chat, and return the exit status.

    Raises:
        BrokenPipeError: nobody reads the output any more.
        KeyboardInterrupt: Ctrl-C where no run was on.
    """
    from trilane._loop import run_loop

    try:
        if options.session and options.go_on:
            raise UsageError("--session and --continue exclude each other: say which session, or take the last")
        blocked = blocked_names(options.plugin_options)
        set_root(options.root)
        with logging_to(say, debug=options.debug):
            agent, choice = make_agent(options.model, blocked)
            return run_loop(_work(agent, choice, options))
    except BrokenPipeError:
        raise
    except Exception as error:
        return report_error(error, debug=options.debug)


async def _work(agent: Agent[None, str], choice: ModelChoice, options: ChatOptions) -> int:
    run_options: dict[str, Any] = {}
    if options.max_turns is not None:
        run_options["limits"] = Limits(turns=options.max_turns)
    try:
        session = await _session(agent, options)
        chat: Chat | None = None

        def complete(line: str) -> list[str]:
            return [] if chat is None else completions(chat, line)

        with _front(options, complete) as front:
            chat = Chat(
                agent,
                front,
                choice,
                session=session,
                options=run_options,
                approve=options.approve,
                debug=options.debug,
            )
            await _greet(chat, options)
            status = await chat.work()
        _part(chat)
        return status
    finally:
        await agent.aclose()
        leave_session(agent)


async def _session(agent: Agent[None, str], options: ChatOptions) -> str:
    """The session to talk on, kept where `trilane run` keeps its own.

    Raises:
        UsageError: there is none to continue.
    """
    wanted = Launch(
        request="",
        session=options.session,
        go_on=options.go_on,
        store=options.store,
        plugin_options=options.plugin_options,
    )
    return await keep_session(agent, wanted) or new_id()


async def _greet(chat: Chat, options: ChatOptions) -> None:
    front = chat.front
    lines = [f"model {chat.choice.model}: {chat.choice.reason}"]
    state = await where_it_stands(chat.agent.store, chat.session)
    if options.session or options.go_on:
        lines.append(f"session {chat.session}: {state.text}")
    if front.is_interactive:
        lines.append("/help shows what can be typed; Ctrl-D leaves")
    front.note("\n".join(lines))


def _part(chat: Chat) -> None:
    """Say how to go on another time, if there is anything to go on with."""
    from trilane.stores import InMemoryStore

    if chat.front.is_interactive and chat.used and not isinstance(chat.agent.store, InMemoryStore):
        say(f"go on with: trilane chat --session {visible(chat.used[-1])}")


@contextmanager
def _front(options: ChatOptions, complete: Any) -> Iterator[ChatFront]:
    """A terminal that can be drawn on, or plain lines."""
    if _is_screen():
        from .chat_history import History, history_path
        from .chat_terminal import ChatTerminal

        history = History(history_path(os.environ))
        with ChatTerminal(history, complete=complete, verbose=options.verbose) as terminal:
            if history.problem:
                terminal.note(history.problem)
            yield terminal
        return
    separate = not sys.stdout.isatty()
    with OwnStdout(separate=separate, encoding=sys.stdout.encoding) as out:
        yield _plain(out, options)


def _plain(out: IO[str], options: ChatOptions) -> ChatFront:
    return ChatPlain(out, verbose=options.verbose)


def _is_screen() -> bool:
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stdout.isatty():
        return False
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return False
    try:
        import termios  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True
