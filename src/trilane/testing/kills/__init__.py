"""Kills a process at every write to the store and at every await of a run, and looks at what resuming makes of it.

`python -m trilane.testing.kills` does all of it; `kill_once` is one case, for tests. The run that is killed is in
`victim.py`, what must hold afterwards in `verdict.py`. It needs `os.fork`, and a store that outlives the process, such
as that of trilane-sqlite.
"""

from __future__ import annotations

from .harness import Case, Points, count_points, kill_once

__all__ = ["Case", "Points", "count_points", "kill_once"]
