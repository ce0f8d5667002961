"""Which folder the tools may read."""

from __future__ import annotations

import os

from trilane.errors import ConfigError

from .confine import Root

__all__ = ["ROOT_VARIABLE", "open_root"]

#: Environment variable with the folder of a plugin that was given none.
ROOT_VARIABLE = "TRILANE_FILES_ROOT"


def open_root(folder: str | None) -> Root:
    """The root: `folder`, else the one in `TRILANE_FILES_ROOT`, else the current directory; all as they are now.

    Raises:
        ConfigError: There is no such folder.
    """
    source = "files(root=...)" if folder else f"the environment variable {ROOT_VARIABLE}"
    chosen = folder or os.environ.get(ROOT_VARIABLE)
    try:
        path = os.path.abspath(os.path.expanduser(chosen)) if chosen else os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError(
            f"plugin files: the current directory no longer exists. Change to another one, or set {ROOT_VARIABLE}."
        ) from error
    if not os.path.isdir(path):
        raise ConfigError(f"plugin files: '{chosen}' is not a folder. Correct {source}; it names the folder to read.")
    return Root(path)
