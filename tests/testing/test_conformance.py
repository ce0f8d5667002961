"""The conformance kit finds nothing in good plugins, and what is wrong in bad ones."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import trilane_files.plugin
from trilane import ExtensionEvent, RunContext, hookimpl, tool
from trilane.errors import RunLimitError
from trilane.models import ModelRequest
from trilane.testing import Recorder, call
from trilane.testing.conformance import assert_plugin, check_plugin
from trilane.testing.conformance.check import CHECKS


def only(check: str) -> tuple[str, ...]:
    return tuple(name for name in CHECKS if name != check)


class Good:
    """Uses most of what a plugin may use."""

    name = "good"

    def __init__(self) -> None:
        self.runs = 0

    @hookimpl
    def on_tool(self, run: RunContext[Any]) -> list[object]:
        @tool
        def shout(text: str) -> str:
            """Say it loudly."""
            return text.upper()

        return [shout]

    @hookimpl
    def before_run(self, run: RunContext[Any]) -> None:
        self.runs += 1
        run.stash["good"] = time.monotonic()

    @hookimpl
    async def on_model_request(self, run: RunContext[Any], request: ModelRequest) -> ModelRequest:
        await run.emit("asked", {"turn": request.turn})
        return request.with_context("Be brief.")

    @hookimpl
    async def on_event(self, run: RunContext[Any], notification: ExtensionEvent) -> None:
        return None

    @hookimpl
    def close_run(self, run: RunContext[Any], status: str) -> None:
        run.stash.pop("good", None)


def test_a_good_plugin_conforms() -> None:
    assert_plugin(Good, calls=[call("shout", text="hey")])


def test_a_recorder_of_every_hook_conforms() -> None:
    assert check_plugin(Recorder) == []


def test_a_module_and_an_installed_name_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    assert check_plugin("files", without=only("residue")) == []
    assert check_plugin(trilane_files.plugin, calls=[call("list_files")], without=only("modes")) == []


def test_a_run_that_a_plugin_ends_on_purpose_is_no_finding() -> None:
    class Guard:
        name = "guard"

        @hookimpl
        def before_turn(self, run: RunContext[Any], turn: int) -> None:
            if turn > 1:
                raise RunLimitError("one turn is enough")

    assert check_plugin(Guard) == []


def test_what_cannot_be_registered_is_the_only_finding() -> None:
    class Misspelt:
        @hookimpl
        def before_tol(self, run: RunContext[Any]) -> None: ...

    (found,) = check_plugin(Misspelt)
    assert found.startswith("registration: ")
    assert "did you mean 'before_tool'" in found


def test_missing_annotations() -> None:
    class Bare:
        @hookimpl
        def before_run(self, run): ...  # type: ignore[no-untyped-def]

    assert check_plugin(Bare, without=only("annotations")) == [
        "annotations: before_run has no annotation for run, the return value"
    ]


def test_a_hook_that_fails_is_found_in_every_mode() -> None:
    class Failing:
        @hookimpl
        def after_turn(self, run: RunContext[Any]) -> None:
            raise KeyError("usage")

    found = check_plugin(Failing, without=only("modes"))
    assert "modes: run_sync on asyncio: after_turn failed: KeyError: 'usage'" in found
    assert "modes: stream on trio: after_turn failed: KeyError: 'usage'" in found


def test_a_hook_that_fails_the_run() -> None:
    class Failing:
        @hookimpl
        def before_run(self, run: RunContext[Any]) -> None:
            raise ValueError("no")

    with pytest.raises(AssertionError, match=r"the plugin does not conform:\n.*the run failed with ValueError: no"):
        assert_plugin(Failing, backends=["asyncio"], without=only("modes"))


def test_a_plain_function_that_blocks() -> None:
    class Blocking:
        @hookimpl
        def before_run(self, run: RunContext[Any]) -> None:
            threading.Event().wait(0.06)

    (found,) = check_plugin(Blocking, without=only("blocking"))
    assert "before_run holds the event loop up for 0.0" in found
    assert "@hookimpl(thread=True)" in found


def test_a_plugin_that_leaves_something_running() -> None:
    gate = threading.Event()

    class Leaky:
        @hookimpl
        def before_run(self, run: RunContext[Any]) -> None:
            threading.Thread(target=gate.wait, name="of the plugin", daemon=True).start()

    try:
        found = check_plugin(Leaky, backends=["asyncio"], without=only("modes"))
    finally:
        gate.set()
    assert any("run on asyncio" in text and "of the plugin" in text for text in found)


def test_data_that_does_not_survive_json() -> None:
    class Emitter:
        @hookimpl
        async def before_run(self, run: RunContext[Any]) -> None:
            await run.emit("measured", float("nan"))

    found = check_plugin(Emitter, backends=["asyncio"], without=only("modes"))
    assert any("stream on asyncio: CustomEvent" in text for text in found)


def test_a_plugin_that_mixes_up_its_runs_and_is_called_unevenly() -> None:
    class Forgetful:
        first = True

        @hookimpl
        def before_turn(self, run: RunContext[Any], turn: int) -> None:
            if self.first and run.path == ():
                type(self).first = False
                run.stop("only once")

    try:
        found = check_plugin(Forgetful, backends=["asyncio"], without=only("modes"))
    finally:
        Forgetful.first = True
    assert any("its hooks are called before_turn 3, but before_turn 1 in run_sync" in text for text in found)


def test_a_plugin_that_keeps_a_cancel_waiting() -> None:
    class Lingering:
        @hookimpl
        async def around_model(self, run: RunContext[Any], request: ModelRequest, call_next: Any) -> Any:
            try:
                return await call_next(request)
            finally:
                with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 20):
                    await anyio.sleep_forever()

    found = check_plugin(Lingering, without=only("schedules"))
    assert found == ["schedules: cancelled in pause 1 on trio: the run ended 20 s after the cancel"]


def test_a_plugin_that_expects_to_have_been_there_from_the_start() -> None:
    class Expecting:
        name = "expecting"

        @hookimpl
        def before_run(self, run: RunContext[Any]) -> None:
            run.stash["expecting"] = 1

        @hookimpl
        def close_run(self, run: RunContext[Any]) -> None:
            del run.stash["expecting"]

    found = check_plugin(Expecting, without=only("neighbours"))
    assert found == [
        "neighbours: a plugin that raises before it in before_run: close_run failed: KeyError: 'expecting'",
        "neighbours: a plugin that stops before it in before_run: close_run failed: KeyError: 'expecting'",
    ] or found == [
        "neighbours: a plugin that raises before it in before_run: close_run failed: KeyError: 'expecting'",
    ]


def test_a_plugin_that_is_held_after_it_was_taken_out() -> None:
    everybody = []

    class Held:
        name = "held"

        @hookimpl
        def before_run(self, run: RunContext[Any]) -> None:
            everybody.append(self)

    (found,) = check_plugin(Held, without=only("residue"))
    assert "unregistered, it is still held by something (list)" in found


SLOW = """
import time, threading
print("hello")
time.sleep(0.8)  # real time: the import is slow
threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
"""
HOOK = "from trilane import hookimpl\n@hookimpl\ndef before_run(run: object) -> None: ...\n"


def test_an_import_that_is_slow_or_does_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_heavy.py").write_text("HEAVY = 1\n" + HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    import acme_heavy  # type: ignore[import-not-found]

    assert check_plugin(acme_heavy, without=only("import")) == []
    (tmp_path / "acme_heavy.py").write_text(SLOW + HOOK)
    found = check_plugin(acme_heavy, import_seconds=0.1, without=only("import"))
    assert ["budget" in found[0], "prints 'hello" in found[1], "starts threads" in found[2]] == [True, True, True]
    (tmp_path / "acme_heavy.py").write_text("import acme_missing\n")
    (text,) = check_plugin(acme_heavy, without=only("import"))
    assert "in a new process fails: ModuleNotFoundError: No module named 'acme_missing'" in text
    monkeypatch.delitem(__import__("sys").modules, "acme_heavy")


def test_what_the_kit_takes() -> None:
    with pytest.raises(TypeError, match="takes something that makes the plugin"):
        check_plugin(Good())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no check 'speed'"):
        check_plugin(Good, without=["speed"])


def test_a_plugin_that_fails_only_when_a_run_is_cancelled() -> None:
    class Unpractised:
        name = "unpractised"

        @hookimpl
        def on_cancel(self, run: RunContext[Any], reason: str) -> None:
            raise KeyError(reason)

    found = check_plugin(Unpractised, backends=["asyncio"], without=only("faults"))
    assert {text.split()[1] for text in found} >= {"cancel_once", "cancel_twice", "close", "stop", "suspend"}
    assert all("a hook failed: KeyError" in text for text in found)


def test_the_faults_strike_in_the_hooks_of_the_plugin() -> None:
    seen: list[str] = []

    class Watching:
        name = "watching"

        @hookimpl
        async def before_turn(self, run: RunContext[Any], turn: int) -> None:
            try:
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
            except BaseException as error:
                seen.append(type(error).__name__)
                raise

    assert check_plugin(Watching, without=only("faults")) == []
    assert {"CancelledError", "Cancelled"} <= set(seen)
