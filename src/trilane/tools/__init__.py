"""Tools: what a model may call. Definition, arguments and results; they are run by `_batch.py`."""

from __future__ import annotations

from .arguments import ToolArgumentsError, parse_arguments
from .definition import Tool, as_tool, check_tools
from .options import ToolOptions, tool
from .results import error_result, render_result, unknown_tool_result

__all__ = [
    "Tool",
    "ToolArgumentsError",
    "ToolOptions",
    "as_tool",
    "check_tools",
    "error_result",
    "parse_arguments",
    "render_result",
    "tool",
    "unknown_tool_result",
]
