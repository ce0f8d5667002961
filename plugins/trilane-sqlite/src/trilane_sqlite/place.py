"""Where the file is when nobody says: the environment variable `TRILANE_SESSIONS`, else the user's data folder."""

from __future__ import annotations

import os
import sys

__all__ = ["FILE_NAME", "SESSIONS_VARIABLE", "default_path"]

#: Environment variable with the path of the file.
SESSIONS_VARIABLE = "TRILANE_SESSIONS"

FILE_NAME = "sessions.sqlite3"


def default_path() -> str:
    """The file in `TRILANE_SESSIONS`, else `trilane/sessions.sqlite3` in the user's data folder."""
    chosen = os.environ.get(SESSIONS_VARIABLE)
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    return os.path.join(_data_folder(), "trilane", FILE_NAME)


def _data_folder() -> str:
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support")
    return os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
