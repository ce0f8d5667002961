"""What `trilane sessions replay` does: an agent of today's plugins, and what was found in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .console import UsageError, logging_to
from .launch import set_root
from .options import blocked_names
from .sessions_store import close_store, existing_store, find_session
from .text import count, id_text, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trilane.models import Emit, ModelRequest, ModelResponse
    from trilane.replay import Aspect, Difference, Replay, ReplayedRun

__all__ = ["replay_lines"]

WIDTH = 160


class _NoModel:
    """The model of an agent that only replays."""

    name = "replay"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        raise AssertionError("a replay asks no model")


def replay_lines(
    session: str,
    store: str,
    *,
    run: str,
    ignore: tuple[str, ...],
    root: str,
    plugin_options: tuple[str, ...],
    json_lines: bool,
) -> tuple[list[str], bool]:
    """Replay a session; returns what is to be said and whether all is as it was.

    Raises:
        UsageError: an option cannot be used, or there is no such session.
        SessionError: it has no such run.
    """
    from trilane._loop import run_loop

    aspects = _aspects(ignore)
    blocked = blocked_names(plugin_options)
    set_root(root)

    async def main() -> Replay:
        from trilane.agent import Agent
        from trilane.plugins import installed

        agent = Agent(_NoModel(), plugins=installed(), disabled_plugins=blocked)
        agent.store = existing_store(store)
        try:
            found = await find_session(agent.store, session)
            return await agent.replay(found.id, run_id=run, ignore=aspects)
        finally:
            close_store(agent.store)

    with logging_to(None):  # a plugin that fails shows as a difference
        replay = run_loop(main())
    lines = [replay.to_json()] if json_lines else list(_lines(replay))
    return lines, replay.difference is None


def _aspects(names: tuple[str, ...]) -> tuple[Aspect, ...]:
    from trilane.replay import ASPECTS

    unknown = [name for name in names if name not in ASPECTS]
    if unknown:
        raise UsageError(f"--ignore {unknown[0]}: write one of {', '.join(ASPECTS)}")
    return tuple(aspect for aspect in ASPECTS if aspect in names)


def _lines(replay: Replay) -> Iterator[str]:
    from trilane.replay import ASPECTS

    yield f"session {id_text(replay.session)}"
    for run in replay.runs:
        yield f"  run {id_text(run.run_id)} ({_how(run)}): {_found(run)}"
        missing = [aspect for aspect in ASPECTS if aspect not in run.compared]
        if missing:
            yield f"    not compared: {', '.join(missing)}"
        if run.difference is not None:
            yield from _difference(run.difference)


def _how(run: ReplayedRun) -> str:
    return run.status.replace("_", " ") or "cut off"


def _found(run: ReplayedRun) -> str:
    compared = count(run.count, "thing")
    return f"as it was, {compared} compared" if run.difference is None else "differs"


def _difference(found: Difference) -> Iterator[str]:
    by = f" (plugin {', '.join(found.plugins)})" if found.plugins else ""
    yield f"    first difference: {found.aspect}, {visible(found.where)}{visible(by)}"
    yield f"    - {_value(found.was)}"
    yield f"    + {_value(found.now)}"


def _value(value: Any) -> str:
    return "(nothing)" if value is None else one_line(json.dumps(value, ensure_ascii=False), WIDTH)
