"""Settings of plugins: a pydantic model for each, filled from code, the environment and files.

From strongest to weakest: values given in code, `TRILANE_<PLUGIN>_<KEY>`, `trilane.toml`, `[tool.trilane]` of
`pyproject.toml`, both in the working directory and with a section for each plugin. pydantic, and the files, are only
touched when somebody reads settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from trilane._records import Record
from trilane.errors import ConfigError, PluginLoadError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    ModelT = TypeVar("ModelT", bound=BaseModel)

__all__ = ["SettingsRegistry", "prefix_of", "variables"]


class _Value(Record):
    """A value of one key, and where it was found."""

    value: object
    source: str


class _Section(Record):
    plugin: str
    model: type[BaseModel]
    values: Mapping[str, object]


class SettingsRegistry:
    """What a plugin's `register_settings` gets: declare settings with `add`, read them later with `get`.

    Args:
        plugin: Name of the plugin it belongs to.
        values: Values that the host gives in code, by section and key.
    """

    __slots__ = ("_plugin", "_read", "_sections", "_values")

    def __init__(self, plugin: str = "", *, values: Mapping[str, Mapping[str, object]] | None = None) -> None:
        self._plugin = plugin
        self._values = values or {}
        self._sections: dict[str, _Section] = {}
        self._read: dict[str, BaseModel] = {}

    def add(self, name: str, model: type[BaseModel], *, values: Mapping[str, object] | None = None) -> None:
        """Declare the settings of section `name`, usually the plugin's name.

        Args:
            name: Name of the section.
            model: A pydantic model. Its fields are the keys.
            values: Values that the plugin was given in code; weaker than those the host gives, stronger than the rest.

        Raises:
            PluginLoadError: the section is declared already, or `model` is not a pydantic model.
        """
        if name in self._sections:
            raise PluginLoadError(
                f"plugin {self._plugin!r} declares the settings {name!r} twice; remove one", plugin=self._plugin
            )
        if not (isinstance(model, type) and hasattr(model, "model_fields")):
            raise PluginLoadError(
                f"plugin {self._plugin!r}: the settings {name!r} need a pydantic model class, not {model!r}",
                plugin=self._plugin,
            )
        self._sections[name] = _Section(plugin=self._plugin, model=model, values=dict(values or {}))

    @overload
    def get(self, name: str) -> BaseModel: ...

    @overload
    def get(self, name: str, model: type[ModelT]) -> ModelT: ...

    def get(self, name: str, model: type[BaseModel] | None = None) -> BaseModel:
        """The settings of section `name`, read once and then kept.

        Args:
            name: Name of the section.
            model: The model it was declared with, for type checkers.

        Raises:
            ConfigError: a value is wrong, missing or unknown; the message names the key and where it was found.
            PluginLoadError: no such section, or it was declared with another model.
        """
        section = self._sections.get(name)
        if section is None:
            from .checks import nearest

            raise PluginLoadError(
                f"plugin {self._plugin!r} has declared no settings {name!r}{nearest(name, self._sections)}",
                plugin=self._plugin,
            )
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = _resolve(name, section, self._values.get(name, {}))
        if model is not None and not isinstance(found, model):
            raise PluginLoadError(
                f"the settings {name!r} are declared as {section.model.__name__}, not {model.__name__}",
                plugin=self._plugin,
            )
        return found

    def names(self) -> tuple[str, ...]:
        """The declared sections."""
        return tuple(self._sections)


def _resolve(name: str, section: _Section, in_code: Mapping[str, object]) -> BaseModel:
    from pydantic import ValidationError

    model = section.model
    found = _collect(name, section, in_code)
    _refuse_unknown(name, model, found)
    from .unread import unread_variables
    from .warning import warn_once

    for sentence in unread_variables(name, model):  # a warning only: others may have variables that begin alike
        warn_once(sentence)
    try:
        return _validated(model, found)
    except ValidationError as error:
        failure = error
    # Text of the environment may stand for a list or a table: read as JSON what did not fit as text.
    parsed = _parse_json(found, failure)
    if parsed is not None:
        try:
            return _validated(model, parsed)
        except ValidationError as error:
            failure = error
    raise _wrong(name, found, failure) from None  # pydantic's own text shows the values, which may be secret


def _validated(model: type[BaseModel], found: Mapping[str, _Value]) -> BaseModel:
    return model.model_validate({key: item.value for key, item in found.items()})


def _collect(name: str, section: _Section, in_code: Mapping[str, object]) -> dict[str, _Value]:
    """For each key the strongest value."""
    found: dict[str, _Value] = {}
    for source, values in (*_files(name), *_environment(name, section.model)):
        for key, value in values.items():
            found[key] = _Value(value=value, source=source)
    for source, values in ((f"the plugin {section.plugin!r}", section.values), ("code", in_code)):
        for key, value in values.items():
            found[key] = _Value(value=value, source=source)
    return found


def _files(name: str) -> list[tuple[str, Mapping[str, object]]]:
    """The section in each file, the weakest first."""
    found: list[tuple[str, Mapping[str, object]]] = []
    for path, tables in (("pyproject.toml", ("tool", "trilane")), ("trilane.toml", ())):
        if not os.path.exists(path):
            continue
        section: object = _read_toml(path)
        for step, table in enumerate((*tables, name), start=1):
            section = section.get(table, {}) if isinstance(section, dict) else None
            if not isinstance(section, dict):
                header = ".".join((*tables, name)[:step])
                raise ConfigError(f"{path}: {header!r} is not a table; write [{header}] and its keys below it")
        found.append((f"{path} [{'.'.join((*tables, name))}]", section if isinstance(section, dict) else {}))
    return found


def _read_toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def prefix_of(name: str) -> str:
    """What the variables of section `name` begin with."""
    return _variable(name, "")


def variables(name: str, model: type[BaseModel]) -> dict[str, str]:
    """The variables of the environment that are read for section `name`, each with its key."""
    return {_variable(name, key): key for key in _keys(model)}


def _environment(name: str, model: type[BaseModel]) -> list[tuple[str, Mapping[str, object]]]:
    values = {key: os.environ[variable] for variable, key in variables(name, model).items() if variable in os.environ}
    return [("environment", values)]


def _keys(model: type[BaseModel]) -> list[str]:
    """The keys a model reads: aliases where fields have one."""
    return [
        field.validation_alias if isinstance(field.validation_alias, str) else key
        for key, field in model.model_fields.items()
    ]


def _variable(name: str, key: str) -> str:
    return f"TRILANE_{_shout(name)}_{_shout(key)}"


def _shout(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _refuse_unknown(name: str, model: type[BaseModel], found: Mapping[str, _Value]) -> None:
    if model.model_config.get("extra") == "allow":
        return
    keys = {*_keys(model), *model.model_fields}
    for key, item in found.items():
        if key not in keys:
            from .checks import nearest

            raise ConfigError(f"{item.source}: {key!r} is not a setting of {name!r}{nearest(key, keys)}")


def _parse_json(found: Mapping[str, _Value], error: ValidationError) -> dict[str, _Value] | None:
    """`found` with the failing values of the environment read as JSON; None if there are none."""
    import json

    parsed = dict(found)
    changed = False
    for key in {str(detail["loc"][0]) for detail in error.errors(include_input=False) if detail["loc"]}:
        item = found.get(key)
        if item is None or item.source != "environment":
            continue
        try:
            parsed[key] = item.replace(value=json.loads(str(item.value)))
            changed = True
        except ValueError:
            continue
    return parsed if changed else None


def _wrong(name: str, found: Mapping[str, _Value], error: ValidationError) -> ConfigError:
    """Says for each finding where the value came from. Values are left out: they may be secret."""
    lines = []
    for detail in error.errors(include_input=False, include_url=False):
        key = str(detail["loc"][0]) if detail["loc"] else ""
        path = ".".join(str(step) for step in detail["loc"])
        item = found.get(key)
        if item is not None:
            source = _variable(name, key) if item.source == "environment" else f"{item.source}: {path!r}"
            lines.append(f"{source}: {detail['msg']}")
        elif detail["type"] == "missing":
            lines.append(
                f"{path!r} is missing: set {_variable(name, key)}, or {key} under [{name}] in trilane.toml "
                f"or [tool.trilane.{name}] in pyproject.toml"
            )
        else:
            lines.append(f"{path or 'the settings together'}: {detail['msg']}")
    return ConfigError(f"the settings of {name!r} cannot be used: " + "; ".join(lines))
