"""Settings that no plugin reads: sections of files and variables of the environment, most of them misspelt.

How settings are read is in `settings.py`. What is misspelt is said, because what was meant has its default instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

    from .manager import PluginManager

__all__ = ["unread_sections", "unread_variables"]

#: How near a variable must come to one that is read. Others may have variables that begin alike: those of a plugin
#: `web` begin as those of `web-search` do.
_NEAR = 0.75


def unread_sections(manager: PluginManager) -> Iterator[tuple[str, bool]]:
    """Sections of settings files that no plugin reads: a sentence, and whether it looks misspelt."""
    from .checks import nearest

    known = {name for plugin in manager.names() for name in manager.settings_names(plugin)}
    # A plugin that is blocked or failed may have settings, and so may those of other programs be of use elsewhere.
    others = {info.name for info in manager.plugins()} - known
    for path, table, sections in _sections():
        for name in sections:
            if name not in known and name not in others:
                hint = nearest(name, known) if known else ""
                yield f"{path} [{table}{name}] is read by no plugin{hint}", "did you mean" in hint


def unread_variables(name: str, model: type[BaseModel]) -> Iterator[str]:
    """A sentence for each variable of the environment that looks like one of section `name`, misspelt."""
    from .settings import prefix_of, variables

    known, prefix = variables(name, model), prefix_of(name)
    for variable in sorted(os.environ):
        if not variable.startswith(prefix) or variable in known:
            continue
        from difflib import get_close_matches

        rests = {one.removeprefix(prefix): one for one in known}
        for near in get_close_matches(variable.removeprefix(prefix), rests, n=1, cutoff=_NEAR):
            yield f"environment: {variable} is no setting of {name!r}; did you mean {rests[near]!r}?"


def _sections() -> Iterator[tuple[str, str, list[str]]]:
    for path, above in (("trilane.toml", ()), ("pyproject.toml", ("tool", "trilane"))):
        if not os.path.exists(path):
            continue
        import tomllib

        try:
            with open(path, "rb") as file:
                found: Any = tomllib.load(file)
        except (OSError, ValueError):
            continue  # said by the first plugin that wants to read its section
        for key in above:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        if isinstance(found, dict):
            yield path, "".join(f"{key}." for key in above), [name for name in found if isinstance(found[name], dict)]
