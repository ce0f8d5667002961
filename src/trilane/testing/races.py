"""Two processes race for one session, again and again: `python -m trilane.testing.races --rounds 1000`.

In each round both begin a run on it at the same moment. One must become its owner and the other be told that it is
busy; the owner answers only when both have been heard. In the end the session must have what every owner said, in
order, and nothing else. It needs a store that several processes may use.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trilane import Agent
from trilane.errors import SessionBusyError, TrilaneError
from trilane.messages import TextPart, text_of
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.sessions import pages

from ._partner import EndedError, Partner

if TYPE_CHECKING:
    from trilane.stores import SessionStore

__all__ = ["Outcome", "main", "race"]

SESSION = "raced-for"
NAMES = ("left", "right")
_ADVICE = (
    "Look at the store that was given: a NAME alone is a store in a file; one on a server is `NAME:`, if the "
    "environment says where it is, `NAME:PLACE` or a URL."
)


@dataclass(slots=True)
class Outcome:
    """What came of a race.

    Attributes:
        owners: Who won each round.
        problems: What did not hold; nothing if all is well.
    """

    owners: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def race(store: str, rounds: int, *, backend: str = "asyncio") -> Outcome:
    """Let two processes race.

    Args:
        store: `NAME` of a store in a file, which is made for this; `NAME:`, `NAME:PLACE` or a URL for one that is
            there, such as one on a server.
        rounds: How often.
        backend: Of the event loop of both.

    Raises:
        AssertionError: one of the processes has ended too early; it says what that one wrote.
    """
    with tempfile.TemporaryDirectory(prefix="trilane-races-") as folder:
        spec = store if ":" in store else f"{store}:{folder}/store"
        session = f"{SESSION}-{folder.rpartition('-')[2]}"
        with (
            _contender(NAMES[0], spec, session, backend) as left,
            _contender(NAMES[1], spec, session, backend) as right,
        ):
            outcome = _rounds((left, right), rounds)
        outcome.problems += _lost(spec, session, outcome.owners, backend)
        return outcome


def _rounds(contenders: tuple[Partner, ...], rounds: int) -> Outcome:
    outcome = Outcome()
    for contender in contenders:
        contender.hear()  # that it is ready
    for number in range(rounds):
        for contender in contenders:
            contender.tell(f"{number}")
        heard = {contender: contender.hear() for contender in contenders}
        owners = [contender for contender, word in heard.items() if word == f"owner {number}"]
        busy = [contender for contender, word in heard.items() if word == f"busy {number}"]
        if len(owners) != 1 or len(busy) != 1:
            outcome.problems.append(f"round {number}: {sorted(heard.values())} instead of one owner")
        for owner in owners:
            owner.tell("answer")
            word = owner.hear()
            if word == f"done {number}":
                outcome.owners.append(owner.name)
            else:
                outcome.problems.append(f"round {number}: the owner ended with {word!r}")
    return outcome


def _lost(spec: str, session: str, owners: list[str], backend: str) -> list[str]:
    """What the session has too much or too little."""
    import anyio

    said: list[str] = []

    async def read() -> None:
        store = _open(spec)
        try:
            async for page in pages(store, session):
                for record in page.records:
                    if record.kind == "message" and record.message.kind in ("user", "assistant"):
                        said.append(text_of(record.message.parts))
                    elif record.kind != "run_ended":
                        said.append(record.kind)
        finally:
            _close(store)

    anyio.run(read, backend=backend)
    expected = [text for number, name in enumerate(owners) for text in (f"{name} {number}", f"heard {name} {number}")]
    if said == expected:
        return []
    lost, extra = Counter(expected) - Counter(said), Counter(said) - Counter(expected)
    return [f"the session lacks {sorted(lost)} and has {sorted(extra)} besides; or the order is another"]


def _contender(name: str, spec: str, session: str, backend: str) -> Partner:
    command = [sys.executable, "-m", "trilane.testing.races", "--as", name, "--store", spec, "--session", session]
    return Partner(name, [*command, "--backend", backend], advice=_ADVICE)


# ---- in the processes -----------------------------------------------------------------------------------------------


class _Patient:
    """A model that says that it was called, by the owner of the session then, and answers when it is told to."""

    name = "patient"

    def __init__(self) -> None:
        self.number = ""

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        print(f"owner {self.number}", flush=True)
        await _line()
        said = text_of(request.messages[-1].parts)  # type: ignore[union-attr]
        return ModelResponse(parts=(TextPart(text=f"heard {said}"),), stop_reason="end", model="patient")


async def _line() -> str:
    from anyio.to_thread import run_sync

    line: str = await run_sync(sys.stdin.readline)
    return line.strip()


async def _contend(name: str, spec: str, session: str) -> None:
    store = _open(spec)
    model = _Patient()
    agent = Agent(model, store=store)
    print("ready", flush=True)
    while number := await _line():
        model.number = number
        try:
            await agent.run(f"{name} {number}", session=session)
            print(f"done {number}", flush=True)
        except SessionBusyError:
            print(f"busy {number}", flush=True)
        except Exception as error:
            print(f"failed {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    _close(store)


def _open(spec: str) -> SessionStore:
    from trilane.plugins import PluginManager, resolve_store, store_plugin

    return resolve_store(spec, PluginManager([store_plugin(spec) or spec.partition(":")[0]]))


def _close(store: SessionStore) -> None:
    close = getattr(store, "close", None)
    if close is not None:
        close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if all holds, 1 if something does not."""
    parser = argparse.ArgumentParser(prog="python -m trilane.testing.races", description=__doc__)
    parser.add_argument(
        "--store",
        default="sqlite",
        help="NAME of a store in a file, which is made for this; a store on a server needs NAME: (the environment says "
        "where it is), NAME:PLACE or a URL",
    )
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    parser.add_argument("--session", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.name:
        import anyio

        try:
            anyio.run(_contend, options.name, options.store, options.session, backend=options.backend)
        except TrilaneError as error:  # such as an address that is none: where it was raised says nothing more
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        return 0
    try:
        outcome = race(options.store, options.rounds, backend=options.backend)
    except EndedError as error:
        print(error, file=sys.stderr)
        return 1
    counts = Counter(outcome.owners)
    won = ", ".join(f"{name} won {counts[name]}" for name in NAMES)  # both, also if one never won
    print(f"{options.rounds} rounds: {won}; {len(outcome.problems)} problems", *outcome.problems, sep="\n    ")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
