"""The fixtures of the pytest plugin, in a pytest of its own, and what a recorded run looks like."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from trilane import Agent, RunContext, ToolContext, hookimpl, tool
from trilane.decisions import SendBack
from trilane.testing import ScriptedModel, Step, call, record_run, transcript

Pytest = Callable[..., tuple[int, str]]


@pytest.fixture
def inner(tmp_path: Path) -> Pytest:
    """Runs a test file in a process of its own, with the plugin as an installed `trilane` would have it."""

    def run(source: str, *options: str) -> tuple[int, str]:
        (tmp_path / "test_inner.py").write_text(textwrap.dedent(source))
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nfilterwarnings =\n    error\n    ignore::pytest.PytestWarning\n"
        )
        # By its file, for the entry point may be there or not in the environment at hand.
        loaded = ("-p", "trilane.testing.pytest_plugin") if not _is_installed() else ()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--strict-markers",
            *loaded,
            *options,
        ]
        environment = {**os.environ, "TRILANE_MODEL": "nothing"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "trilane.testing.pytest_plugin" for point in entry_points(group="pytest11"))


def test_the_fixtures_work(inner: Pytest) -> None:
    status, output = inner(
        """
        import os
        import anyio
        import pytest
        from trilane import Agent
        from trilane.plugins import discover, installed
        from trilane.testing import ScriptedModel

        def test_model(trilane_model):
            assert Agent(trilane_model("Hi.")).run_sync("Hello").output == "Hi."

        def test_recorder(trilane_model, trilane_recorder):
            Agent(trilane_model("Hi."), plugins=[trilane_recorder]).run_sync("Hello")
            assert trilane_recorder.names("before_run", "close_run") == ["before_run", "close_run"]

        @pytest.mark.parametrize("backend", ["asyncio", "trio"])
        def test_clock(trilane_clock, backend):
            async def main():
                await anyio.sleep(3600)
                return anyio.current_time()
            assert trilane_clock(main, backend=backend) >= 3600

        def test_record(trilane_model, trilane_record):
            assert trilane_record(Agent(trilane_model("Hi.")), "Hello") == '''
                request: Hello
                text: Hi.
                completed: Hi.
            '''

        def test_alone(trilane_alone):
            assert discover() == []
            assert "TRILANE_MODEL" not in os.environ
            assert Agent(ScriptedModel(), plugins=installed()).plugins.names() == ()

        @pytest.mark.trilane_plugins("files")
        def test_marked(trilane_alone):
            assert [info.name for info in discover()] == ["files"]

        def test_untouched():
            assert os.environ["TRILANE_MODEL"] == "nothing"
            assert "files" in [info.name for info in discover()]
        """
    )
    assert status == 0, output
    assert "8 passed" in output


def test_what_goes_wrong_is_told(inner: Pytest) -> None:
    status, output = inner(
        """
        import pytest
        from trilane import Agent

        def test_script_is_too_long(trilane_model):
            Agent(trilane_model("Hi.", "More.")).run_sync("Hello")

        def test_difference(trilane_model, trilane_record):
            assert trilane_record(Agent(trilane_model("Hi.")), "Hello") == '''
                request: Hello
                text: Ho.
                completed: Hi.
            '''

        @pytest.mark.trilane_plugins("nothing-like-it")
        def test_missing(trilane_alone): ...
        """
    )
    assert status == 1
    assert "1 of 2 steps were not played" in output
    shown = [line[1:].strip() for line in output.splitlines() if line.startswith("E ")]
    start = next(place for place, line in enumerate(shown) if "the run is not as expected" in line)
    assert shown[start + 1 : start + 5] == ["request: Hello", "- text: Ho.", "+ text: Hi.", "completed: Hi."]
    assert "no plugin 'nothing-like-it' is installed" in output


def test_loading_the_plugin_imports_nothing_of_trilane(inner: Pytest) -> None:
    status, output = inner(
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("trilane.")}
            assert loaded <= {"trilane.testing", "trilane.testing.pytest_plugin"}, loaded
        """
    )
    assert status == 0, output


@tool
async def ask(context: ToolContext[None], place: str) -> str:
    """Ask where to look.

    Args:
        place: Where first.
    """
    await context.progress("asking")
    await context.emit("asked", {"place": place})
    answer: str = await context.ask(f"Where, if not {place}?")
    return f"a ship\nin {answer}"


async def answers(question: object) -> str:
    return "port"


def test_a_transcript_tells_everything_that_matters() -> None:
    class Plugin:
        name = "fussy"

        @hookimpl
        def after_turn(self, run: RunContext[None]) -> None:
            if run.turn == 1:
                raise KeyError("no")

        @hookimpl
        def on_answer(self, output: str) -> SendBack | None:
            return SendBack(feedback="Be kind.") if output == "No." else None

    steps = [Step("Let me see.", reasoning="Hm.", calls=[call("ask", place="sea"), call("other")]), "No.", "A ship."]
    agent = Agent(ScriptedModel(*steps), tools=[ask], plugins=[Plugin()], answer=answers)
    record = record_run(agent, "What is there?")
    assert (
        record
        == """
        request: What is there?
        reasoning: Hm.
        text: Let me see.
        -> ask(place="sea")
        .. ask: asking
        agent: asked {"place": "sea"}
        question: Where, if not sea?
        reply: accepted
        <- ask: a ship in port
        <- other error: There is no tool named 'other'. Available: ask.
        plugin fussy failed in after_turn: KeyError: 'no'
        text: No.
        the message is void
        text: A ship.
        completed: A ship.
    """
    )
    assert record.difference("request: What is there?")[-1] == "+ completed: A ship."
    assert str(record).splitlines() == record.lines == transcript(record.events)
    assert record != record_run(Agent(ScriptedModel("x")), "y")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_runs_that_fail_are_recorded_too(backend: str) -> None:
    child = Agent(ScriptedModel("Below."))
    agent = Agent(
        ScriptedModel(call("below", request="Go"), ValueError("the wire broke")),
        tools=[child.as_tool(name="below", description="Go below.")],
    )
    record = record_run(agent, "Hello", backend=backend)  # type: ignore[arg-type]
    assert isinstance(record.error, ValueError)
    assert (
        record
        == """
        request: Hello
        -> below(request="Go")
        below | request: Go
        below | text: Below.
        <- below: Below.
        failed: ValueError: the wire broke
    """
    )
