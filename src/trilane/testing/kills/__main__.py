"""`python -m trilane.testing.kills`: every point, or a sample, with a store that outlives the process."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from trilane.errors import TrilaneError

from .harness import count_points, kill_once, open_by_name

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if all holds, 1 if something does not."""
    parser = argparse.ArgumentParser(prog="python -m trilane.testing.kills", description=__doc__)
    parser.add_argument(
        "--store",
        default="sqlite",
        help="NAME of a store in a file, one for each case; NAME:PLACE or a URL for one that they share",
    )
    parser.add_argument("--backend", choices=["asyncio", "trio", "both"], default="both")
    parser.add_argument("--sample", type=int, default=0, help="so many points instead of all")
    parser.add_argument("--twice", type=int, default=0, help="so many cases in which the resumed run is killed too")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--at", help="only this point, as a report names it")
    options = parser.parse_args(arguments)
    backends = ["asyncio", "trio"] if options.backend == "both" else [options.backend]
    try:
        return max(_one_backend(options, backend) for backend in backends)
    except TrilaneError as error:  # such as a store that is not there: where it was raised says nothing more
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if ":" not in options.store:
            print(f"a store on a server is given as {options.store}: or with its place", file=sys.stderr)
        return 1


def _one_backend(options: argparse.Namespace, backend: str) -> int:
    open_store = open_by_name(options.store)
    points = count_points(open_store, backend)
    chance = random.Random(options.seed)
    cases = points.cases()
    pairs = [(chance.choice(cases), chance.choice(cases)) for _ in range(options.twice)]
    if options.at:
        first, _, second = options.at.partition(" ")
        plan = [(first, second)]
    else:
        chosen = chance.sample(cases, options.sample) if options.sample else cases
        plan = [*[(case, "") for case in chosen], *pairs]
    killed = failed = 0
    for number, (at, again) in enumerate(plan, 1):
        case = kill_once(open_store, at, backend, again=again)
        killed += case.killed
        if case.problems:
            failed += 1
            print(f"{backend} {case.at}:", *case.problems, sep="\n    ")
        if number % 100 == 0:
            print(f"{backend}: {number} of {len(plan)}", file=sys.stderr)
    print(f"{backend}: a run has {points.writes} writes and {points.awaits} awaits")
    print(f"{backend}: {len(plan)} cases, {killed} killed, {failed} failed")
    if options.at and not killed:
        print(f"{backend}: a run does not come to {options.at}: give a point as a report names it", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
