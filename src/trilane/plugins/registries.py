"""What plugins supply by name: model providers and session stores, and how a name finds its factory.

Settings have their own file, `settings.py`. What a model is, is in `models.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

from trilane._records import Record, error_line, error_words
from trilane.errors import ConfigError, PluginLoadError, UnknownModelError

from .settings import SettingsRegistry

if TYPE_CHECKING:
    from trilane.models import Model
    from trilane.stores import SessionStore

    from .manager import PluginManager

    ModelFactory: TypeAlias = Callable[[str], Model]
    StoreFactory: TypeAlias = Callable[[str], SessionStore]

__all__ = [
    "ModelProvider",
    "ModelRegistry",
    "StoreProvider",
    "StoreRegistry",
    "resolve_model",
    "resolve_store",
    "store_plugin",
]


class ModelProvider(Record):
    """A provider as a plugin has registered it.

    Attributes:
        name: What stands before the colon in `openai:NAME`.
        plugin: Name of the plugin.
        factory: Makes a model from what stands after the colon.
        models: Names it is known to accept, the default first; there may be others.
        description: One line for lists.
    """

    name: str
    plugin: str
    factory: ModelFactory
    models: tuple[str, ...] = ()
    description: str = ""


class StoreProvider(Record):
    """A kind of session store as a plugin has registered it; `factory` gets what stands after the colon."""

    name: str
    plugin: str
    factory: StoreFactory


class ModelRegistry:
    """What a plugin's `register_models` gets.

    Attributes:
        settings: The plugin's settings, for the factories to read when they are called.
    """

    __slots__ = ("_plugin", "providers", "settings")

    def __init__(self, plugin: str = "", settings: SettingsRegistry | None = None) -> None:
        self._plugin = plugin
        self.settings = settings or SettingsRegistry(plugin)
        self.providers: dict[str, ModelProvider] = {}

    def add(self, provider: str, factory: ModelFactory, *, models: Sequence[str] = (), description: str = "") -> None:
        """Supply the models `provider:NAME`.

        Args:
            provider: What stands before the colon. Give the plugin's entry point this name, and the provider is found
                wherever the plugin is installed.
            factory: Called with NAME; for a bare `provider` with the first of `models`, or with an empty text. Raises
                `LookupError` for a name it does not know. Import the provider's SDK in the model's first call.
            models: Names it is known to accept, the default first.
            description: One line for lists.

        Raises:
            PluginLoadError: an unusable name, or one that is registered already.
        """
        _check_name(self._plugin, "model provider", provider, self.providers)
        self.providers[provider] = ModelProvider(
            name=provider, plugin=self._plugin, factory=factory, models=tuple(models), description=description
        )


class StoreRegistry:
    """What a plugin's `register_stores` gets.

    Attributes:
        settings: The plugin's settings, for the factories to read when they are called.
    """

    __slots__ = ("_plugin", "providers", "settings")

    def __init__(self, plugin: str = "", settings: SettingsRegistry | None = None) -> None:
        self._plugin = plugin
        self.settings = settings or SettingsRegistry(plugin)
        self.providers: dict[str, StoreProvider] = {}

    def add(self, name: str, factory: StoreFactory) -> None:
        """Supply the stores `name:PLACE`.

        Args:
            name: What stands before the colon.
            factory: Called with PLACE, empty if there is none.

        Raises:
            PluginLoadError: an unusable name, or one that is registered already.
        """
        _check_name(self._plugin, "session store", name, self.providers)
        self.providers[name] = StoreProvider(name=name, plugin=self._plugin, factory=factory)


def resolve_model(spec: str | Model, manager: PluginManager) -> Model:
    """The model that `spec` means: a model as it is, or the one a provider makes for `PROVIDER:NAME` or `PROVIDER`.

    A provider that no active plugin supplies is looked for among the installed plugins: the entry point of that name
    is loaded for its `register_models` only.

    Raises:
        UnknownModelError: no such provider or model, or its plugin is blocked.
        PluginLoadError: the provider's plugin cannot be loaded, or its factory fails or makes something else.
    """
    from trilane.models import Model

    if not isinstance(spec, str):
        if isinstance(spec, Model):
            return spec
        raise ConfigError(f"{spec!r} is not a model; give a model object, or a text such as 'offline' or 'openai:NAME'")
    name, _, model_name = spec.partition(":")
    provider = manager.find_model_provider(name) if name else None
    if provider is None:
        raise _unknown_provider(spec, name, manager)
    chosen = model_name or (provider.models[0] if provider.models else "")
    try:
        model = provider.factory(chosen)
    except ConfigError:
        raise
    except LookupError as error:
        from .checks import nearest

        raise UnknownModelError(
            f"provider {name!r} has no model {chosen!r}{nearest(chosen, provider.models)}"
        ) from error
    except Exception as error:
        raise PluginLoadError(
            f"plugin {provider.plugin!r}: its factory failed to make the model {spec!r}: {_brief(error)}",
            plugin=provider.plugin,
        ) from error
    if not isinstance(model, Model):
        raise PluginLoadError(
            f"plugin {provider.plugin!r}: its factory made {type(model).__name__} for {spec!r}, which is not a Model; "
            "a Model has a name and an async call(request, emit)",
            plugin=provider.plugin,
        )
    return model


def resolve_store(spec: str, manager: PluginManager) -> SessionStore:
    """The session store that `NAME:PLACE` or `NAME` means, supplied by an active plugin.

    Raises:
        ConfigError: no active plugin supplies it.
        PluginLoadError: its factory fails.
    """
    name, _, place = spec.partition(":")
    stores = {provider.name: provider for provider in manager.store_providers()}
    provider = stores.get(name)
    if provider is None:
        from .checks import and_more, nearest

        hint = and_more(nearest(name, stores), "give the agent the plugin that does")
        raise ConfigError(f"no active plugin supplies the session store {name!r}{hint}")
    try:
        return provider.factory(place)
    except ConfigError:
        raise
    except Exception as error:
        raise PluginLoadError(
            f"plugin {provider.plugin!r}: its factory failed to make the session store {spec!r}: {_brief(error)}",
            plugin=provider.plugin,
        ) from error


def store_plugin(spec: str) -> str:
    """Name of the installed plugin that supplies the session store `NAME:PLACE` or `NAME`; empty if none does.

    It is the plugin of that name. Where there is none, as with a URL, whose scheme is the name, the others are loaded
    and asked, first the one with whose name the scheme begins.
    """
    from .discovery import discover
    from .manager import PluginManager

    name = spec.partition(":")[0]
    installed = {info.name: info.status for info in discover()}
    if name in installed:
        return name
    for plugin in sorted(installed, key=lambda one: (not name.startswith(one), one)):
        if installed[plugin] == "available" and name in {
            provider.name for provider in PluginManager([plugin]).store_providers()
        }:
            return plugin
    return ""


def _unknown_provider(spec: str, name: str, manager: PluginManager) -> UnknownModelError:
    from .checks import nearest
    from .discovery import DISABLED_VARIABLE, discover

    if name in manager.disabled:
        return UnknownModelError(
            f"the model {spec!r} needs the plugin {name!r}, which is blocked; remove it from {DISABLED_VARIABLE}, "
            "disabled_plugins or -p no:NAME"
        )
    active = manager.model_providers()
    owners = [f"{provider.name}:{spec}" for provider in active if spec in provider.models]
    if owners:
        return UnknownModelError(f"the model {spec!r} needs its provider before it; did you mean {owners[0]!r}?")
    installed = {info.name for info in discover(manager.disabled)}
    providers = {provider.name for provider in active}
    # Which of the plugins that are not loaded supply models is known only when they are imported: they are not listed,
    # and the one whose name is nearest is asked.
    near = re.search(r"did you mean '(.+)'", nearest(name, installed))
    if near and near[1] not in providers and manager.get(near[1]) is None and _supplies_models(near[1], manager):
        providers = {near[1]}
    hint = nearest(name, providers)
    if name in installed:
        return UnknownModelError(f"the model {spec!r} cannot be made: the plugin {name!r} supplies no models{hint}")
    missing = f" (if its package is missing: pip install trilane-{name})"
    cure = missing if _is_name(name) and "did you mean" not in hint else ""
    return UnknownModelError(f"no plugin supplies the provider {name!r} of {spec!r}{hint}{cure}")


def _supplies_models(name: str, manager: PluginManager) -> bool:
    try:
        return manager.find_model_provider(name) is not None
    except PluginLoadError:
        return True  # what is wrong with it is said when it is asked for by its right name


def _is_name(name: str) -> bool:
    return bool(name) and all(letter.isalnum() or letter in "-_." for letter in name)


def _check_name(plugin: str, what: str, name: str, taken: Collection[str]) -> None:
    if not _is_name(name):
        raise PluginLoadError(
            f"plugin {plugin!r}: {name!r} is no name for a {what}; use letters, digits, '-', '_' and '.'", plugin=plugin
        )
    if name in taken:
        raise PluginLoadError(f"plugin {plugin!r} registers the {what} {name!r} twice; remove one", plugin=plugin)


def _brief(error: BaseException) -> str:
    return error_line(error) if error_words(error) else type(error).__name__
