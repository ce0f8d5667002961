"""The plugins of one agent: registering, loading and blocking them, and the call lists made from them.

pluggy keeps the registry; it is made when the first plugin is registered, so that an agent without plugins pays
nothing. Nothing here calls a hook of a run; the `register_` hooks are called while a plugin is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from trilane._records import error_line
from trilane.errors import AgentProtocolError, HookSpecError, PluginLoadError
from trilane.hookspecs import HOOKS

from .blocking import blocks_nothing
from .discovery import (
    DISABLED_VARIABLE,
    Installed,
    PluginInfo,
    disabled_names,
    discover,
    entries,
    import_seconds_of_environment,
)
from .implementations import CompiledHooks, HookImplementation
from .naming import name_of, two_plugins, value_of
from .registries import ModelProvider, StoreProvider
from .supplies import Supplies
from .warning import warn_once

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import pluggy
    from pydantic import BaseModel

__all__ = ["PluginManager"]


class PluginManager:
    """The plugins of one agent, and nobody else's.

    Args:
        plugins: What to load at once, see `load`.
        disabled: Names that are not loaded, with those in `TRILANE_DISABLED_PLUGINS`.
        strict: True to raise where an installed plugin cannot be loaded; otherwise it is listed as failed.
        import_seconds: How long the import of one plugin may take; without it `TRILANE_IMPORT_SECONDS`, else 5.
        settings: Settings given in code, by plugin and key.
        active: The sessions of the runs that use these plugins now; while there are any, nothing may change.

    Attributes:
        disabled: The blocked names, each with the reason.

    Raises:
        ConfigError: `TRILANE_IMPORT_SECONDS` is no number above 0.
        PluginLoadError: as `load` does.
    """

    def __init__(
        self,
        plugins: Sequence[object] | Installed = (),
        *,
        disabled: Iterable[str] = (),
        strict: bool = False,
        import_seconds: float | None = None,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        active: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.disabled = disabled_names(disabled)
        self._active = active
        self._strict = strict
        self._import_seconds = import_seconds_of_environment() if import_seconds is None else import_seconds
        self._settings_in_code = settings or {}
        self._pluggy: pluggy.PluginManager | None = None
        self._infos: dict[str, PluginInfo] = {}
        self._supplies: dict[str, Supplies] = {}
        self._inactive: dict[str, Supplies] = {}
        self._set_aside: dict[str, object] = {}
        self._compiled: CompiledHooks | None = None
        self._made: dict[tuple[str, str, Callable[..., object]], HookImplementation] = {}
        if plugins:
            self.load(plugins)

    # ---- registering -------------------------------------------------------------------------------------------------

    def register(self, plugin: object, name: str | None = None) -> str | None:
        """Register an instance or a module, all of it or nothing, and return its name.

        Args:
            plugin: An object or a module with `@hookimpl` functions.
            name: Its name. Otherwise its attribute `name`, else the name of its class or module.

        Returns:
            The name, or None if it is blocked.

        Raises:
            AgentProtocolError: a run is active.
            HookSpecError: something in it does not fit a hook.
            PluginLoadError: the name is taken, or one of its `register_` hooks failed.
        """
        from .checks import check_object

        self._refuse_during_runs()
        chosen = name or name_of(plugin)
        check_object(plugin, chosen)
        return self._register(plugin, PluginInfo(name=chosen, value=value_of(plugin)))

    def unregister(self, name: str) -> object:
        """Remove a plugin with everything it registered, and return it.

        Raises:
            AgentProtocolError: a run is active.
            PluginLoadError: no plugin of that name is registered.
        """
        self._refuse_during_runs()
        plugin = self.get(name)
        if plugin is None or self._pluggy is None:
            from .checks import nearest

            raise PluginLoadError(f"no plugin {name!r} is registered{nearest(name, self.names())}", plugin=name)
        self._pluggy.unregister(name=name)
        self._supplies.pop(name, None)
        self._inactive.pop(name, None)
        self._infos.pop(name, None)
        self._compiled = None
        return plugin

    def _refuse_during_runs(self) -> None:
        sessions = self._active()
        if sessions:
            raise AgentProtocolError(
                f"plugins cannot change while a run is active (session {', '.join(map(repr, sorted(sessions)))}); wait "
                "for its end, stop it through agent.active(session), or use another Agent"
            )

    def names(self) -> tuple[str, ...]:
        """Names of the registered plugins, in the order in which they were registered."""
        return () if self._pluggy is None else tuple(name for name, _ in self._pluggy.list_name_plugin())

    def get(self, name: str) -> object | None:
        """The registered plugin of that name, or None."""
        return None if self._pluggy is None else self._pluggy.get_plugin(name)

    def plugins(self) -> list[PluginInfo]:
        """Every plugin this manager has loaded, or met and not loaded, with the reason."""
        return list(self._infos.values())

    # ---- loading -----------------------------------------------------------------------------------------------------

    def load(self, plugins: Sequence[object] | Installed) -> None:
        """Register every item: an instance, a module, the name of an installed plugin, or `installed()`.

        An installed plugin that cannot be imported or registered is listed as failed, and the others are loaded. An
        item that was given as an object must be right. With `installed()` what is given by itself wins over the
        installed plugin of the same name. If this raises, nothing of `plugins` stays registered.

        Raises:
            AgentProtocolError: a run is active.
            PluginLoadError: an object that cannot be registered, a name that is not installed; an order that cannot be;
                with `strict` also whatever else went wrong.
        """
        self._refuse_during_runs()
        items = [plugins] if isinstance(plugins, (Installed, str, ModuleType)) else list(plugins)
        given = {name_of(item) for item in items if not isinstance(item, (str, Installed))}
        before = self.names()
        try:
            for item in items:
                if isinstance(item, Installed):
                    self._load_installed(given)
                elif isinstance(item, str):
                    self._load_named(item)
                else:
                    self.register(item)
            self.check()
            for sentence in blocks_nothing(self).values():
                warn_once(sentence)
            if any(isinstance(item, Installed) for item in items):  # else the section may be of a plugin left out
                from .unread import unread_sections

                for sentence, is_misspelt in unread_sections(self):
                    if is_misspelt:
                        warn_once(sentence)
        except BaseException:
            for name in set(self.names()).difference(before):
                self.unregister(name)
            raise

    def _load_installed(self, given: Collection[str]) -> None:
        for info, point in entries():
            if info.name in self.disabled:
                self._block(info)
            elif info.status != "available":
                self._not_loaded(info)
            elif info.name in given:
                self._infos.setdefault(info.name, info.replace(status="duplicate", reason="given as an object as well"))
            elif point is not None and self._status(info.name) != "loaded":
                self._load(info, point)

    def _load_named(self, name: str) -> None:
        if name in self.disabled:
            matching = [info for info, _ in entries() if info.name == name]
            self._block(matching[0] if matching else PluginInfo(name=name))
            return
        found = [(info, point) for info, point in entries() if info.name == name and point is not None]
        if not found:
            from .checks import nearest

            names = sorted({info.name for info, _ in entries()})
            raise PluginLoadError(
                f"no plugin {name!r} is installed{nearest(name, names)} "
                f"(if its package is missing: pip install trilane-{name})",
                plugin=name,
            )
        for info, point in found:
            if info.status != "available":
                self._not_loaded(info)
            elif self._status(name) != "loaded":
                self._load(info, point)
            elif not self._infos[name].distribution:
                raise two_plugins(self._infos[name], info)

    def _block(self, info: PluginInfo) -> None:
        self._infos[info.name] = info.replace(status="blocked", reason=self.disabled[info.name])

    def _load(self, info: PluginInfo, point: EntryPoint) -> None:
        """Import and register one installed plugin; failures are listed, or raised where the manager is strict."""
        plugin, info, error = self._import(info, point)
        if error is None:
            try:
                self._register(plugin, info)
                return
            except Exception as refused:
                error = refused
        reason = str(error) if isinstance(error, PluginLoadError) else error_line(error)
        self._not_loaded(info.replace(status="failed", reason=reason), error)

    def _import(self, info: PluginInfo, point: EntryPoint) -> tuple[object, PluginInfo, BaseException | None]:
        """What the entry point stands for: a module, or an instance of a class, made here for this manager."""
        from .importing import import_value

        report = import_value(point, import_seconds=self._import_seconds)
        if report.output:
            info = info.replace(output=report.output)
            warn_once(
                f"plugin {info.name!r} of {info.origin} printed while it was imported: {report.output.strip()[:200]!r}"
            )
        if report.error is not None:
            return None, info, report.error
        if not isinstance(report.value, type):
            return report.value, info, None
        try:
            return report.value(), info, None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a border to plugins: nothing its constructor raises may stop the others
            return None, info, error

    def _not_loaded(self, info: PluginInfo, error: BaseException | None = None) -> None:
        if info.status == "duplicate":
            self._infos[f"{info.name} ({info.origin}, {info.value})"] = info
            message = info.reason
        else:
            self._infos[info.name] = info
            message = f"plugin {info.name!r} of {info.origin}, entry point {info.value!r}, is not loaded: {info.reason}"
        if self._strict:
            raise PluginLoadError(message, plugin=info.name) from error
        warn_once(message)

    def _status(self, name: str) -> str:
        found = self._infos.get(name)
        return "" if found is None else found.status

    def _register(self, plugin: object, info: PluginInfo) -> str | None:
        name = info.name
        if name in self.disabled:
            self._block(info)
            return None
        supplies = self._prepare(plugin, info)
        registry = self._registry()
        try:
            registry.register(plugin, name=name)
        except Exception as error:
            raise PluginLoadError(f"plugin {name!r} cannot be registered: {error}", plugin=name) from error
        self._supplies[name] = supplies
        self._infos[name] = info.replace(status="loaded", reason="")
        self._compiled = None
        return name

    def _prepare(self, plugin: object, info: PluginInfo, *, again: bool = False) -> Supplies:
        """Check a plugin and collect what it supplies; nothing is registered yet. `again`: in place of its old self."""
        from .checks import check_object, check_plugin

        name = info.name
        check_object(plugin, name)
        self._refuse_duplicate(plugin, info, again=again)
        functions = check_plugin(plugin, name)
        if not functions:
            warn_once(f"plugin {name!r} implements no hook, so it does nothing; mark its functions with @hookimpl")
        supplies = Supplies(name, self._settings_in_code)
        supplies.collect(functions)
        supplies.refuse_taken(other for owner, other in self._supplies.items() if owner != name)
        return supplies

    def _refuse_duplicate(self, plugin: object, info: PluginInfo, *, again: bool = False) -> None:
        for name in self.names():
            other = self.get(name)
            if name == info.name and not again:
                raise two_plugins(self._infos[name], info)
            if other is plugin or other == plugin:  # pluggy tells plugins apart with ==
                raise PluginLoadError(
                    f"plugin {info.name!r} is {'the same object as' if other is plugin else 'equal to'} the plugin "
                    f"{name!r}; register it once",
                    plugin=info.name,
                )

    def _registry(self) -> pluggy.PluginManager:
        if self._pluggy is None:
            from .registry import Registry

            self._pluggy = Registry()
        return self._pluggy

    # ---- between runs ------------------------------------------------------------------------------------------------

    def enable(self, plugin: object) -> str:
        """Take a plugin into use: one that `disable` took out or that is blocked, another installed one, an object.

        Args:
            plugin: Name of a plugin, or an instance or a module.

        Returns:
            Its name.

        Raises:
            AgentProtocolError: a run is active.
            PluginLoadError: it is loaded already, cannot be loaded, or is blocked by `TRILANE_DISABLED_PLUGINS`; then
                nothing has changed.
        """
        self._refuse_during_runs()
        name = plugin if isinstance(plugin, str) else name_of(plugin)
        if self.get(name) is not None:
            raise PluginLoadError(f"plugin {name!r} is loaded already; reload(name) loads it anew", plugin=name)
        reason, info = self.disabled.get(name), self._infos.get(name)
        if reason is not None and DISABLED_VARIABLE in reason:
            raise PluginLoadError(f"plugin {name!r} is {reason}; take its name out of that variable first", plugin=name)
        self.disabled.pop(name, None)
        try:
            self.load([self._set_aside.get(name, plugin)])
            if self._status(name) != "loaded":
                raise PluginLoadError(f"plugin {name!r} cannot be enabled: {self._infos[name].reason}", plugin=name)
        except BaseException:
            if reason is not None:
                self.disabled[name] = reason
            self._infos.pop(name, None)
            if info is not None:
                self._infos[name] = info
            raise
        self._set_aside.pop(name, None)
        self._inactive.pop(name, None)
        return name

    def disable(self, name: str) -> None:
        """Take a plugin out of use, with its hooks, tools, models, stores and settings; it is listed as blocked.

        One that was given as an object is kept for `enable`; `unregister` forgets it.

        Raises:
            AgentProtocolError: a run is active.
            PluginLoadError: no plugin of that name is loaded or installed, or another one needs it for its order.
        """
        self._refuse_during_runs()
        plugin = self.get(name)
        if plugin is None and name not in self._known_names():
            from .checks import nearest

            raise PluginLoadError(
                f"no plugin {name!r} is loaded or installed{nearest(name, self._known_names())}", plugin=name
            )
        info = self._infos.get(name) or PluginInfo(name=name)
        if plugin is not None:
            self.unregister(name)
            if not info.distribution:
                self._set_aside[name] = plugin
        self._inactive.pop(name, None)
        self.disabled.setdefault(name, "blocked by plugins.disable(name)")
        self._block(info)
        self.compile()

    def reload(self, name: str) -> None:
        """Import an installed plugin anew and put it in place of its old self, in the same place of the order.

        All its modules are imported again, with whatever state they keep. If that fails, the old one stays in use.

        Raises:
            AgentProtocolError: a run is active.
            PluginLoadError: it was given as an object, is blocked or not installed, or cannot be loaded.
        """
        self._refuse_during_runs()
        if self.get(name) is not None and not self._infos[name].distribution:
            raise PluginLoadError(
                f"plugin {name!r} was given as an object, so there is nothing to import anew; "
                "unregister(name) it and enable(...) a new object",
                plugin=name,
            )
        if name in self.disabled:
            raise PluginLoadError(f"plugin {name!r} is {self.disabled[name]}; enable(name) it", plugin=name)
        found = [(info, point) for info, point in entries() if info.name == name and info.status == "available"]
        if not found or found[0][1] is None:
            from .checks import nearest

            names = sorted({info.name for info, _ in entries()})
            raise PluginLoadError(f"no plugin {name!r} is installed{nearest(name, names)}", plugin=name)
        self._load_anew(found[0][0], found[0][1])

    def _load_anew(self, info: PluginInfo, point: EntryPoint) -> None:
        from .reloading import TakenOut

        name = info.name
        old = TakenOut(point)
        try:
            plugin, info, error = self._import(info, point)
            if error is not None:
                raise error
            self._replace(name, plugin, self._prepare(plugin, info, again=True))
        except KeyboardInterrupt:
            old.put_back()
            raise
        except BaseException as error:  # the border to a plugin: SystemExit at import is a failure of it
            old.put_back()
            stays = ", the old one stays in use" if self.get(name) is not None else ""
            raise PluginLoadError(
                f"plugin {name!r} of {info.origin} cannot be loaded anew{stays}: {error_line(error)}",
                plugin=name,
            ) from error
        self._infos[name] = info.replace(status="loaded", reason="")
        self._inactive.pop(name, None)

    def _replace(self, name: str, plugin: object, supplies: Supplies) -> None:
        """Put `plugin` where the one of that name is, or last; nothing has changed if the order cannot be."""
        before = [(known, self.get(known)) for known in self.names()]
        after = [(known, plugin if known == name else other) for known, other in before]
        if name not in self.names():
            after.append((name, plugin))
        try:
            self._arrange(after)
            self.check()
        except BaseException:
            self._arrange(before)
            raise
        self._supplies[name] = supplies

    def _arrange(self, plugins: Sequence[tuple[str, object]]) -> None:
        """Register exactly these, in this order."""
        registry = self._registry()
        for name in self.names():
            registry.unregister(name=name)
        for name, plugin in plugins:
            registry.register(plugin, name=name)
        self._compiled = None

    # ---- what plugins supply -----------------------------------------------------------------------------------------

    def model_providers(self) -> list[ModelProvider]:
        """The model providers of the active plugins."""
        return [provider for supplies in self._supplies.values() for provider in supplies.models.providers.values()]

    def store_providers(self) -> list[StoreProvider]:
        """The session stores of the active plugins."""
        return [provider for supplies in self._supplies.values() for provider in supplies.stores.providers.values()]

    def settings_names(self, plugin: str) -> tuple[str, ...]:
        """The names under which a loaded plugin has declared settings, usually its own or none."""
        supplies = self._supplies.get(plugin)
        return () if supplies is None else supplies.settings.names()

    def settings(self, name: str) -> BaseModel:
        """The settings that an active plugin declared as `name`.

        Raises:
            ConfigError: they cannot be used; the message names key and source.
            PluginLoadError: no active plugin declared them.
        """
        for supplies in self._supplies.values():
            if name in supplies.settings.names():
                return supplies.settings.get(name)
        from .checks import nearest

        names = [found for supplies in self._supplies.values() for found in supplies.settings.names()]
        raise PluginLoadError(f"no active plugin has settings {name!r}{nearest(name, names)}", plugin=name)

    def find_model_provider(self, name: str) -> ModelProvider | None:
        """The provider of that name from an active plugin, else from the installed plugin of that name.

        Of an installed plugin that is not active only `register_settings` and `register_models` are called.

        Raises:
            PluginLoadError: the installed plugin cannot be loaded.
        """
        for provider in self.model_providers():
            if provider.name == name:
                return provider
        if name not in self._inactive and name not in self.disabled:
            for info, point in entries():
                if info.name == name and point is not None and info.status == "available":
                    self._inactive[name] = self._load_provider(info, point)
        supplies = self._inactive.get(name)
        return None if supplies is None else supplies.models.providers.get(name)

    def _load_provider(self, info: PluginInfo, point: EntryPoint) -> Supplies:
        from .checks import check_object, check_plugin

        plugin, info, error = self._import(info, point)
        if error is not None:
            raise PluginLoadError(
                f"plugin {info.name!r} of {info.origin} supplies models but cannot be loaded: {error_line(error)}",
                plugin=info.name,
            ) from error
        check_object(plugin, info.name)
        functions = check_plugin(plugin, info.name)
        supplies = Supplies(info.name, self._settings_in_code)
        supplies.collect(functions, ("register_settings", "register_models"))
        return supplies

    # ---- order and call lists ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check what only the complete set of plugins shows.

        Raises:
            HookSpecError: `before=` or `after=` with a name nobody has, or a circle of them.
        """
        self.compile()
        if self._pluggy is not None:
            self._pluggy.check_pending()

    def order(self, hook: str) -> list[tuple[str, str]]:
        """The plugins that implement `hook` in calling order, each with why it stands there.

        Raises:
            HookSpecError: there is no such hook, or the order cannot be.
        """
        if hook not in HOOKS:
            from .checks import nearest

            raise HookSpecError(f"there is no hook {hook!r}{nearest(hook, HOOKS)}")
        from .ordering import reasons

        return reasons(hook, self._arranged(hook))

    def compile(self) -> CompiledHooks:
        """The implementations of every hook in calling order; the same object until the plugins change.

        Raises:
            HookSpecError: as `check`.
        """
        if self._compiled is None:
            self._compiled = _NO_HOOKS if self._pluggy is None else self._compile()
        return self._compiled

    def _compile(self) -> CompiledHooks:
        from .implementations import implementation

        # What stays keeps its object, and with it what agents remember of it, such as failures in a row.
        before, self._made = self._made, {}
        calls: dict[str, tuple[HookImplementation, ...]] = {}
        for hook in HOOKS:
            made = []
            for impl in self._arranged(hook):
                key = (hook, impl.plugin_name, impl.function)
                self._made[key] = before.get(key) or implementation(hook, impl)
                made.append(self._made[key])
            if made:
                calls[hook] = tuple(made)
        return CompiledHooks(calls)

    def _arranged(self, hook: str) -> list[pluggy.HookImpl]:
        from .ordering import arrange

        if self._pluggy is None:
            return []
        caller: pluggy.HookCaller = getattr(self._pluggy.hook, hook)
        return arrange(hook, caller.get_hookimpls()[::-1], self._known_names)

    def _known_names(self) -> set[str]:
        return {*self.names(), *self.disabled, *(info.name for info in discover())}

    def __repr__(self) -> str:
        return f"<PluginManager {', '.join(self.names()) or 'without plugins'}>"


_NO_HOOKS = CompiledHooks({})
