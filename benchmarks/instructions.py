"""Counts the instructions of the paths that every run pays for: import, delta, turn. Independent of the machine's load.

Runs `workload.py` under callgrind (Debian package `valgrind`) with two sizes and divides the difference, so start-
up does not count. `--check` compares with `instructions.json` and fails on a regression of more than 10 %;
`--write` stores new figures. Figures hold for one Python version on one architecture; for others there is nothing
to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
STORED = HERE / "instructions.json"
ALLOWED = 1.10

#: name -> (workload, small size, large size); sizes of 0 count the whole process.
PATHS = {"import": ("import", 0, 0), "delta": ("delta", 100, 600), "turn": ("turn", 10, 60)}


def count(workload: str, size: int) -> int:
    """Instructions of one process."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [sys.executable, str(HERE / "workload.py"), workload, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


def measure() -> dict[str, int]:
    """Instructions of each path: of the process for `import`, of one more delta or turn for the others."""
    figures = {}
    for name, (workload, small, large) in PATHS.items():
        if large == 0:
            figures[name] = count(workload, 0)
        else:
            figures[name] = (count(workload, large) - count(workload, small)) // (large - small)
        print(f"{name:8} {figures[name]:>12,} instructions", flush=True)
    return figures


def key() -> str:
    """What the figures hold for."""
    return f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the figures")
    parser.add_argument("--check", action="store_true", help="compare with the stored figures")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (Debian: apt-get install valgrind); nothing was counted")
        return 2 if options.write else 0
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    # Bytecode must be there already, whatever the environment says: compiling it would be counted as import.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, str(HERE / "workload.py"), "turn", "1"], check=True, env=environment)
    figures = measure()
    if options.write:
        stored[key()] = figures
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    if not options.check:
        return 0
    before = stored.get(key())
    if before is None:
        print(f"no figures are stored for {key()}; nothing to compare with")
        return 0
    worse = [name for name in PATHS if figures[name] > before[name] * ALLOWED]
    for name in PATHS:
        print(f"{name:8} {figures[name] / before[name]:6.3f} x the stored figure")
    if worse:
        print(f"more than 10 % above the stored figures: {', '.join(worse)}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
