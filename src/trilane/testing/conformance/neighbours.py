"""Bad company: another plugin that fails at the same hook, before or after this one, or stops the run there.

The plugin must come through it as it would alone: no failure of its own, and its `close_run` called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from trilane import hookimpl
from trilane._records import error_line
from trilane.errors import RunError
from trilane.hookspecs import HOOKS

from .modes import REQUEST
from .subject import Subject

__all__ = ["check_neighbours"]


NAME = "neighbour"


class _NeighbourError(Exception):
    """What the neighbour raises."""


def check_neighbours(subject: Subject) -> Iterator[str]:
    """For each of the plugin's hooks, a neighbour that raises and one that stops the run, on either side."""
    logger = logging.getLogger("trilane")
    logger.addFilter(_not_on_purpose)
    try:
        yield from _with_each(subject)
    finally:
        logger.removeFilter(_not_on_purpose)


def _not_on_purpose(record: logging.LogRecord) -> bool:
    return not (record.args and isinstance(record.args, tuple) and record.args[0] == NAME)


def _with_each(subject: Subject) -> Iterator[str]:
    for hook in subject.hooks:
        if HOOKS[hook].mode == "register":
            continue
        for place in ("before", "after"):
            for what in ("raises", "stops"):
                found = subject.run_virtual(_play, subject, _neighbour(hook, place, what, subject.name))
                for text in found:
                    yield f"a plugin that {what} {place} it in {hook}: {text}"


def _neighbour(hook: str, place: str, what: str, name: str) -> object:
    def act(run: Any) -> None:
        if what == "raises":
            raise _NeighbourError("on purpose")
        run.stop("on purpose")

    if HOOKS[hook].mode == "around":

        async def around(run: Any, request: Any, call_next: Any) -> Any:
            act(run)
            return await call_next(request)

        async def around_tool(run: Any, call: Any, call_next: Any) -> Any:
            act(run)
            return await call_next()

        function: Any = around if hook == "around_model" else around_tool
    else:
        function = act
    marks: dict[str, Any] = {place: name}
    return type("Neighbour", (), {"name": NAME, hook: staticmethod(hookimpl(**marks)(function))})()


async def _play(subject: Subject, neighbour: object) -> list[str]:
    agent = subject.agent()
    agent.plugins.register(neighbour)
    result = None
    found = []
    async with agent.stream(REQUEST, **subject.options) as run:
        try:
            async for _ in run:
                pass
        except (RunError, _NeighbourError):
            pass
        except Exception as error:
            found.append(f"the run failed with {error_line(error)}")
    result = run.result
    if not run.state.is_terminal:
        found.append(f"the run stands in {run.state.phase.name}")
    found += [
        f"{failure.hook} failed: {type(failure.error).__name__}: {failure.error}"
        for failure in result.hook_failures
        if failure.plugin == subject.name
    ]
    rows = {row.hook: row.calls for row in result.ledger if row.plugin == subject.name}
    if "close_run" in subject.hooks and rows.get("close_run") != 1:
        found.append(f"close_run was called {rows.get('close_run', 0)} times")
    return found
