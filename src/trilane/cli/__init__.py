"""The `trilane` command line: one file per command, nothing heavy imported before a command runs.

The entry point is `trilane.__main__.main`. This package needs the extra `trilane[cli]`.
"""

from __future__ import annotations

__all__: list[str] = []
