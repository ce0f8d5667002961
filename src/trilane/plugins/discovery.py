"""Which plugins are installed, found without importing any of them.

A plugin is an entry point of the group `trilane`; the entry's name is the plugin's name, its value a module or a class
that can be called without arguments. Importing is in `importing.py`, registering in `manager.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from trilane._records import Record
from trilane.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

__all__ = [
    "DISABLED_VARIABLE",
    "GROUP",
    "Installed",
    "PluginInfo",
    "PluginStatus",
    "disabled_names",
    "discover",
    "entries",
    "import_seconds_of_environment",
    "installed",
]

GROUP = "trilane"
DISABLED_VARIABLE = "TRILANE_DISABLED_PLUGINS"
"""Variable with the names of plugins that are not imported, separated by commas."""
IMPORT_SECONDS_VARIABLE = "TRILANE_IMPORT_SECONDS"

PluginStatus: TypeAlias = Literal["available", "loaded", "blocked", "failed", "duplicate"]


class PluginInfo(Record):
    """What is known of a plugin.

    Attributes:
        name: Its name.
        distribution: Name of the distribution that ships it; empty for one that was given as an object.
        version: Version of that distribution.
        status: `available` (installed, not loaded), `loaded`, `blocked` (not even imported), `failed` (see `reason`),
            `duplicate` (another one of that name is used, see `reason`).
        reason: Why it is not loaded.
        value: The module or class: `package.module` or `package.module:Class`.
        output: What it printed while it was imported.
    """

    name: str
    distribution: str = ""
    version: str = ""
    status: PluginStatus = "available"
    reason: str = ""
    value: str = ""
    output: str = ""

    @property
    def origin(self) -> str:
        """The distribution with its version, or the module: for messages."""
        return f"{self.distribution} {self.version}".strip() or self.value


class Installed:
    """Stands for all installed plugins in `Agent(plugins=...)`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "installed()"


def installed() -> Installed:
    """All installed plugins that are not blocked: `Agent(model, plugins=installed())`, also as one item of a list."""
    return Installed()


def discover(disabled: Iterable[str] = ()) -> list[PluginInfo]:
    """Every installed plugin, sorted by name; nothing is imported.

    Two distributions may claim the same name. The one whose own name sorts first is used, whatever the order of
    `sys.path`; the others are listed as `duplicate`. A distribution that is visible twice counts once: what comes first
    on `sys.path` is also what would be imported.

    Args:
        disabled: Names to list as blocked, with those in `TRILANE_DISABLED_PLUGINS`.
    """
    blocked = disabled_names(disabled)
    return [
        info.replace(status="blocked", reason=blocked[info.name])
        if info.name in blocked and info.status == "available"
        else info
        for info, _ in entries()
    ]


def disabled_names(disabled: Iterable[str] = ()) -> dict[str, str]:
    """The blocked names, each with the reason."""
    names = dict.fromkeys(disabled, "blocked by disabled_plugins or -p no:NAME")
    for name in os.environ.get(DISABLED_VARIABLE, "").split(","):
        if name.strip():
            names.setdefault(name.strip(), f"blocked by {DISABLED_VARIABLE}")
    return names


def import_seconds_of_environment() -> float:
    """How long the import of one plugin may take: `TRILANE_IMPORT_SECONDS`, else 5 seconds.

    Raises:
        ConfigError: it is no number above 0.
    """
    text = os.environ.get(IMPORT_SECONDS_VARIABLE)
    if text is None:
        return 5.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{IMPORT_SECONDS_VARIABLE} is {text!r}; give a number of seconds above 0")
    return seconds


def entries() -> list[tuple[PluginInfo, EntryPoint | None]]:
    """Every installed plugin and its entry point, sorted by name, the one to use first; kept until the path changes.

    Metadata that cannot be read is listed as `failed` and has no entry point.
    """
    global _cached
    state = _path_state()
    if _cached is None or _cached[0] != state:
        _cached = (state, _scan())
    return _cached[1]


# One scan reads the metadata of every distribution, some milliseconds. Entry points belong to the process, not to a
# manager.
_cached: tuple[tuple[tuple[str, int], ...], list[tuple[PluginInfo, EntryPoint | None]]] | None = None


def _path_state() -> tuple[tuple[str, int], ...]:
    """Changes when `sys.path` does, or when something is installed into or removed from one of its folders."""
    state = []
    for place in sys.path:
        try:
            state.append((place, os.stat(place or ".").st_mtime_ns))
        except OSError:
            state.append((place, -1))
    return tuple(state)


def _scan() -> list[tuple[PluginInfo, EntryPoint | None]]:
    from importlib.metadata import distributions

    found: list[tuple[PluginInfo, EntryPoint | None]] = []
    seen: set[str] = set()
    for distribution in distributions():
        try:
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = _canonical(distribution.name)
            if name not in seen and _is_first(distribution):
                seen.add(name)
                found += _plugins_of(distribution)
        except Exception as error:  # one broken installation must not hide the others
            found.append((_broken(distribution, error), None))
    found.sort(key=lambda item: (item[0].name, _canonical(item[0].distribution), item[0].value))
    return _without_duplicates(found)


def _plugins_of(distribution: Distribution) -> list[tuple[PluginInfo, EntryPoint | None]]:
    unique = {(point.name, point.value): point for point in distribution.entry_points if point.group == GROUP}
    return [
        (
            PluginInfo(
                name=point.name, distribution=distribution.name, version=distribution.version or "", value=point.value
            ),
            point,
        )
        for point in unique.values()
    ]


def _is_first(distribution: Distribution) -> bool:
    """False for a shadowed one: an earlier folder of the path has the same distribution, maybe without plugins."""
    from importlib.metadata import distribution as first_of

    first = first_of(distribution.name)
    return first.read_text("entry_points.txt") == distribution.read_text("entry_points.txt")


def _broken(distribution: Distribution, error: Exception) -> PluginInfo:
    where = str(getattr(distribution, "_path", "")) or "unknown place"
    return PluginInfo(
        name=os.path.basename(where),
        status="failed",
        reason=f"its metadata cannot be read: {type(error).__name__}: {error}; install it again",
        value=where,
    )


def _without_duplicates(
    found: list[tuple[PluginInfo, EntryPoint | None]],
) -> list[tuple[PluginInfo, EntryPoint | None]]:
    used: dict[str, PluginInfo] = {}
    result = []
    for info, point in found:
        first = used.setdefault(info.name, info)
        if first is not info and point is not None:
            info = info.replace(
                status="duplicate",
                reason=f"{first.origin} and {info.origin} both ship a plugin {info.name!r}; {first.origin} is used, "
                "because its name sorts first; uninstall one of them",
            )
        result.append((info, point))
    return result


def _canonical(name: str) -> str:
    """A distribution's name in the form in which names are compared."""
    return name.lower().replace("_", "-").replace(".", "-")
