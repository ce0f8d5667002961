"""File tools for Trilane agents, confined to one folder: `Agent(plugins=[files("docs")])`."""

from __future__ import annotations

from .plugin import FilesPlugin, files

__all__ = ["FilesPlugin", "files"]
