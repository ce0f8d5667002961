"""The program of the process that `matching.py` starts for regular expressions; run as a script, never imported.

A line of JSON in, a line of JSON out: first the pattern and `{"error": null}` or its error, then lists of lines and
lists of `[index, start, end]` of those that match. Standard library only: it starts without site packages.
"""

from __future__ import annotations

import json
import re
import signal
import sys

__all__: list[str] = []


def _main() -> None:
    request = json.loads(sys.stdin.readline())
    if hasattr(signal, "alarm"):  # should the parent die, a pattern that never ends must not stay behind
        signal.alarm(int(request["seconds"]) + 2)
    try:
        search = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0).search
    except (re.error, OverflowError, RecursionError) as error:
        _answer({"error": str(error)})
        return
    _answer({"error": None})
    for batch in sys.stdin:
        found = ((index, search(line)) for index, line in enumerate(json.loads(batch)))
        _answer([[index, *match.span()] for index, match in found if match])


def _answer(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    _main()
