"""What is wrong with the installed plugins, found by loading them as `trilane run` does, and by a trial run.

The trial run is in `trial.py`.
"""

from __future__ import annotations

import inspect
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from trilane.hookspecs import HOOKS, HookSpecs
from trilane.hookspecs.markers import IMPL_ATTRIBUTE, SPEC_ATTRIBUTE
from trilane.plugins.blocking import blocks_nothing
from trilane.plugins.discovery import entries
from trilane.plugins.naming import name_of
from trilane.plugins.unread import unread_sections, unread_variables

from .choice import choose_model
from .console import logging_to
from .idle import idle_hooks, shadowed_commands
from .text import columns, one_line, visible

if TYPE_CHECKING:
    from trilane.plugins import PluginInfo
    from trilane.tools import Tool

    from .registry import LiveRegistry

__all__ = ["Finding", "Findings", "examine", "satisfies"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (`fault`), or worth knowing (`note`), about `plugin`."""

    kind: Literal["fault", "note"]
    plugin: str
    text: str


@dataclass(slots=True)
class Findings:
    """The result of an examination.

    Attributes:
        versions: What is installed.
        loaded: Names of the plugins that were loaded.
        findings: What was found.
        model: The model that `trilane run` would use, and why.
    """

    versions: str = ""
    loaded: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    model: str = ""

    @property
    def is_well(self) -> bool:
        """True if nothing is wrong; notes do not count."""
        return all(finding.kind == "note" for finding in self.findings)

    def lines(self) -> list[str]:
        """The report."""
        rows = [["loaded", name, ""] for name in self.loaded]
        rows += [[finding.kind, finding.plugin, visible(finding.text).replace("\n", " ")] for finding in self.findings]
        faults = sum(finding.kind == "fault" for finding in self.findings)
        verdict = "all is well" if self.is_well else f"{faults} fault{'' if faults == 1 else 's'} found"
        return [self.versions, *columns(rows), f"model: {self.model}", verdict]


def examine(registry: LiveRegistry, *, with_run: bool = True) -> Findings:
    """Look at every plugin of the live registry, and at what the loaded ones do in a trial run."""
    found = Findings(versions=_versions())
    unusable: dict[str, list[str]] = {}  # what is wrong with settings, and for which plugins
    for info in sorted(registry.manager.plugins(), key=lambda info: (info.name, info.distribution)):
        if info.status == "loaded":
            found.loaded.append(f"{info.name} ({info.origin})")
            found.findings += _loaded(registry, info)
            for text in _settings(registry, info):
                unusable.setdefault(text, []).append(info.name)
        elif info.status == "blocked":
            found.findings.append(Finding("note", info.name, info.reason))
        else:
            found.findings.append(Finding("fault", info.name, f"{info.status}: {info.reason}"))
        if info.output.strip():
            text = f"prints while it is imported: {one_line(info.output, 120)!r}"
            found.findings.append(Finding("fault", info.name, text))
        found.findings += _requirements(info)
    for text, names in unusable.items():  # a file that cannot be read is one fault, however many would read it
        found.findings.append(Finding("fault", names[0] if len(names) == 1 else "-", text))
    if registry.problem is not None:
        found.findings.append(Finding("fault", getattr(registry.problem, "plugin", "") or "-", str(registry.problem)))
    tools = None
    if with_run and registry.problem is None and found.loaded:
        from .trial import try_out

        with logging_to(None):
            trial = try_out(registry.manager)
        tools = trial.tools
        found.findings += [
            Finding("fault", fault.plugin or "-", fault.text)
            for fault in trial.faults
            if not any(text in fault.text for text in unusable)  # what fails for want of its settings
        ]
    found.findings += _without_effect(registry, tools)
    found.model = _model(registry, found)
    return found


def _without_effect(registry: LiveRegistry, tools: Sequence[Tool] | None) -> Iterator[Finding]:
    """What can do nothing. That is a fault only where something else must have been meant."""
    for name in registry.manager.names():
        for text in idle_hooks(registry, name, tools):
            yield Finding("note", name, text)
    for origin, text in shadowed_commands():
        yield Finding("fault", origin, text)
    for text, is_misspelt in unread_sections(registry.manager):
        yield Finding("fault" if is_misspelt else "note", "-", text)
    for name, text in blocks_nothing(registry.manager).items():
        yield Finding("fault" if "did you mean" in text else "note", name, text)


def _loaded(registry: LiveRegistry, info: PluginInfo) -> Iterator[Finding]:
    calls = registry.hooks_of(info.name)
    if not calls and registry.problem is None:
        yield Finding("fault", info.name, "implements no hook, so it does nothing; mark its functions with @hookimpl")
    plugin = registry.manager.get(info.name)
    own = "" if isinstance(plugin, ModuleType) else name_of(plugin)
    if own not in ("", info.name, type(plugin).__name__):
        text = f"calls itself {own!r}, but its entry point, and so its name, is {info.name!r}; make them the same"
        yield Finding("note", info.name, text)
    yield from _of_other_versions(plugin, info)
    for hook in dict.fromkeys(call.hook for call in calls):
        missing = _without_annotation(getattr(plugin, hook, None))
        if missing:
            yield Finding("note", info.name, f"{hook} has no annotation for {', '.join(missing)}")


def _settings(registry: LiveRegistry, info: PluginInfo) -> Iterator[str]:
    """What is wrong with settings, with the file and the key."""
    from trilane.errors import ConfigError

    for name in registry.manager.settings_names(info.name):
        try:
            with logging_to(None):  # it warns of the same variables
                settings = registry.manager.settings(name)
        except ConfigError as error:
            yield str(error)
            continue
        yield from unread_variables(name, type(settings))


def _of_other_versions(plugin: object, info: PluginInfo) -> Iterator[Finding]:
    """Hooks that another version of Trilane has, and those it will not have for long."""
    for name in dir(plugin):
        options = getattr(inspect.getattr_static(plugin, name, None), IMPL_ATTRIBUTE, None)
        if not isinstance(options, dict):
            continue
        hook = options.get("specname") or name
        if hook not in HOOKS:
            yield Finding("note", info.name, f"{hook} can never be called: this version of Trilane has no such hook")
            continue
        warning = getattr(getattr(HookSpecs, hook), SPEC_ATTRIBUTE).get("warn_on_impl")
        if warning is not None:
            yield Finding("note", info.name, f"{hook} is deprecated: {warning}")


def _without_annotation(function: object) -> list[str]:
    if not callable(function):
        return []
    signature = inspect.signature(function)
    missing = [name for name, value in signature.parameters.items() if value.annotation is value.empty]
    return missing + (["the return value"] if signature.return_annotation is signature.empty else [])


def _requirements(info: PluginInfo) -> Iterator[Finding]:
    """Whether the versions of trilane and pluggy are those the plugin's distribution asks for."""
    if not info.distribution:
        return
    try:
        wanted = requires(info.distribution) or []
    except PackageNotFoundError:
        return
    for line in wanted:
        line, _, marker = line.partition(";")
        match = re.match(r"\s*(trilane|pluggy)\s*(?:\[[^]]*\])?\s*\(?([<>=!~0-9.,* ]*)\)?\s*$", line)
        if match is None or "extra" in marker:
            continue
        package, conditions = match.groups()
        try:
            got = version(package)
        except PackageNotFoundError:
            continue
        if not satisfies(got, conditions):
            text = f"{info.origin} asks for {package}{conditions.strip()}, but {got} is installed"
            yield Finding("fault", info.name, text)


def satisfies(got: str, conditions: str) -> bool:
    """True if version `got` meets `>=1.2,<2`; conditions of a kind not known here are taken as met.

    Examples:
        >>> satisfies("1.10.0", ">=1.2,<2"), satisfies("0.9", "~=1.0")
        (True, False)
    """
    have = _release(got)
    for condition in filter(None, (part.strip() for part in conditions.split(","))):
        match = re.fullmatch(r"(>=|<=|==|!=|~=|<|>)\s*(\d+(?:\.\d+)*)", condition)
        if match is None:
            continue
        operator, want = match.group(1), _release(match.group(2))
        size = max(len(have), len(want))
        left, right = (part + (0,) * (size - len(part)) for part in (have, want))
        met = {
            ">=": left >= right,
            "<=": left <= right,
            "==": left == right,
            "!=": left != right,
            ">": left > right,
            "<": left < right,
            "~=": left >= right and left[: len(want) - 1] == right[: len(want) - 1],
        }
        if not met[operator]:
            return False
    return True


def _release(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def _versions() -> str:
    parts = [f"{name} {version(name)}" for name in ("trilane", "pluggy", "pydantic", "anyio")]
    return f"{', '.join(parts)}, Python {platform.python_version()}"


def _model(registry: LiveRegistry, found: Findings) -> str:
    """Which model `trilane run` would take; one that cannot be made is a fault."""
    from trilane.errors import ConfigError
    from trilane.plugins import resolve_model

    names = {info.name for info, _ in entries()} - set(registry.manager.disabled)
    choice = choose_model("", os.environ, names)
    try:
        resolve_model(choice.model, registry.manager)
    except ConfigError as error:
        if all(one.text != str(error) for one in found.findings):
            found.findings.append(Finding("fault", choice.model, f"the model cannot be used: {error}"))
    return f"{choice.model} ({choice.reason})"
