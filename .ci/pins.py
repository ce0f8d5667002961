"""Refresh the exact versions in `pyproject.toml`: run `uv run .ci/pins.py`, then `uv run pytest`, then commit both.

The pins are `[tool.uv]` constraints and not a lock file: a lock names the hosts it was made from, a constraint does
not. `uv.lock` is made anew, from these pins, on every machine and is not tracked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
BEGIN, END = "# pins: begin, written by .ci/pins.py", "# pins: end"
_BLOCK = re.compile(rf"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
_EXPORT = ("export", "--no-hashes", "--no-emit-workspace", "--no-annotate", "--no-header")


def _uv(*arguments: str) -> str:
    return subprocess.run(["uv", "-q", *arguments], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def _exported(*selection: str) -> list[str]:
    return [line for line in _uv(*_EXPORT, *selection).splitlines() if "==" in line]


def _with_pins(text: str, pins: list[str], build_pins: list[str]) -> str:
    def lines(values: list[str]) -> str:
        return "[\n" + "".join(f'    "{value}",\n' for value in values) + "]\n"

    return _BLOCK.sub(
        f"constraint-dependencies = {lines(pins)}build-constraint-dependencies = {lines(build_pins)}", text
    )


def main() -> None:
    """Resolve everything without the old pins, and write what came out; on failure the file is put back."""
    before = PYPROJECT.read_text(encoding="utf-8")
    if not _BLOCK.search(before):
        sys.exit(f"{PYPROJECT.name} has no lines {BEGIN!r} and {END!r} under [tool.uv]; put them back")
    try:
        PYPROJECT.write_text(_with_pins(before, [], []), encoding="utf-8")
        _uv("lock", "--upgrade")
        pins = _exported("--all-extras", "--all-groups")
        PYPROJECT.write_text(_with_pins(before, pins, _exported("--only-group", "build")), encoding="utf-8")
        _uv("lock")
    except BaseException:
        PYPROJECT.write_text(before, encoding="utf-8")
        raise
    print(f"{len(pins)} pins written to {PYPROJECT.name}")


if __name__ == "__main__":
    main()
