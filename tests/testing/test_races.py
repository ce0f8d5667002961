"""The race of two processes for one session finds what is wrong; what stores make of it is in their own tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trilane.testing._partner import EndedError, Partner
from trilane.testing.races import _lost, _rounds, main, race


class Puppet:
    """A process that says what it was given to say."""

    def __init__(self, name: str, *words: str) -> None:
        self.name = name
        self.told: list[str] = []
        self._words = ["ready", *words]

    def tell(self, text: str) -> None:
        self.told.append(text)

    def hear(self) -> str:
        return self._words.pop(0)


def judged(left: Puppet, right: Puppet, rounds: int = 1) -> Any:
    return _rounds((left, right), rounds)  # type: ignore[arg-type]


def test_one_owner_in_each_round_is_right() -> None:
    left = Puppet("left", "owner 0", "done 0", "busy 1")
    right = Puppet("right", "busy 0", "owner 1", "done 1")
    outcome = judged(left, right, 2)
    assert (outcome.owners, outcome.problems) == (["left", "right"], [])
    assert left.told == ["0", "answer", "1"]


def test_two_owners_none_and_an_owner_that_fails_are_found() -> None:
    two = judged(Puppet("left", "owner 0", "done 0"), Puppet("right", "owner 0", "failed Conflict"))
    assert two.problems == [
        "round 0: ['owner 0', 'owner 0'] instead of one owner",
        "round 0: the owner ended with 'failed Conflict'",
    ]
    none = judged(Puppet("left", "busy 0"), Puppet("right", "busy 0"))
    assert none.problems == ["round 0: ['busy 0', 'busy 0'] instead of one owner"]


def test_what_was_lost_is_found(tmp_path: Path) -> None:
    found = _lost(f"sqlite:{tmp_path}/s", "nobody-wrote", ["left"], "asyncio")
    assert found == ["the session lacks ['heard left 0', 'left 0'] and has [] besides; or the order is another"]


def test_a_store_that_needs_an_address_and_has_none_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", "postgres", "--rounds", "1"]) == 1
    out, told = capsys.readouterr()
    assert out == ""
    first, why, advice = told.splitlines()
    assert first == "the process 'left' has ended with status 1; it last wrote:"
    assert why.startswith("    ConfigError: the DSN for trilane-postgres cannot be used")
    assert "one on a server is `NAME:`, if the environment says where it is, `NAME:PLACE` or a URL" in advice


def test_a_store_that_nobody_has_is_named() -> None:
    with pytest.raises(
        AssertionError, match=r"the process 'left' has ended .*\n    PluginLoadError: no plugin 'nowhere'"
    ):
        race("nowhere", 1, backend="trio")


def test_the_help_says_how_a_store_on_a_server_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "a store on a server needs NAME: " in " ".join(capsys.readouterr().out.split())


def partner(program: str) -> Partner:
    return Partner("left", [sys.executable, "-c", f"import os, sys\n{program}"], advice="Try again.")


def test_a_process_that_dies_leaves_its_last_lines() -> None:
    wrote = "print(*range(20), sep='\\n', file=sys.stderr, flush=True)"
    with (
        pytest.raises(EndedError) as caught,
        partner(f"print('ready', flush=True); {wrote}; os.kill(os.getpid(), 9)") as left,
    ):
        assert left.hear() == "ready"
        left.hear()
    last = "".join(f"\n    {number}" for number in range(14, 20))
    assert str(caught.value) == f"the process 'left' was killed by signal 9; it last wrote:{last}\nTry again."


def test_a_process_that_ends_without_a_word_is_noticed_when_it_is_told_something() -> None:
    with pytest.raises(EndedError, match=r"^the process 'left' has ended with status 3 and wrote no error\nTry again"):
        with partner("os._exit(3)") as left:
            left._process.wait()
            left.tell("go on")


def test_what_a_process_wrote_besides_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with partner("print('careful', file=sys.stderr); print(sys.stdin.readline())") as left:
        left.tell("go on")
        assert left.hear() == "go on"
    assert capsys.readouterr().err == "careful\n"
