"""What a case has outside of its event loop: threads and processes. Virtual time stands until they did their part.

So a case comes out the same on a machine that is busy: a real process never meets a virtual timeout because it was slow
to start or slow to die. What is *meant* to outlast a time limit says so: a thread `rests`, a program that hangs tells
when it does. The clock that asks is in `trilane.testing.clock`; where there is no `/proc`, processes are not seen.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trilane.testing.leaks import IDLE_THREADS

__all__ = ["Outside", "Program"]

#: Real seconds for which one case may stand in all. Only a process that nobody waits for takes so long.
LONGEST_SECONDS = 60.0
LEFT_SECONDS = 20.0  # that threads, files and processes on their way out get; real

_GRANDCHILD = (
    "import os, sys, time\n"
    "with open(sys.argv[1] + '.new', 'w') as file: file.write(f'{sys.argv[2]} {os.getpid()}')\n"
    "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
    "time.sleep(3600)"
)
_CHILD = (
    "import os, subprocess, sys\n"
    "subprocess.run([sys.executable, '-S', '-c', sys.argv[2], sys.argv[1], str(os.getpid())])"
)


class Program:
    """A program that hangs, with a child of its own that hangs too."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self._ids: tuple[int, ...] = ()

    @property
    def argv(self) -> Sequence[str]:
        """The command to start it, once."""
        return [sys.executable, "-S", "-c", _CHILD, str(self._mark), _GRANDCHILD]

    def ids(self) -> tuple[int, ...]:
        """Its process and its child's, once both hang; before that, none."""
        if not self._ids:
            with suppress(OSError):
                self._ids = tuple(int(one) for one in self._mark.read_text(encoding="ascii").split())
        return self._ids


class Outside:
    """What one case has at work outside of its event loop. Made before the case, closed after it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="trilane-faults-"))
        self._threads = set(threading.enumerate())
        self._children = _children()
        self._programs: list[Program] = []
        self._resting: dict[threading.Thread, threading.Event] = {}
        self._signalled: set[int] = set()
        self._stood = 0.0
        self._asked = 0.0
        _listen(self._signalled)

    # ---- for tools -----------------------------------------------------------------------------------------------

    def hanging_program(self) -> Program:
        """A program that ends only when it is killed."""
        program = Program(self._folder / str(len(self._programs)))
        self._programs.append(program)
        return program

    def rest(self) -> None:
        """Block the thread that calls, and let time go on, until the case is over."""
        over = self._resting[threading.current_thread()] = threading.Event()
        over.wait()

    # ---- for the clock -------------------------------------------------------------------------------------------

    def held(self) -> bool:
        """True while a thread or a process has yet to do its part."""
        now = time.monotonic()
        if self._asked and now - self._asked < 1.0:  # no more between two looks: the case did something else
            self._stood += now - self._asked
        self._asked = now
        if self._stood > LONGEST_SECONDS:
            return False
        resting = self._hanging()
        children = _children() - self._children - resting
        # Where asyncio has a thread for each process to wait for, it goes on as long as the process.
        return bool(children) or len(self._at_work()) > len(resting) or _pool_at_work() or self._dying()

    def _hanging(self) -> set[int]:
        """Programs that hang as they should, and that nobody has killed."""
        return {ids[0] for program in self._programs if (ids := program.ids()) and ids[0] not in self._signalled}

    def _at_work(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in self._threads and thread not in self._resting and not thread.name.startswith(IDLE_THREADS)
        ]

    def _dying(self) -> bool:
        killed = [ids for program in self._programs if (ids := program.ids()) and ids[0] in self._signalled]
        return any(_is_alive(one) for ids in killed for one in ids)

    # ---- afterwards ----------------------------------------------------------------------------------------------

    def release(self) -> None:
        """The case is over: threads that rest may go on."""
        for event in self._resting.values():
            event.set()

    def left(self) -> Iterator[str]:
        """Processes of programs that still run, their children too, which `leaks` does not see."""
        for program in self._programs:
            yield from (f"process {one} of a killed program" for one in program.ids() if _is_alive(one))

    def close(self) -> None:
        """Forget about it, and kill what is left."""
        import signal

        self.release()
        _stop_listening(self._signalled)
        for program in self._programs:
            for one in program.ids():
                if _is_alive(one):
                    with suppress(OSError):
                        os.kill(one, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)


def _children() -> set[int]:
    """The processes of this one, also those that have ended and nobody has asked for."""
    found: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found.update(int(one) for one in children.read_text(encoding="ascii").split())
    return found


def _is_alive(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def _pool_at_work() -> bool:
    """True while trio has something in a thread of its pool; it starts processes there."""
    trio: Any = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_run():
        return False
    return bool(trio.to_thread.current_default_thread_limiter().borrowed_tokens)


# ---- who was killed --------------------------------------------------------------------------------------------------

_listeners: list[set[int]] = []
_hooked = False


def _listen(signalled: set[int]) -> None:
    """From now on note in `signalled` whom this process sends a signal."""
    global _hooked
    _listeners.append(signalled)
    if not _hooked:
        _hooked = True
        sys.addaudithook(_heard)  # which cannot be taken back


def _stop_listening(signalled: set[int]) -> None:
    _listeners[:] = [one for one in _listeners if one is not signalled]


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if _listeners and event in ("os.kill", "os.killpg") and arguments[1]:
        for signalled in _listeners:
            signalled.add(arguments[0])
