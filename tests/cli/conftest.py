"""Events made by hand, for renderers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trilane.events import AgentEvent, Event, RunCompleted, ToolCompleted, ToolStarted
from trilane.messages import AssistantMessage, TextPart, ToolCall, ToolCallPart, ToolResult
from trilane.result import RunResult
from trilane.state import AgentPhase

E = TypeVar("E", bound=AgentEvent)


class EventMaker:
    """Makes events with everything filled in that a test does not care about."""

    def __init__(self) -> None:
        self._seq = 0

    def __call__(self, kind: type[E], **values: Any) -> E:
        self._seq += 1
        values = {"phase": AgentPhase.READY, "run_id": "r1", "session_id": "s1", "seq": self._seq, **values}
        return kind(**values)

    def call(self, name: str = "count_words", id: str = "c1", /, **arguments: Any) -> ToolCall:
        return ToolCall(id=id, name=name, arguments=arguments)

    def message(self, text: str = "", *calls: ToolCall, **values: Any) -> AssistantMessage:
        parts = [TextPart(text=text)] if text else []
        return AssistantMessage(id="m1", parts=(*parts, *[ToolCallPart(call=call) for call in calls]), **values)

    def tool(self, call: ToolCall, content: str, outcome: str = "ok") -> list[Event]:
        result = ToolResult(call_id=call.id, content=content, outcome=outcome)  # type: ignore[arg-type]
        return [self(ToolStarted, call=call), self(ToolCompleted, call=call, result=result)]

    def completed(self, text: str, output: Any = None) -> RunCompleted:
        return self(RunCompleted, result=self.result(text, output=text if output is None else output))

    def result(self, text: str, **values: Any) -> RunResult[Any]:
        message = self.message(text) if text else None
        values = {"status": "completed", "run_id": "r1", "session_id": "s1", "message": message, **values}
        return RunResult(**values)


@pytest.fixture
def make() -> EventMaker:
    return EventMaker()


@pytest.fixture(scope="session")
def acting_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the plugin `acting` is installed; `-m acting:NAME` plays one of its scenes."""
    place = tmp_path_factory.mktemp("acting")
    code = (Path(__file__).parent / "acting_plugin.py.txt").read_text()
    (place / "acme_acting.py").write_text(code)
    info = place / "acme_acting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-acting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trilane]\nacting = acme_acting\n")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("TRILANE_", "OPENAI_", "ANTHR"))}
    return {**keep, "PYTHONPATH": str(place), "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
