"""The hook: before each model call a look at how full the context is, and a compaction when it is due.

The class is what is installed as `compact`, one for each agent; `compact(threshold=0.6)` makes one with other settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from trilane import CompactedHistory, Message, RunContext, hookimpl

from .gauge import Gauge, Gauges

if TYPE_CHECKING:
    from trilane.plugins import SettingsRegistry

    from .settings import CompactSettings

__all__ = ["CompactPlugin", "compact"]

_MOST_SECONDS = 660.0  # more than the longest call that the settings allow
_LEAST_SAVED = 0.1  # of the context: a compaction that saves less was not worth its call, nor is another try before


class CompactPlugin:
    """Shortens what models see of long conversations. What is stored stays whole, and each compaction can be undone.

    Args:
        keep: Says which messages are pinned, beside the first request, the words of the host and what `pinned` made.
        settings: Anything of `CompactSettings`; stronger than files and the environment.
    """

    name = "compact"

    def __init__(self, keep: Callable[[Message], bool] | None = None, **settings: object) -> None:
        self._keep = keep
        self._given = settings
        self._registry: SettingsRegistry | None = None
        self._gauges = Gauges()

    @hookimpl
    def register_settings(self, registry: SettingsRegistry) -> None:
        """Declare the section `compact`."""
        from .settings import CompactSettings

        registry.add("compact", CompactSettings, values=self._given)
        self._registry = registry

    @hookimpl(timeout=_MOST_SECONDS)
    def on_compact(
        self, run: RunContext[object], requested: bool
    ) -> CompactedHistory | Awaitable[CompactedHistory | None] | None:
        """Compact, if the context is full enough or somebody asks for it.

        Raises:
            CompactionError: there was no use in what came of it.
            Exception: what the summarising model raised.
        """
        from .summarising import window_of

        settings = self._settings
        gauge = self._gauges.of(run.session_id)
        tokens = gauge.read(run.history)
        if not requested:
            limit = window_of(run.model, settings) * settings.threshold
            if not settings.automatic or tokens < max(limit, gauge.wait_until):
                return None
        return self._compact(run, requested, settings, gauge, tokens)

    async def _compact(
        self, run: RunContext[Any], requested: bool, settings: CompactSettings, gauge: Gauge, tokens: int
    ) -> CompactedHistory | None:
        from .planning import make_plan
        from .summarising import compacted, window_of

        window = window_of(run.model, settings)
        # Whatever becomes of it, the next try is only when there is something new to try it on.
        gauge.wait_until = round(tokens + window * _LEAST_SAVED)
        plan = make_plan(run.history, keep_tokens=window * settings.keep / gauge.factor, keep=self._keep)
        if not plan.has_work and requested:
            plan = make_plan(run.history, keep_tokens=0, keep=self._keep)  # somebody wants it shorter all the same
        if not plan.has_work:
            return None
        least = 1.0 if requested else max(1.0, window * _LEAST_SAVED / gauge.factor)
        history = await compacted(run, plan, settings, least)
        gauge.wait_until = 0
        return history

    @property
    def _settings(self) -> CompactSettings:
        from .settings import CompactSettings

        assert self._registry is not None  # the hooks of a plugin are called after it was registered
        return self._registry.get("compact", CompactSettings)


def compact(keep: Callable[[Message], bool] | None = None, **settings: object) -> CompactPlugin:
    """A plugin for `Agent(plugins=[compact(threshold=0.6)])`; see `CompactPlugin`."""
    return CompactPlugin(keep, **settings)
