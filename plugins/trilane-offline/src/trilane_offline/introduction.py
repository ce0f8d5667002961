"""What the planner says of itself when it cannot help: what it is, what it can do here, what else there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .schema import as_schema, required_names

if TYPE_CHECKING:
    from trilane.models import ToolSpec

    from .plan import Miss

__all__ = ["introduce", "other_models", "shorten"]

_MOST_TOOLS = 20
_PROVIDERS = ("openai", "anthropic", "local")


def shorten(text: str, most: int = 120) -> str:
    """`text` on one line, cut with an ellipsis."""
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def introduce(misses: Sequence[Miss], tools: Sequence[ToolSpec], installed: Sequence[str]) -> str:
    """The answer to a request that led to no call.

    Args:
        misses: Its clauses.
        tools: The tools at hand.
        installed: Names of the model providers that are installed.
    """
    sections = [
        "I am not an AI. I am a planner that matches a request with the tools at hand, and this one led to no call."
    ]
    reasons = [f"- “{shorten(miss.text)}”: {miss.reason}." for miss in misses if miss.reason]
    if reasons:
        sections.append("\n".join(["What stopped me:", *reasons]))
    if tools:
        sections.append("\n".join(["What I can do here:", *_offers(tools)]))
    else:
        sections.append("There are no tools at hand, so there is nothing I can do here.")
    sections.append(other_models(installed))
    return "\n\n".join(sections)


def _offers(tools: Sequence[ToolSpec]) -> list[str]:
    lines = []
    for tool in tools[:_MOST_TOOLS]:
        first = shorten(tool.description.strip().split("\n", 1)[0])
        needs = [f"`{name}`" for name in required_names(as_schema(tool.parameters))]
        says = f": {first}" if first else ""
        needed = f" Needs {', '.join(needs)}." if needs else ""
        lines.append(f"- {tool.name}{says}{needed}")
    if len(tools) > _MOST_TOOLS:
        lines.append(f"- and {len(tools) - _MOST_TOOLS} more")
    return lines


def other_models(installed: Sequence[str]) -> str:
    """How to get a language model instead."""
    lines = ["For a language model, choose another one with `--model` (or `Agent(model=...)`):"]
    for name in _PROVIDERS:
        spec = f"{name}:NAME"
        how = (
            f"`--model {spec}` (installed)" if name in installed else f"install `trilane-{name}`, then `--model {spec}`"
        )
        lines.append(f"- {name}: {how}")
    return "\n".join(lines)
