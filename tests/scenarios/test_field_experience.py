"""Field cases about sub-agents and the developer's experience: F116 to F119, F121 to F123."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, Limits, hookimpl, tool
from trilane.config import ModelSettings
from trilane.errors import (
    ConfigError,
    ModelError,
    ModelTimeoutError,
    PluginError,
    PluginLoadError,
    RecordedError,
    RunCancelledError,
)
from trilane.events import ChildEvent
from trilane.messages import ToolResult, Usage, UserMessage
from trilane.models import ModelRequest
from trilane.testing import Recorder, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio

SOURCES = Path(__file__).resolve().parents[2]


@tool
async def look() -> str:
    """Look."""
    return "a ship"


@tool
async def listen() -> str:
    """Listen."""
    return "a horn"


def results(messages: Any) -> list[tuple[str, Any]]:
    return [(one.outcome, one.content) for message in messages if message.kind == "tool" for one in message.results]


def child(name: str, *script: Any, **options: Any) -> Any:
    agent = Agent(ScriptedModel(*script), tools=[look, listen], name=name, **options)
    return agent.as_tool(name=name, description="Works.")


async def test_f116_events_of_two_children_are_live_tagged_and_in_order() -> None:
    tools = [child(name, [call("look"), call("listen")], f"{name} done.") for name in ("one", "two")]
    model = ScriptedModel([call("one", request="Go"), call("two", request="Go")], "Done.")
    async with no_leaks(), Agent(model, tools=tools).stream("Go") as run:
        events = await record(run)
    events.check()
    inner = events.of(ChildEvent)
    assert {event.path for event in inner} == {("one",), ("two",)}
    for path in (("one",), ("two",)):
        numbers = [event.event.seq for event in inner if event.path == path]
        assert numbers == list(range(1, len(numbers) + 1))
    first_result = events.types().index("tool_completed")
    assert {event.path for event in events.events[:first_result] if isinstance(event, ChildEvent)} >= {("one",)}
    assert [event.type for event in events.events if event.type.startswith("run_")] == ["run_started", "run_completed"]


async def test_f117_children_that_fail_are_results_without_a_traceback() -> None:
    tools = [
        child("good", "Fine."),
        child("broken", ModelError("the provider is away", model="m")),
        child("endless", *[call("look") for _ in range(3)], limits=Limits(turns=2)),
    ]
    model = ScriptedModel([call(name, request="Go") for name in ("good", "broken", "endless")], "Done.")
    result = await Agent(model, tools=tools).run("Go")
    answers = results(model.requests[1].messages)
    assert [outcome for outcome, _ in answers] == ["ok", "error", "error"]
    assert not [text for _, text in answers if "Traceback" in text or ".py" in text]
    assert result.output == "Done."


def _is_not_copied(live: Any, words: str) -> None:
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=words):
            copying(live)


@pytest.mark.parametrize(
    "error",
    [
        ModelError("away", model="m", retryable=True),
        ModelTimeoutError("slow", limit="idle"),
        PluginError("broken", plugin="p", hook="on_tool"),
        RecordedError("KeyError", "gone"),
        RunCancelledError("enough"),
        PluginLoadError("no", plugin="p"),
        ConfigError("wrong"),
    ],
)
def test_f118_errors_copy_and_pickle_with_all_they_say(error: Exception) -> None:
    error.add_note("a note")
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (type(other), other.args, vars(other)) == (type(error), error.args, vars(error))


async def test_f118_data_copies_and_pickles_before_during_and_after_a_run() -> None:
    seen: list[Any] = [ModelSettings(seed=1), Limits(turns=3), Usage(input_tokens=1), call("look")]

    class Collecting:
        name = "collecting"

        @hookimpl
        def after_tool(self, run: Any, call: Any, result: ToolResult) -> None:
            _is_not_copied(run, "take what you need out of it")
            seen.extend([call, result, run.request])

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[Collecting()])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "tool_started":
                seen.append(event)
                _is_not_copied(run, "keep its events or its result")
                _is_not_copied(run.queues, "make others for another run")
            if event.type == "tool_completed":
                seen.append(event)
    assert run.result.hook_failures == ()
    seen += [*run.result.messages, run.result.usage, run.result, look]
    for one in seen:
        for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert type(other) is type(one)
            assert other == one or repr(other) == repr(one)


async def test_f119_agents_that_share_plugins_tools_and_store_do_not_share_more() -> None:
    store = InMemoryStore()
    recorder = Recorder(only=["before_run", "close_run"])

    def agent(name: str) -> Agent[None, str]:
        return Agent(ScriptedModel(call("look"), f"{name}."), name=name, tools=[look], plugins=[recorder], store=store)

    one, two = agent("one"), agent("two")
    async with anyio.create_task_group() as tasks:
        for subject in (one, two):
            tasks.start_soon(partial(subject.run, "Go", session=subject.name))
    assert recorder.names("before_run", "close_run").count("close_run") == 2
    two.plugins.unregister("recorder")
    two.model = ScriptedModel("Changed.")
    one.model = ScriptedModel("Mine.")
    assert (await one.run("More", session="one")).output == "Mine."
    assert (await two.run("More", session="two")).output == "Changed."
    assert len(recorder.names("before_run")) == 3


@pytest.mark.parametrize("session", ["a:b", "a/b", "../up", "..", "C:\\temp\\x", "a b", "\U0001f600", "x" * 300])
async def test_f121_a_session_id_is_only_a_name(session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = Agent(ScriptedModel("Hello \U0001f600.", "Again."))
    await agent.run("Go \U0001f600", session=session)
    result = await agent.run("More", session=session)
    assert_history(result.messages)
    assert len(result.messages) == 4
    assert os.listdir(tmp_path) == []


_ASCII = """
from pathlib import Path
from trilane import Agent, hookimpl
from trilane.testing import ScriptedModel
from trilane.plugins.settings import *
from trilane.result import RunResult

result = Agent(ScriptedModel("Hello \\U0001f600."), instructions="Be \\U0001f600.").run_sync("Go \\U0001f600")
assert result.output == "Hello \\U0001f600."
assert "\\U0001f600" in RunResult.from_json(result.to_json()).output
"""


def test_f121_an_ascii_locale_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a b \U0001f600"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "\U0001f600"\n', encoding="utf-8")
    subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", _ASCII],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        check=True,
        timeout=60,
    )


def test_f121_text_files_are_opened_with_their_encoding() -> None:
    opened = re.compile(r"\.(?:read_text|write_text)\((?P<rest>[^\n]*)")
    missing = []
    for path in sorted((*SOURCES.glob("src/**/*.py"), *SOURCES.glob("plugins/*/src/**/*.py"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = opened.search(line)
            if found and "encoding=" not in found["rest"] and "distribution." not in line:  # metadata has its own
                missing.append(f"{path.name}:{number}: {line.strip()}")
    assert missing == []


KEY = "sk-marked-0123456789abcdef"


class KeyedModel(ScriptedModel):
    """A model that has a key, as those of plugins do."""

    def __init__(self, *steps: Any) -> None:
        super().__init__(*steps)
        self._key = KEY


async def test_f122_a_models_key_is_in_nothing_that_is_shown_or_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    agent = Agent(KeyedModel(call("look"), ModelError("refused", model="m")), tools=[look])
    shown: list[str] = []
    async with agent.stream("Go", session="s") as run:
        with pytest.raises(ModelError) as caught:
            async for event in run:
                shown += [repr(event), event.to_json()]
    records = (await agent.store.load("s")).records
    shown += [repr(agent), str(agent), f"{agent}", repr(run), repr(run.result), run.result.to_json()]
    shown += [
        repr(caught.value),
        str(caught.value),
        repr(agent.model),
        caplog.text,
        *(one.to_json() for one in records),
    ]
    assert not [text for text in shown if KEY in text]


class Redacting:
    """Replaces the secret before anything is shown, kept or sent."""

    name = "redacting"

    @hookimpl
    def after_model(self, response: Any) -> Any:
        parts = tuple(
            part.replace(call=part.call.replace(arguments={"secret": "***"}, raw=""))
            if part.kind == "tool_call"
            else part
            for part in response.parts or ()
        )
        return response.replace(parts=parts)

    @hookimpl
    def on_delta(self, delta: Any) -> Any:
        return delta.replace(text=delta.text.replace(KEY, "***")) if delta.kind != "arguments" or not delta.text else ()

    @hookimpl
    def on_message(self, message: UserMessage) -> UserMessage:
        parts = tuple(
            part.replace(text=part.text.replace(KEY, "***")) if part.kind == "text" else part for part in message.parts
        )
        return message.replace(parts=parts)

    @hookimpl
    def after_tool(self, result: ToolResult) -> ToolResult:
        return result.replace(content=str(result.content).replace(KEY, "***"), data=None)


@tool
async def login(secret: str) -> str:
    """Log in."""
    raise ValueError(f"wrong secret {secret}")


async def test_f123_arguments_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)  # at DEBUG are errors as they are, for those who ask
    result = await Agent(ScriptedModel(call("login", secret=KEY), "Done."), tools=[login]).run("Go")
    assert KEY not in caplog.text
    assert not [text for _, text in results(result.messages) if KEY in text]


async def test_f123_a_hook_redacts_before_anything_is_shown_stored_or_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(call("login", secret=KEY), "Done.")
    agent = Agent(model, tools=[login], plugins=[Redacting()])
    shown: list[str] = []
    async with agent.stream(f"My secret is {KEY}.", session="s") as run:
        # Except for the request as the caller gave it, which the caller gets back.
        shown += [event.to_json() async for event in run if event.type != "run_started"]
    shown += [one.to_json() for one in (await agent.store.load("s")).records]
    sent: list[ModelRequest] = model.requests
    shown += [message.to_json() for request in sent for message in request.messages]
    assert not [text for text in shown if KEY in text]
    assert KEY not in caplog.text
