"""`trilane plugins new`: a complete plugin project, written from the templates beside this file.

In a template `@NAME@` is the plugin's name, `@DISTRIBUTION@`, `@PACKAGE@` and `@CLASS@` are made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from .console import UsageError

__all__ = ["KINDS", "write_project"]

#: What a plugin can be for, with the summary of a new project.
KINDS: Mapping[str, str] = {
    "tools": "Tools that look at texts, for Trilane agents",
    "provider": "Models for Trilane agents that say what was said to them",
    "guard": "Decides which tools Trilane agents may call",
    "observer": "Writes one line to the log for every run of a Trilane agent",
    "store": "Keeps the sessions of Trilane agents in a folder",
}

_SUFFIX = ".template"
#: Where the common files go; some have a name that would mean something where the templates are.
_PLACES = {
    "gitignore": ".gitignore",
    "test.yml": ".github/workflows/test.yml",
    "__init__.py": "src/PACKAGE/__init__.py",
}


def write_project(name: str, kind: str, folder: Path | None = None) -> tuple[Path, list[Path]]:
    """Write the project of a plugin.

    Args:
        name: Name of the plugin.
        kind: One of `KINDS`.
        folder: Where to; `trilane-NAME` in the current folder if it is not given.

    Returns:
        The folder, and the files written, relative to it.

    Raises:
        UsageError: an unusable name or kind, or a folder that is not empty.
        OSError: a file cannot be written.
    """
    name = name.removeprefix("trilane-")
    values = _values(name, kind)
    folder = folder if folder is not None else Path(values["DISTRIBUTION"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists and is not an empty folder; name another one with --path, nothing was written"
        )
    written = []
    for place, text in sorted(_files(kind, values)):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(Path(place))
    return folder, written


def _values(name: str, kind: str) -> dict[str, str]:
    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r} of plugins; the kinds are: {', '.join(KINDS)}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(
            f"{name!r} is no name for a plugin; use lower-case letters, digits and single dashes, as in hello-world"
        )
    words = name.split("-")
    return {
        "NAME": name,
        "DISTRIBUTION": f"trilane-{name}",
        "PACKAGE": f"trilane_{'_'.join(words)}",
        "CLASS": "".join(word.capitalize() for word in words) + "Plugin",
        "SHOUT": "_".join(words).upper(),
        "SUMMARY": KINDS[kind],
        "TRILANE": _compatible(version("trilane")),
    }


def _compatible(current: str) -> str:
    """The versions a plugin written today works with: up to the next minor release before 1.0, else the next major."""
    found = re.match(r"(\d+)\.(\d+)", current)
    major, minor = (int(part) for part in found.groups()) if found else (0, 1)
    return f">={major}.{minor},<{f'0.{minor + 1}' if major == 0 else major + 1}"


def _files(kind: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    templates = files("trilane.cli").joinpath("templates")
    for root in (templates.joinpath("common"), templates.joinpath(kind)):
        for place, template in _walk(root):
            target = _PLACES.get(place, place).replace("PACKAGE", values["PACKAGE"])
            yield target, _filled(template.read_text(encoding="utf-8"), values)
    yield f"src/{values['PACKAGE']}/py.typed", ""


def _walk(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _walk(item, f"{above}{item.name}/")
        elif item.name.endswith(_SUFFIX):
            yield above + item.name.removesuffix(_SUFFIX), item


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda found: values[found.group(1)], text)
