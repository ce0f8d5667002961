"""A plugin for Trilane to start from."""

from __future__ import annotations

from .plugin import ExamplePlugin
from .settings import ExampleSettings

__all__ = ["ExamplePlugin", "ExampleSettings"]
