"""A PostgreSQL server for tests, in a temporary folder, reached by a socket in it: `with TemporaryServer() as server:`.

`python -m trilane_postgres.testing COMMAND …` runs a command with such a server as its `TRILANE_POSTGRES_DSN`. It needs
the programs of a server, such as those of Debian's package `postgresql`; nothing of a server of the system is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pwd

__all__ = ["TemporaryServer", "find_programs", "main"]

_READY = "database system is ready to accept connections"

ROOM = 2 << 30  # bytes that must be free in memory for it to be there

#: A server refuses to be run by root; it is run by one of these then.
_USERS = ("postgres", "nobody")


def find_programs() -> str:
    """The folder with `initdb` and `postgres`; empty if there is none."""
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return os.path.dirname(os.path.realpath(on_path))
    of_debian = sorted(glob("/usr/lib/postgresql/*/bin/initdb"), key=_version)
    return os.path.dirname(of_debian[-1]) if of_debian else ""


def _version(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


class TemporaryServer:
    """A server that lasts as long as its context.

    Args:
        durable: True if what is committed must survive a crash of the machine; it is slower.

    Raises:
        FileNotFoundError: the programs of a server are not installed.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._programs = find_programs()
        if not self._programs:
            raise FileNotFoundError("initdb and postgres: install the package postgresql")
        self._durable = durable
        self._user = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="trilane-postgres-", dir=None if durable else _memory()))
        self._process: subprocess.Popen[str] | None = None
        self._log: deque[str] = deque(maxlen=50)

    @property
    def dsn(self) -> str:
        """Its address, for `PostgresStore`."""
        return f"postgresql://trilane@/postgres?host={self._folder}"

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(self._folder / ".s.PGSQL.5432")

    def __enter__(self) -> Self:
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop(crash=True)  # nobody wants its data any more
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it can be used.

        Raises:
            OSError: it did not start.
        """
        options = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "shared_buffers": "16MB"}
        if not self._durable:
            options |= {"fsync": "off", "full_page_writes": "off"}
        arguments = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        process = self._process = self._popen("postgres", "-D", str(self._folder / "data"), *arguments)
        assert process.stdout is not None
        for line in process.stdout:
            self._log.append(line)
            if _READY in line:
                break
        else:
            raise OSError("the server did not start:\n" + "".join(self._log))
        threading.Thread(target=self._drain, args=(process.stdout,), daemon=True).start()

    def stop(self, *, crash: bool = False) -> None:
        """End it: connections are cut off, running transactions rolled back. With `crash` it has no time to tidy up."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _initialise(self) -> None:
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        options = ("--username=trilane", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        process = self._popen("initdb", "-D", str(self._folder / "data"), *options)
        said, _ = process.communicate(timeout=120)
        if process.returncode:
            raise OSError(f"initdb failed:\n{said}")

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        user = self._user
        return subprocess.Popen(
            [os.path.join(self._programs, program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self._folder,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else (),
            process_group=0,  # Ctrl-C at a terminal is for the tests; they end the server themselves
        )

    def _drain(self, output: IO[str]) -> None:
        with output:
            self._log.extend(output)


def _memory() -> str | None:
    """A folder in memory, where there is enough of it: tables are many files, and nobody wants these to last."""
    folder = "/dev/shm"
    roomy = os.path.isdir(folder) and shutil.disk_usage(folder).free > ROOM
    return folder if roomy and os.access(folder, os.W_OK | os.X_OK) else None


def _unprivileged() -> pwd.struct_passwd | None:
    """Who runs the server; None for whoever runs this."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    import pwd

    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise OSError(f"a server may not be run by root, and there is no user {' or '.join(_USERS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with a server of its own. Returns its exit status."""
    command = list(sys.argv[1:] if arguments is None else arguments)
    if not command:
        print("usage: python -m trilane_postgres.testing COMMAND [ARGUMENT …]", file=sys.stderr)
        return 2
    with TemporaryServer() as server:
        return subprocess.call(command, env={**os.environ, "TRILANE_POSTGRES_DSN": server.dsn})


if __name__ == "__main__":
    sys.exit(main())
