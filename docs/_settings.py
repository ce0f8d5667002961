"""The settings of the plugins in this repository, with what their models say of each. For `_generate.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from trilane import PluginManager, discover

__all__ = ["plugin_settings", "web_settings"]

ROOT = Path(__file__).resolve().parent.parent


def _said(model: type) -> dict[str, str]:
    """Name -> meaning, from the section `Attributes` of the docstring."""
    _, _, section = (inspect.getdoc(model) or "").partition("Attributes:\n")
    items = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(meaning.split()).rstrip(".") for name, meaning in items}


def _shown(default: Any) -> str:
    if default is None or default in ("", (), {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    for name, default, meaning in rows:
        if not meaning:
            raise LookupError(f"the setting {name} says nothing of its meaning")
        lines.append(f"| `{name}` | {default} | {meaning} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def _rows(model: type[Any]) -> Iterator[tuple[str, str, str]]:
    said = _said(model)
    for name, field in model.model_fields.items():
        made = field.default_factory is not None  # by the machine, so not the same everywhere
        default = "" if made or field.is_required() else _shown(field.default)
        yield name, default, (field.description or said.get(name, "")).rstrip(".").replace("|", "\\|")


def plugin_settings() -> str:
    """A table for each plugin of this repository that declares settings."""
    ours = {path.parent.name.removeprefix("trilane-") for path in ROOT.glob("plugins/*/pyproject.toml")}
    names = [info.name for info in discover() if info.name in ours]
    manager = PluginManager(names)
    parts = []
    for name in sorted(names):
        if not manager.settings_names(name):
            continue
        for section in manager.settings_names(name):
            model = type(manager.settings(section))
            where = f"Section `{section}`; in the environment `TRILANE_{section.upper()}_` and the key in capitals."
            parts.append(f"### Settings of trilane-{name}\n\n{where}\n\n{_table(_rows(model))}")
    return "\n".join(parts)


def web_settings() -> str:
    """What `trilane_web.app(settings=...)` takes: in code, not from files."""
    from trilane_web import WebSettings
    from trilane_web.settings import WebLimits

    def rows(kind: type[Any]) -> Iterator[tuple[str, str, str]]:
        said = _said(kind)
        for field in fields(kind):
            if field.name != "limits":
                default = "" if field.default is MISSING else _shown(field.default)
                yield field.name, default, said.get(field.name, "").replace("|", "\\|")

    return f"{_table(rows(WebSettings))}\n`WebSettings(limits=WebLimits(...))`:\n\n{_table(rows(WebLimits))}"
