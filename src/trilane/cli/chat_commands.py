"""What can be typed in a chat beginning with a slash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .chat_sessions import known_sessions, session_lines, where_it_stands
from .choice import ModelChoice
from .console import UsageError
from .sessions_store import is_id
from .text import columns, one_line, visible

if TYPE_CHECKING:
    from .chat_talk import Chat

__all__ = ["COMMANDS", "Command", "completions", "find_command"]


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command.

    Attributes:
        arguments: What may follow its name.
        summary: What it does, one line.
        run: Does it, perhaps in a coroutine that it returns.
        meanwhile: True if it may be given while a run is on.
    """

    arguments: str
    summary: str
    run: Callable[[Chat, str], Awaitable[None] | None]
    meanwhile: bool = True


def find_command(text: str) -> tuple[str, str]:
    """The name of the command in a line, and what follows it.

    Raises:
        UsageError: there is no such command; the text names the nearest.
    """
    name, _, argument = text[1:].strip().partition(" ")
    if name in COMMANDS:
        return name, argument.strip()
    from trilane.plugins.checks import nearest

    hint = nearest(name, list(COMMANDS)).replace("'", "").replace("mean ", "mean /")
    raise UsageError(f"there is no command /{one_line(name, 40)}{hint} (a space before the slash makes it a request)")


def completions(chat: Chat, line: str) -> list[str]:
    """What the last word of `line` can become."""
    name, space, argument = line.partition(" ")
    if not line.startswith("/"):
        return []
    if not space:
        return [f"/{command}" for command in COMMANDS if f"/{command}".startswith(line)]
    if name == "/model":
        return [model for model in _models(chat) if model.startswith(argument)]
    return []


def _models(chat: Chat) -> list[str]:
    names = []
    for provider in chat.agent.plugins.model_providers():
        names += [provider.name, *[f"{provider.name}:{model}" for model in provider.models]]
    return names


# ---- the commands ----------------------------------------------------------------------------------------------------


def _help(chat: Chat, argument: str) -> None:
    rows = [[f"/{name} {command.arguments}".rstrip(), command.summary] for name, command in COMMANDS.items()]
    lines = ["  " + line for line in columns(rows)]
    chat.front.tell("\n".join([*lines, "", *_KEYS]))


_KEYS = (
    "What is typed while a run works steers it: it is heard at the next boundary.",
    "A line that begins with > is heard after the answer. Several lines: paste them,",
    "press Alt-Enter, or end a line with a backslash. Ctrl-C stops the run at the next",
    "boundary, twice at once; at an empty prompt it leaves, as Ctrl-D does.",
)


def _model(chat: Chat, argument: str) -> None:
    if argument:
        from trilane.plugins import resolve_model

        resolve_model(argument, chat.agent.plugins)
        chat.choice = ModelChoice(argument, "/model says so")
        chat.front.tell(f"model {visible(argument)}, from the next request on")
        return
    rows = [["PROVIDER", "MODELS", "DESCRIPTION"]]
    rows += [
        [provider.name, one_line(", ".join(provider.models), 60) or "-", one_line(provider.description, 70)]
        for provider in chat.agent.plugins.model_providers()
    ]
    lines = [f"model {chat.choice.model}: {chat.choice.reason}", *(columns(rows) if len(rows) > 1 else [])]
    chat.front.tell("\n".join(lines))


async def _tools(chat: Chat, argument: str) -> None:
    from .chat_tools import offered_tools

    tools = await offered_tools(chat.agent)
    rows = [["TOOL", "EFFECT", "FROM", "DESCRIPTION"]]
    for tool, origin in tools:
        effect = f"{tool.effect}, asks" if tool.approval else tool.effect
        rows.append([tool.name, effect, origin, one_line(tool.description, 60)])
    lines = columns([[visible(cell) for cell in row] for row in rows])
    chat.front.tell("\n".join(lines) if tools else "no tools: no plugin offers any")


def _plugins(chat: Chat, argument: str) -> None:
    from .registry import LiveRegistry, list_lines

    chat.front.tell("\n".join(list_lines(LiveRegistry(chat.agent.plugins))))


async def _sessions(chat: Chat, argument: str) -> None:
    store = chat.agent.store
    if not argument:
        chat.front.tell("\n".join(session_lines(await known_sessions(store), chat.session)))
        return
    state = await where_it_stands(store, argument) if is_id(argument) else None
    if state is None or state.is_new:
        raise UsageError(f"there is no session {one_line(argument, 60)!r}; /sessions lists those there are")
    chat.session = argument
    chat.front.tell(f"session {visible(argument)}: {state.text}")


def _stop(chat: Chat, argument: str) -> None:
    chat.front.note("stopping at the next boundary" if chat.stop() else "no run is on")


async def _resume(chat: Chat, argument: str) -> None:
    state = await where_it_stands(chat.agent.store, chat.session)
    if not state.is_cut_off:
        raise UsageError(
            f"there is nothing to resume: {'nothing was said yet' if state.is_new else 'the last run has completed'}"
        )
    await chat.resume()


async def _compact(chat: Chat, argument: str) -> None:
    if argument not in ("", "undo"):
        raise UsageError(f"/compact {one_line(argument, 40)}: it takes nothing, or undo")
    if (await where_it_stands(chat.agent.store, chat.session)).is_new:
        raise UsageError("there is nothing to compact: nothing was said yet")
    if not argument:
        await chat.compact()
    elif await chat.agent.undo_compaction(chat.session):
        chat.front.tell("the model sees again what it saw before the last compaction")
    else:
        chat.front.tell("no compaction is left to take back")


def _quit(chat: Chat, argument: str) -> None:
    chat.is_over = True
    chat.stop()


COMMANDS: dict[str, Command] = {
    "model": Command("[NAME]", "which model answers, and which there are; NAME takes another", _model),
    "tools": Command("", "the tools that the plugins offer", _tools, meanwhile=False),
    "plugins": Command("", "the plugins that take part", _plugins),
    "sessions": Command("[ID]", "the stored sessions; ID goes on with another", _sessions, meanwhile=False),
    "resume": Command("", "take up a run that was stopped or cut off", _resume, meanwhile=False),
    "compact": Command(
        "[undo]", "shorten what the model sees of this session; undo takes that back", _compact, meanwhile=False
    ),
    "stop": Command("", "stop the run at its next boundary", _stop),
    "help": Command("", "this list", _help),
    "quit": Command("", "leave the chat", _quit),
}
