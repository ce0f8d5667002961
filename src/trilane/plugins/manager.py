"""The plugins of one agent: registering, loading and blocking them, and the call lists made from them.

pluggy keeps the registry; it is made when the first plugin is registered, so that an agent without plugins pays
nothing. Nothing here calls a hook of a run; the `register_` hooks are called while a plugin is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from trilane.errors import HookSpecError, PluginLoadError
from trilane.hookspecs import HOOKS

from .discovery import Installed, PluginInfo, disabled_names, discover, entries
from .implementations import CompiledHooks
from .registries import ModelProvider, StoreProvider
from .supplies import Supplies

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
        import_seconds: How long the import of one plugin may take.
        settings: Settings given in code, by plugin and key.

    Attributes:
        disabled: The blocked names, each with the reason.

    Raises:
        PluginLoadError: as `load` does.
    """

    def __init__(
        self,
        plugins: Sequence[object] | Installed = (),
        *,
        disabled: Iterable[str] = (),
        strict: bool = False,
        import_seconds: float = 5.0,
        settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.disabled = disabled_names(disabled)
        self._strict = strict
        self._import_seconds = import_seconds
        self._settings_in_code = settings or {}
        self._pluggy: pluggy.PluginManager | None = None
        self._infos: dict[str, PluginInfo] = {}
        self._supplies: dict[str, Supplies] = {}
        self._inactive: dict[str, Supplies] = {}
        self._compiled: CompiledHooks | None = None
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
            HookSpecError: something in it does not fit a hook.
            PluginLoadError: the name is taken, or one of its `register_` hooks failed.
        """
        from .checks import check_object

        chosen = name or _name_of(plugin)
        check_object(plugin, chosen)
        return self._register(plugin, PluginInfo(name=chosen, value=_value_of(plugin)))

    def unregister(self, name: str) -> object:
        """Remove a plugin with everything it registered, and return it.

        Raises:
            PluginLoadError: no plugin of that name is registered.
        """
        plugin = self.get(name)
        if plugin is None or self._pluggy is None:
            from .checks import nearest

            raise PluginLoadError(f"no plugin {name!r} is registered{nearest(name, self.names())}", plugin=name)
        self._pluggy.unregister(name=name)
        self._supplies.pop(name, None)
        self._infos.pop(name, None)
        self._compiled = None
        return plugin

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
            PluginLoadError: an object that cannot be registered, a name that is not installed; an order that cannot be;
                with `strict` also whatever else went wrong.
        """
        items = [plugins] if isinstance(plugins, (Installed, str, ModuleType)) else list(plugins)
        given = {_name_of(item) for item in items if not isinstance(item, (str, Installed))}
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
                raise _two_plugins(self._infos[name], info)

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
        reason = str(error) if isinstance(error, PluginLoadError) else f"{type(error).__name__}: {error}"
        self._not_loaded(info.replace(status="failed", reason=reason), error)

    def _import(self, info: PluginInfo, point: EntryPoint) -> tuple[object, PluginInfo, BaseException | None]:
        """What the entry point stands for: a module, or an instance of a class, made here for this manager."""
        from .importing import import_value

        report = import_value(point, import_seconds=self._import_seconds)
        if report.output:
            info = info.replace(output=report.output)
            _warn(
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
        _warn(message)

    def _status(self, name: str) -> str:
        found = self._infos.get(name)
        return "" if found is None else found.status

    def _register(self, plugin: object, info: PluginInfo) -> str | None:
        from .checks import check_object, check_plugin

        name = info.name
        if name in self.disabled:
            self._block(info)
            return None
        check_object(plugin, name)
        self._refuse_duplicate(plugin, info)
        functions = check_plugin(plugin, name)
        supplies = Supplies(name, self._settings_in_code)
        supplies.collect(functions)
        supplies.refuse_taken(self._supplies.values())
        registry = self._registry()
        try:
            registry.register(plugin, name=name)
        except Exception as error:
            raise PluginLoadError(f"plugin {name!r} cannot be registered: {error}", plugin=name) from error
        self._supplies[name] = supplies
        self._infos[name] = info.replace(status="loaded", reason="")
        self._compiled = None
        return name

    def _refuse_duplicate(self, plugin: object, info: PluginInfo) -> None:
        for name in self.names():
            other = self.get(name)
            if name == info.name:
                raise _two_plugins(self._infos[name], info)
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

    # ---- what plugins supply -----------------------------------------------------------------------------------------

    def model_providers(self) -> list[ModelProvider]:
        """The model providers of the active plugins."""
        return [provider for supplies in self._supplies.values() for provider in supplies.models.providers.values()]

    def store_providers(self) -> list[StoreProvider]:
        """The session stores of the active plugins."""
        return [provider for supplies in self._supplies.values() for provider in supplies.stores.providers.values()]

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
                f"plugin {info.name!r} of {info.origin} supplies models but cannot be loaded: "
                f"{type(error).__name__}: {error}",
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

        return CompiledHooks(
            {
                hook: tuple(implementation(hook, impl) for impl in impls)
                for hook in HOOKS
                if (impls := self._arranged(hook))
            }
        )

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


def _two_plugins(first: PluginInfo, second: PluginInfo) -> PluginLoadError:
    return PluginLoadError(
        f"two plugins are called {first.name!r}: {first.origin} and {second.origin}; give one of them another name, "
        "or use only one",
        plugin=first.name,
    )


def _name_of(plugin: object) -> str:
    try:
        name = getattr(plugin, "name", None)
    except Exception:  # a property that is not ready yet; the class has a name in any case
        name = None
    if isinstance(name, str) and name and not isinstance(plugin, type):
        return name
    if isinstance(plugin, (ModuleType, type)):
        return plugin.__name__
    return type(plugin).__name__


def _value_of(plugin: object) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return f"{type(plugin).__module__}:{type(plugin).__qualname__}"


_warned: set[str] = set()


def _warn(message: str) -> None:
    """Once per process: with an agent per request the same plugin fails thousands of times."""
    if message not in _warned:
        _warned.add(message)
        from logging import getLogger

        getLogger("trilane").warning(message)


_NO_HOOKS = CompiledHooks({})
