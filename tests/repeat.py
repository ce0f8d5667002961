"""The tests that must never fail by chance, again and again: channels, run loop, a sample of the matrix of faults.

    uv run python tests/repeat.py                 # once, in less than five minutes
    uv run python tests/repeat.py --times 20      # as often as it takes to believe it

Each time the order of tasks under the unkind scheduler and the cases of the sample are other ones; the seed is printed
and `--seed` plays the same again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["SUBSET", "main"]

#: What is run, in one process each time.
SUBSET = (
    "tests/channels",
    "tests/test_backend.py",
    "tests/test_batch.py",
    "tests/test_first_step.py",
    "tests/test_run.py",
    "tests/test_runtime.py",
    "tests/test_steering.py",
    "tests/faults/test_found.py",
    "tests/faults/test_outside.py",
    "tests/faults/test_sample.py",
    "tests/model/test_stress.py",
)


def main() -> int:
    """Run the subset so often; the exit status is 1 if it failed once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1, help="how often")
    parser.add_argument("--seed", type=int, default=0, help="of the first time; each further one has the next")
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET]
    passed = 0
    for seed in range(options.seed, options.seed + options.times):
        started = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "TRILANE_TEST_SEED": str(seed)},
            capture_output=True,
            text=True,
            check=False,
        )
        passed += done.returncode == 0
        last = done.stdout.strip().rpartition("\n")[2]
        print(f"seed {seed}: {last} ({time.perf_counter() - started:.0f} s)", flush=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n", flush=True)
    print(f"{passed} of {options.times} passed")
    return 0 if passed == options.times else 1


if __name__ == "__main__":
    sys.exit(main())
