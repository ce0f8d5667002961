"""The live registry: every installed plugin loaded as `trilane run` loads it, and what can be told about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilane.errors import PluginLoadError, TrilaneError
from trilane.hookspecs import HOOKS
from trilane.plugins import PluginInfo, PluginManager, installed
from trilane.plugins.blocking import blocks_nothing

from .console import UsageError, logging_to
from .options import blocked_names
from .text import columns, count, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trilane.plugins import HookImplementation

__all__ = ["LiveRegistry", "info_lines", "list_lines", "load_registry", "order_lines"]


@dataclass(frozen=True, slots=True)
class LiveRegistry:
    """The loaded plugins.

    Attributes:
        manager: Their manager.
        problem: Why they cannot work together, None if they can.
    """

    manager: PluginManager
    problem: TrilaneError | None = None

    def hooks_of(self, name: str) -> list[HookImplementation]:
        """A plugin's hook implementations, in the order of a run; none if no order can be found at all."""
        if self.problem is not None:
            return []
        compiled = self.manager.compile()
        return [call for hook in HOOKS for call in getattr(compiled, hook) if call.plugin == name]


def load_registry(plugin_options: tuple[str, ...] = ()) -> LiveRegistry:
    """Load every installed plugin that is not blocked.

    Raises:
        UsageError: a `-p` option that is not `no:NAME`, or that names nothing.
    """
    manager = PluginManager(disabled=blocked_names(plugin_options))
    with logging_to(None):
        try:
            manager.load(installed())
        except PluginLoadError as error:
            return LiveRegistry(manager, error)
    return LiveRegistry(manager)


def list_lines(registry: LiveRegistry) -> list[str]:
    """One line per plugin."""
    infos = registry.manager.plugins()
    if not infos:
        return ["no plugin is installed; pip install 'trilane[cli]' brings trilane-files and trilane-offline"]
    rows = [["NAME", "DISTRIBUTION", "VERSION", "STATUS", "HOOKS"]]
    for info in sorted(infos, key=lambda info: (info.name, info.distribution)):
        hooks = ", ".join(dict.fromkeys(call.hook for call in registry.hooks_of(info.name)))
        last = hooks if info.status == "loaded" else one_line(info.reason, 120)
        rows.append([info.name, info.distribution or "-", info.version or "-", info.status, last or "-"])
    lines = columns([[visible(cell) for cell in row] for row in rows])
    if registry.problem is not None:
        lines.append(f"the plugins cannot work together: {registry.problem}")
    return lines + list(blocks_nothing(registry.manager).values())


def info_lines(registry: LiveRegistry, name: str) -> list[str]:
    """Everything about one plugin.

    Raises:
        UsageError: no plugin of that name is installed.
    """
    matching = [info for info in registry.manager.plugins() if name in (info.name, info.distribution)]
    if not matching:
        from trilane.plugins.checks import and_more, nearest

        known = sorted({info.name for info in registry.manager.plugins()})
        hint = and_more(nearest(name, known), "see `trilane plugins list`")
        raise UsageError(f"no plugin {name!r} is installed{hint}")
    lines: list[str] = []
    for info in matching:
        lines += [*([""] if lines else []), *_about(registry, info)]
    return lines


def order_lines(registry: LiveRegistry, hook: str = "") -> list[str]:
    """The order in which a hook's implementations are called, with the reason for each place.

    Raises:
        UsageError: there is no such hook.
        HookSpecError: the order cannot be.
    """
    if hook and hook not in HOOKS:
        from trilane.plugins.checks import and_more, nearest

        hint = and_more(nearest(hook, HOOKS), f"the hooks are: {', '.join(HOOKS)}")
        raise UsageError(f"there is no hook {hook!r}{hint}")
    if registry.problem is not None:
        raise registry.problem
    compiled = registry.manager.compile()
    wanted = [hook] if hook else [name for name in HOOKS if getattr(compiled, name)]
    lines: list[str] = []
    for name in wanted:
        places = registry.manager.order(name)
        mode = f"{HOOKS[name].signature}: {HOOKS[name].mode}"
        lines += [*([""] if lines else []), mode if places else f"{mode}; no installed plugin implements it"]
        rows = [[f"{place}.", plugin, reason] for place, (plugin, reason) in enumerate(places, 1)]
        lines += ["  " + line for line in columns(rows, right=(0,))]
    return lines or ["no installed plugin implements any hook"]


def _about(registry: LiveRegistry, info: PluginInfo) -> list[str]:
    rows = [["plugin", info.name], ["distribution", info.origin], ["status", info.status]]
    if info.reason:
        rows.append(["reason", info.reason])
    rows.append(["entry point", info.value or "-"])
    rows += [[key, text] for key, text in _metadata(info.distribution).items() if text]
    if info.output.strip():
        rows.append(["printed", one_line(info.output, 200)])
    if info.status == "loaded":
        rows += _supplied(registry, info.name)
    lines = columns([[key, visible(text).replace("\n", " ")] for key, text in rows])
    calls = registry.hooks_of(info.name) if info.status == "loaded" else []
    if calls:
        lines.append(count(len(calls), "hook implementation"))
        table = [[call.hook, HOOKS[call.hook].mode, _marks(call), call.location] for call in calls]
        lines += ["  " + line for line in columns(table)]
    return lines


def _supplied(registry: LiveRegistry, name: str) -> list[list[str]]:
    rows = []
    for provider in registry.manager.model_providers():
        if provider.plugin == name:
            known = f" ({', '.join(provider.models)})" if provider.models else ""
            rows.append(["models", f"{provider.name}{known} {provider.description}".strip()])
    stores = [store.name for store in registry.manager.store_providers() if store.plugin == name]
    if stores:
        rows.append(["stores", ", ".join(stores)])
    return rows


def _marks(call: HookImplementation) -> str:
    marks = [
        "async" if call.is_async else "sync",
        "thread" if call.thread else "",
        "required" if call.required else "",
        "strict" if call.strict else "",
        f"timeout {call.timeout:g} s" if call.timeout is not None else "",
    ]
    return " ".join(mark for mark in marks if mark)


def _metadata(distribution: str) -> Mapping[str, str]:
    if not distribution:
        return {}
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        found = metadata(distribution)
    except PackageNotFoundError:
        return {}
    return {
        "summary": " ".join(found.get_all("Summary") or ()),
        "requires": ", ".join(found.get_all("Requires-Dist") or ()),
    }
