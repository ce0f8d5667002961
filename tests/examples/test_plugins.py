"""The example plugins do what they say, conform, and are short."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trilane import Agent, Delta, RunContext, ToolResult, hookimpl, tool
from trilane.errors import PluginError, RunLimitError
from trilane.messages import Usage
from trilane.models import ModelResponse
from trilane.testing import FunctionModel, ScriptedModel, Step, assert_plugin, call, record_run

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plugins"
FILES = sorted(FOLDER.glob("*.py"))
SECRET = "sk-abcdefghijklmnop1234"


def load(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def no_examples_left() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("example_")]:
        del sys.modules[name]


@tool(effect="read")
def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: Where.
    """
    if place == "nowhere":
        raise ValueError("there is nothing")
    return f"a ship in {place}"


def agent(*steps: Any, plugin: object, **options: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(*steps), tools=[look], plugins=[plugin], **options)


def test_there_are_five() -> None:
    assert [path.stem for path in FILES] == [
        "audit_log",
        "budget_guard",
        "notify_on_failure",
        "redact_secrets",
        "tool_cache",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_under_60_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.parametrize("name", ["audit_log", "budget_guard", "notify_on_failure", "redact_secrets", "tool_cache"])
def test_each_conforms(name: str, tmp_path: Path) -> None:
    module = load(name)
    make: dict[str, Callable[[], object]] = {
        "audit_log": lambda: module.AuditLog(tmp_path / "audit.jsonl"),
        "budget_guard": lambda: module.BudgetGuard(tokens=1_000_000),
        "notify_on_failure": lambda: module.NotifyOnFailure(print),
        "redact_secrets": lambda: module.RedactSecrets(),
        "tool_cache": lambda: module.ToolCache("echo"),
    }
    assert_plugin(make[name])


# ---- audit log -------------------------------------------------------------------------------------------------------


def test_the_audit_log_has_a_line_for_each_call_and_run(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    plugin = load("audit_log").AuditLog(path)
    calls = [call("look", place="sea"), call("look", place="nowhere"), call("unknown")]
    agent(calls, "Done.", plugin=plugin).run_sync("Look", session="s1")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["session"]) for line in lines] == [("tool", "s1"), ("tool", "s1"), ("run", "s1")]
    assert sorted((line["arguments"]["place"], line["outcome"]) for line in lines[:2]) == [
        ("nowhere", "error"),
        ("sea", "ok"),
    ]
    assert (lines[2]["status"], lines[2]["turns"]) == ("completed", 2)


def test_an_audit_log_that_cannot_be_written_is_no_good_run(tmp_path: Path) -> None:
    plugin = load("audit_log").AuditLog(tmp_path / "no" / "such" / "folder.jsonl")
    with pytest.raises(PluginError, match="strict plugin 'audit-log' failed in") as caught:
        agent("Done.", plugin=plugin).run_sync("Look")
    assert caught.value.result.output == "Done."


# ---- redact secrets --------------------------------------------------------------------------------------------------


def test_secrets_reach_neither_model_nor_history_nor_caller() -> None:
    @tool
    def leak() -> dict[str, str]:
        """Tell a secret."""
        return {"key": SECRET}

    text = f"The key is {SECRET} and password=hunter2secret !"
    model = ScriptedModel(Step("Well.", reasoning=f"I know {SECRET}", calls=[call("leak")]), text)
    subject = Agent(model, tools=[leak], plugins=[load("redact_secrets").RedactSecrets()])
    record = record_run(subject, f"Use {SECRET} please")
    everything = (
        "".join(record.lines[1:]) + record.result.to_json() + "".join(request.to_json() for request in model.requests)
    )
    everything += "".join(event.to_json() for event in record.events if event.type != "run_started")
    assert SECRET not in everything
    assert "hunter2" not in everything
    assert record.result.output == "The key is [redacted] and password=[redacted] !"
    assert "".join(record.events.texts()).endswith(record.result.output)


def test_the_data_of_a_result_is_redacted_and_kept() -> None:
    @tool
    def rows() -> ToolResult:
        """Say how many rows there are."""
        data: Any = {"rows": [{"name": "Vasa", "key": SECRET}, 3, None], SECRET: True}
        return ToolResult(call_id="", content="2 rows", data=data)

    plugin = load("redact_secrets").RedactSecrets()
    subject = Agent(ScriptedModel(call("rows"), "Done."), tools=[rows], plugins=[plugin])
    (message,) = [one for one in subject.run_sync("How many?").messages if one.kind == "tool"]
    redacted = {"rows": [{"name": "Vasa", "key": "[redacted]"}, 3, None], "[redacted]": True}
    assert message.results[0].replace(call_id="") == ToolResult(call_id="", content="2 rows", data=redacted)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_secret_that_comes_in_pieces_is_not_shown(size: int) -> None:
    text = f"one {SECRET}\ntwo password=abc {SECRET}"

    async def answer(request: object, emit: Any) -> ModelResponse:
        for start in range(0, len(text), size):
            await emit(Delta(kind="text", text=text[start : start + size], index=0))
        return ModelResponse()

    subject = Agent(FunctionModel(answer), plugins=[load("redact_secrets").RedactSecrets()])
    record = record_run(subject, "Hello")
    assert record.events.texts() == ["one [redacted]\ntwo password=[redacted] [redacted]"]
    assert record.result.output == record.events.texts()[0]


def test_if_redacting_fails_the_value_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = load("redact_secrets").RedactSecrets()
    monkeypatch.setattr(type(plugin), "redact", lambda self, text: 1 / 0)
    subject = Agent(ScriptedModel(f"Key: {SECRET}"), plugins=[plugin])
    monkeypatch.setattr(type(plugin), "on_message", hookimpl(lambda self, run, message: None))
    record = record_run(subject, "Hello")
    assert isinstance(record.error, ZeroDivisionError)
    assert SECRET not in record.result.to_json() + "".join(event.to_json() for event in record.events)


# ---- budget guard ----------------------------------------------------------------------------------------------------


def test_the_budget_holds_for_all_runs_of_an_agent_together() -> None:
    plugin = load("budget_guard").BudgetGuard(tokens=100)
    used = Usage(input_tokens=40, output_tokens=20)
    step = Step("Done.", usage=used)
    subject = agent(step, Step(calls=[call("look", place="sea")], usage=used), "Never.", plugin=plugin)
    assert subject.run_sync("One").output == "Done."
    with pytest.raises(RunLimitError, match=r"the budget of 100 tokens is used up \(120\)") as caught:
        subject.run_sync("Two")
    assert caught.value.result.turns == 2
    with pytest.raises(RunLimitError):
        subject.run_sync("Three")


def test_money_is_a_budget_too() -> None:
    plugin = load("budget_guard").BudgetGuard(cost=0.5)
    subject = agent(Step("Done.", usage=Usage(cost=0.6)), plugin=plugin)
    subject.run_sync("One")
    with pytest.raises(RunLimitError, match=r"0\.5 cost"):
        subject.run_sync("Two")


# ---- tool cache ------------------------------------------------------------------------------------------------------


def test_the_same_call_is_answered_from_memory_for_a_while() -> None:
    asked: list[str] = []
    now = [0.0]

    @tool(effect="read")
    def search(text: str, limit: int = 3) -> str:
        """Search."""
        asked.append(text)
        return f"{len(asked)} {text}"

    plugin = load("tool_cache").ToolCache("search", seconds=10, size=2, now=lambda: now[0])

    def found(**arguments: Any) -> str:
        subject = Agent(ScriptedModel(call("search", **arguments), "Done."), tools=[search], plugins=[plugin])
        (result,) = subject.run_sync("Search").new_messages[2].results
        return str(result.content)

    assert [found(text="a"), found(text="a"), found(text="a", limit=4)] == ["1 a", "1 a", "2 a"]
    now[0] = 11.0
    assert [found(text="a"), found(text="a")] == ["3 a", "3 a"]
    assert [found(text="b"), found(text="c"), found(text="a")] == ["4 b", "5 c", "6 a"]
    assert plugin.hits == 2


def test_failures_and_other_tools_are_not_kept() -> None:
    plugin = load("tool_cache").ToolCache("look")
    calls = [call("look", place="nowhere")], [call("look", place="nowhere")]
    result = agent(*calls, "Done.", plugin=plugin).run_sync("Look")
    assert [one.outcome for message in result.messages if message.kind == "tool" for one in message.results] == [
        "error",
        "error",
    ]
    other = load("tool_cache").ToolCache("search_*")
    agent([call("look", place="sea")], [call("look", place="sea")], "Done.", plugin=other).run_sync("Look")
    assert (plugin.hits, other.hits) == (0, 0)


# ---- notify on failure -----------------------------------------------------------------------------------------------


def test_failures_of_runs_and_of_plugins_are_sent() -> None:
    class Broken:
        name = "broken"

        @hookimpl
        def after_turn(self, run: RunContext[Any]) -> None:
            raise KeyError("x")

    sent: list[str] = []
    plugin = load("notify_on_failure").NotifyOnFailure(sent.append)
    subject = Agent(ScriptedModel("Fine.", ValueError("no wire")), name="shop", plugins=[plugin, Broken()])
    subject.run_sync("One")
    assert sent == ["shop: plugin broken failed in after_turn"]
    with pytest.raises(ValueError, match="no wire"):
        subject.run_sync("Two")
    assert sent[1].startswith("shop: run ")
    assert sent[1].endswith(" failed in turn 1: ValueError: no wire")


def test_a_web_hook_that_is_away_undoes_nothing() -> None:
    def away(text: str) -> None:
        raise OSError("away")

    subject = agent(ValueError("no wire"), plugin=load("notify_on_failure").NotifyOnFailure(away))
    with pytest.raises(ValueError, match="no wire"):
        subject.run_sync("One")


def test_a_text_is_posted_as_json() -> None:
    got: list[tuple[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        load("notify_on_failure").post_to(f"http://127.0.0.1:{server.server_port}/hook")("it failed")
        thread.join()
    assert got == [("application/json", {"text": "it failed"})]
