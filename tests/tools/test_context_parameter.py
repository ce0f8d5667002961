"""Tools that take the real `ToolContext`; its behaviour is tested with runs."""

from __future__ import annotations

from typing import Any

from trilane.context import ToolContext
from trilane.tools import as_tool, tool


class Settings: ...


@tool
async def with_deps(n: int, ctx: ToolContext[Settings]) -> object:
    return n, ctx


@tool
def without_deps(ctx: ToolContext, n: int) -> object:
    return n, ctx


def test_f060_the_tool_context_is_injected_and_never_shown() -> None:
    for function, deps_type in ((with_deps, Settings), (without_deps, None)):
        made = as_tool(function)
        assert made.context_parameter == "ctx"
        assert made.deps_type is deps_type
        assert made.parameters == {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    context: Any = object()
    assert as_tool(without_deps).call({"n": 1}, context) == (1, context)
