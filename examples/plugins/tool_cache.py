"""Tool cache: the same call of a tool that only reads is answered from memory for a while."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase

from trilane import RunContext, ToolCall, ToolResult, hookimpl

__all__ = ["ToolCache"]


class ToolCache:
    """Remembers results that went well.

    Args:
        tools: Patterns of tool names; only you know which tools always say the same.
        seconds: How long a result is good.
        size: How many results are kept, the latest.
        now: The clock, for tests.
    """

    name = "tool-cache"

    def __init__(
        self, *tools: str, seconds: float = 300.0, size: int = 1000, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tools = tools
        self._seconds = seconds
        self._size = size
        self._now = now
        self._kept: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()
        self.hits = 0

    @hookimpl(trylast=True)  # the innermost layer: what other plugins add around a tool is done every time
    async def around_tool(
        self, run: RunContext[object], call: ToolCall, call_next: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        if not any(fnmatchcase(call.name, pattern) for pattern in self._tools):
            return await call_next()
        key = json.dumps([call.name, dict(call.arguments)], sort_keys=True)
        until, result = self._kept.get(key, (0.0, None))
        if result is not None and self._now() < until:
            self.hits += 1
            return result.replace(call_id=call.id)
        result = await call_next()
        if result.outcome == "ok":
            self._kept[key] = (self._now() + self._seconds, result)
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return result
