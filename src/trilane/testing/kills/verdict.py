"""What must hold when a killed run was resumed to its end: complete, a valid history, and nothing but the truth."""

from __future__ import annotations

from typing import Any

from trilane.messages import ToolResult
from trilane.result import RunResult
from trilane.stores import CallStarted, SessionRecord
from trilane.testing.history import check_history

from .victim import ANSWER, EFFECTS

__all__ = ["problems"]


def problems(
    result: RunResult[Any], records: tuple[SessionRecord, ...], effects: list[tuple[str, str, int]]
) -> list[str]:
    """What does not hold; nothing if all is well."""
    found = [] if result.status == "completed" and result.text == ANSWER else [f"it ended {result.status}: {result!r}"]
    found += list(check_history(result.messages))
    told = {
        one.call_id.removeprefix("call-"): one
        for message in result.messages
        if message.kind == "tool"
        for one in message.results
    }
    if set(told) != set(EFFECTS):
        found.append(f"calls without a result: {sorted(set(EFFECTS) - set(told))}")
    started = {(one.key, one.attempt) for one in records if isinstance(one, CallStarted)}
    for name, key, attempt in effects:
        if (key, attempt) not in started:
            found.append(f"{name} ran as attempt {attempt}, which was not stored before")
    for name, effect in EFFECTS.items():
        done = [(key, attempt) for tool, key, attempt in effects if tool == name]
        if name in told:
            found += _about(name, effect, told[name], done)
    return found


def _about(name: str, effect: str, told: ToolResult, done: list[tuple[str, int]]) -> list[str]:
    found = []
    if effect == "unsafe" and len(done) > 1:
        found.append(f"{name} is unsafe and ran {len(done)} times")
    if len({key for key, _ in done}) > 1:
        found.append(f"{name} ran under several keys: {done}")
    attempts = [attempt for _, attempt in done]
    if attempts != sorted(set(attempts)):
        found.append(f"{name} ran with attempts {attempts}; each must be higher than the one before")
    text = str(told.content)
    if told.outcome == "ok" and text.startswith(f"{name} done") and not done:
        found.append(f"the model was told that {name} was done, and it was not")
    if told.outcome == "not_started" and done:
        found.append(f"the model was told that {name} was not run, and it was")
    if told.outcome == "ok" and not text.startswith((f"{name} done", "reconciled: ")):
        found.append(f"the result of {name} is not its own: {text!r}")
    if told.outcome not in ("ok", "interrupted") or (told.outcome == "interrupted" and effect != "unsafe"):
        found.append(f"the model was told {told.outcome} of {name}: {text!r}")
    if told.outcome == "interrupted" and "effect unknown" not in text:
        found.append(f"the model was not told that the effect of {name} is unknown: {text!r}")
    return found
