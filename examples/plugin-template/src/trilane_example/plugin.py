"""The hook implementations, short. What they do grows in other modules, which know no hooks."""

from __future__ import annotations

from collections import Counter

from trilane import Deny, ModelRequest, SettingsRegistry, Status, ToolCall, hookimpl

__all__ = ["ExamplePlugin"]


class ExamplePlugin:
    """Adds a rule to each request, forbids tools, and counts how runs end.

    Args:
        values: Settings given in code; see `ExampleSettings`.

    Attributes:
        endings: How many runs ended with which status.
    """

    name = "example"

    def __init__(self, **values: object) -> None:
        self._values = values
        self.endings: Counter[str] = Counter()

    @hookimpl
    def register_settings(self, registry: SettingsRegistry) -> None:
        """Declare the settings; they are read when they are first needed."""
        from .settings import ExampleSettings  # pydantic models cost time to import; agents are made often

        self._registry, self._model = registry, ExampleSettings
        registry.add("example", ExampleSettings, values=self._values)

    @hookimpl
    def on_model_request(self, request: ModelRequest) -> ModelRequest | None:
        """Add the rule, if there is one."""
        rule = self._registry.get("example", self._model).rule
        return request.with_context(rule) if rule else None

    @hookimpl
    def decide_tool(self, call: ToolCall) -> Deny | None:
        """Refuse what is forbidden."""
        forbidden = self._registry.get("example", self._model).forbidden
        return Deny(reason="it is forbidden here") if call.name in forbidden else None

    @hookimpl
    def close_run(self, status: Status) -> None:
        """Called once for every run, however it ended."""
        self.endings[status] += 1
