"""What a docstring says about a tool and its parameters, in Google, NumPy or Sphinx style.

Own code rather than a library: the one that fits loses every description of a docstring with a single broken field,
knows neither starred names nor Windows line ends, and costs as much to import as the rest of this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Docstring", "parse_docstring"]

_PARAMETER_SECTIONS = frozenset(
    {
        "args",
        "arguments",
        "keyword args",
        "keyword arguments",
        "keyword parameters",
        "other parameters",
        "parameters",
        "params",
    }
)
# Left out of the description: what a tool returns or raises is not what a model needs to choose it.
_DROPPED_SECTIONS = frozenset({"raises", "return", "returns", "yield", "yields"})
_PARAMETER_FIELDS = frozenset({"arg", "argument", "key", "keyword", "kwarg", "param", "parameter"})
_DROPPED_FIELDS = frozenset(
    {"except", "exception", "raise", "raises", "return", "returns", "rtype", "type", "yield", "yields", "ytype"}
)


class Docstring(NamedTuple):
    """`description` without the sections about parameters; `parameters` maps names, without stars, to their text."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring. Never raises: what cannot be understood stays part of the description."""
    if not text or not text.strip():
        return Docstring("", {})
    text = _dedented(text.replace("\r\n", "\n").replace("\r", "\n"))
    if ":" not in text and "---" not in text:
        return Docstring(text.strip(), {})
    parameters: dict[str, str] = {}
    kept: list[str] = []
    for heading, block in _blocks(text.split("\n")):
        for name, description in _entries(heading, block):
            if description:
                parameters.setdefault(name, description)
        if heading == "":
            kept += block
    return Docstring(_squeeze(kept), parameters)


def _dedented(text: str) -> str:
    import inspect

    first, _, rest = text.partition("\n")
    if first.strip().lower().rstrip(":") in _PARAMETER_SECTIONS:
        # Nothing but entries: their indentation relative to the heading would be lost.
        indent = min((_indent(line) for line in rest.expandtabs().split("\n") if line.strip()), default=0)
        text = f"\n{' ' * (indent - 1)}{first.strip()}\n{rest}"
    return inspect.cleandoc(text)


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The docstring in pieces, each with its heading: "" for plain text, else `google:NAME`, `numpy:NAME`, `:FIELD`."""
    at = 0
    while at < len(lines):
        line = lines[at]
        name = line.strip().lower()
        if line[:1].isspace() or not name:
            end, heading = at + 1, ""
        elif _is_underline(lines, at + 1) and name.rstrip(":") in _PARAMETER_SECTIONS | _DROPPED_SECTIONS:
            end, heading = _next_numpy_section(lines, at + 2), f"numpy:{name.rstrip(':')}"
        elif name[-1] == ":" and name[:-1].strip() in _PARAMETER_SECTIONS | _DROPPED_SECTIONS:
            end, heading = _end_of_indented(lines, at + 1), f"google:{name[:-1].strip()}"
            if end == at + 1:  # nothing belongs to it, so it was not a section
                heading = ""
        elif line[0] == ":" and _field(line)[0] in _PARAMETER_FIELDS | _DROPPED_FIELDS:
            end, heading = _end_of_indented(lines, at + 1), f":{_field(line)[0]}"
        else:
            end, heading = at + 1, ""
        yield heading, lines[at:end]
        at = end


def _entries(heading: str, block: list[str]) -> Iterator[tuple[str, str]]:
    """Names and descriptions in one piece of the docstring."""
    if heading.startswith("google:") and heading[7:] in _PARAMETER_SECTIONS:
        yield from _google_entries(block[1:])
    elif heading.startswith("numpy:") and heading[6:] in _PARAMETER_SECTIONS:
        yield from _numpy_entries(block[2:])
    elif heading[1:] in _PARAMETER_FIELDS and heading[:1] == ":":
        _, argument, first = _field(block[0])
        if argument:
            yield _bare(argument.split()[-1]), _reflow([first, *block[1:]])


def _google_entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    import re

    entry = re.compile(r"\\?(\*{0,2}(?:\\\*){0,2}\w+)(?:\s*\(.*?\))?\s*:(?:\s+(.*)|\s*)$")
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    name, collected = "", [""]
    for line in lines:
        found = entry.match(line.strip()) if _indent(line) == indent else None
        if found:
            if name:
                yield name, _reflow(collected)
            name, collected = _bare(found[1]), [found[2] or ""]
        else:
            collected.append(line)
    if name:
        yield name, _reflow(collected)


def _numpy_entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    collected: list[str] = []
    for line in [*lines, "end"]:
        if line[:1].isspace() or not line:
            collected.append(line)
            continue
        description = _reflow(collected)
        for name in names:
            yield name, description
        names = [_bare(part.strip()) for part in line.partition(":")[0].split(",")]
        collected = []


def _field(line: str) -> tuple[str, str, str]:
    """`:param int x: text` as ("param", "int x", "text"); three empty texts if it is no such field."""
    head, colon, text = line[1:].partition(":")
    name, _, argument = head.partition(" ")
    return (name.lower(), argument.strip(), text.strip()) if colon and name.isalpha() else ("", "", "")


def _is_underline(lines: list[str], at: int) -> bool:
    line = lines[at].strip() if at < len(lines) else ""
    return len(line) >= 3 and not line.strip("-=")


def _next_numpy_section(lines: list[str], start: int) -> int:
    for at in range(start, len(lines)):
        if lines[at].strip() and not lines[at][:1].isspace() and _is_underline(lines, at + 1):
            return at
    return len(lines)


def _end_of_indented(lines: list[str], start: int) -> int:
    """Where the block that is indented below line `start - 1` ends; blank lines after it are not part of it."""
    end = start
    for at in range(start, len(lines)):
        if lines[at].strip():
            if not lines[at][:1].isspace():
                break
            end = at + 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _bare(name: str) -> str:
    return name.replace("\\", "").lstrip("*")


def _reflow(lines: list[str]) -> str:
    """Lines of a description as running text; blank lines and list items keep their line breaks."""
    text = ""
    for line in lines:
        line = line.strip()
        if not line:
            text = text if not text or text.endswith("\n\n") else text + "\n\n"
        elif line.startswith(("- ", "* ", "+ ")) and text and not text.endswith("\n"):
            text += "\n" + line
        else:
            text += line if not text or text.endswith("\n") else " " + line
    return text.strip()


def _squeeze(lines: list[str]) -> str:
    """The kept lines, with at most one blank line where a section was taken out."""
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1]):
            kept.append(line.rstrip())
    return "\n".join(kept).strip()
