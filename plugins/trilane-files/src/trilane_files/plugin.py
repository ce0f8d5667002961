"""The hooks: every run is offered the tools of one folder.

The module itself is the plugin that is installed as `files`; `files("docs")` makes one for another folder.
"""

from __future__ import annotations

import os

from trilane import RunContext, Tool, hookimpl

from .configuration import open_root
from .tools import tools_below

__all__ = ["FilesPlugin", "files", "on_tool"]


class FilesPlugin:
    """Offers tools that read files below one folder.

    Args:
        root: The folder; a relative one counts from the directory that is current now. None for the one in the
            environment variable `TRILANE_FILES_ROOT`, else the directory that is current when a run starts.
    """

    name = "files"

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = None if root is None else os.path.abspath(os.path.expanduser(root))

    @hookimpl
    def on_tool(self, run: RunContext[object]) -> tuple[Tool, ...]:
        """Offer the tools.

        Raises:
            ConfigError: There is no such folder.
        """
        return tools_below(open_root(self.root).path)


def files(root: str | os.PathLike[str] | None = None) -> FilesPlugin:
    """A plugin for `Agent(plugins=[files("docs")])`; see `FilesPlugin` for what no root means."""
    return FilesPlugin(root)


@hookimpl
def on_tool(run: RunContext[object]) -> tuple[Tool, ...]:
    """Offer the tools of the folder in `TRILANE_FILES_ROOT`, else of the current directory.

    Raises:
        ConfigError: There is no such folder.
    """
    return tools_below(open_root(None).path)
