"""The scenarios: one small scripted run for each thing that can be going on when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trilane.errors import AgentProtocolError
from trilane.messages import ToolCall
from trilane.testing.models import ScriptStep, Step, call

from .plugins import Closer, Compactor, EveryHook, Listener, Retrier, SendsBack
from .scenario import Play, Scenario
from .stage import EVENT_FAULTS, Stage
from .tools import asking, broken, deaf, hanging, process, stuck, threaded, worker

__all__ = ["SCENARIOS", "scenario"]

_found: dict[str, Scenario] = {}
SCENARIOS: Mapping[str, Scenario] = MappingProxyType(_found)

_NO_EVENTS = frozenset(EVENT_FAULTS)


def scenario(name: str, *needs: str, **options: Any) -> Callable[[Callable[[Stage], Play]], Callable[[Stage], Play]]:
    """Register a function that makes the parts of a scenario."""

    def register(play: Callable[[Stage], Play]) -> Callable[[Stage], Play]:
        skip = frozenset(options.pop("skip", ()))
        if options.get("mode") in ("run", "sink"):
            skip |= _NO_EVENTS
        if options.get("mode") != "runtime":
            skip |= {"drop"}
        _found[name] = Scenario(name=name, play=play, needs=frozenset(needs), skip=skip, **options)
        return play

    return register


def _one(name: str, number: int = 1) -> ToolCall:
    return call(name, call_id=f"{name}_{number}", n=number)


# ---- answers ---------------------------------------------------------------------------------------------------------


@scenario("plain")
def _plain(_stage: Stage) -> Play:
    return Play(script=["An answer of several words."])


@scenario("plain_run", mode="run")
def _plain_run(_stage: Stage) -> Play:
    return Play(script=["An answer of several words."])


@scenario("plain_runtime", "runtime", mode="runtime")
def _plain_runtime(_stage: Stage) -> Play:
    return Play(script=["An answer of several words."])


@scenario("reasoning")
def _reasoning(_stage: Stage) -> Play:
    return Play(script=[Step(reasoning="First I think.", text="Then I answer.")])


@scenario("model_error", status="failed")
def _model_error(_stage: Stage) -> Play:
    return Play(script=[Step("Half an", error=ConnectionError("the provider is gone"))])


@scenario("model_retry", "hooks")
def _model_retry(stage: Stage) -> Play:
    script: list[ScriptStep] = [Step("Half an", error=ConnectionError("the provider is gone")), "A whole answer."]
    return Play(script=script, plugins=[Retrier(stage, "retrier")])


@scenario("structured", "structured")
def _structured(_stage: Stage) -> Play:
    return Play(script=["[1, 2", "[1, 2]"], options={"output_type": list[int]})


@scenario("sent_back", "hooks")
def _sent_back(stage: Stage) -> Play:
    return Play(script=["Short.", "In more words."], plugins=[SendsBack(stage, "sender")])


@scenario("empty_reply")
def _empty_reply(_stage: Stage) -> Play:
    return Play(script=["", "Something."])


# ---- tools -----------------------------------------------------------------------------------------------------------


@scenario("tool")
def _tool(_stage: Stage) -> Play:
    return Play(script=[Step("Looking.", calls=[_one("look")]), "Found."], tools=[worker("look", seconds=0.2)])


@scenario("tool_run", mode="run")
def _tool_run(_stage: Stage) -> Play:
    return Play(script=[[_one("look")], "Found."], tools=[worker("look", seconds=0.2)])


@scenario("tool_runtime", "runtime", mode="runtime")
def _tool_runtime(_stage: Stage) -> Play:
    return Play(script=[[_one("look")], "Found."], tools=[worker("look", seconds=0.2)])


@scenario("parallel")
def _parallel(_stage: Stage) -> Play:
    tools = [worker("slow", seconds=0.9), worker("quick"), worker("middle", seconds=0.4)]
    return Play(script=[[_one("slow"), _one("quick"), _one("middle")], "All three."], tools=tools)


@scenario("parallel_run", mode="run")
def _parallel_run(stage: Stage) -> Play:
    return _parallel(stage)


@scenario("mixed")
def _mixed(_stage: Stage) -> Play:
    tools = [worker("first", seconds=0.3), worker("alone", seconds=0.2, parallel=False), worker("last")]
    calls = [_one("first"), _one("alone"), _one("last"), _one("alone", 2)]
    return Play(script=[calls, "All four."], tools=tools)


@scenario("tool_raises")
def _tool_raises(_stage: Stage) -> Play:
    tools = [broken("broken"), worker("look", seconds=0.1)]
    return Play(script=[[_one("broken"), _one("look")], "One worked."], tools=tools)


@scenario("tool_hangs", "limits")
def _tool_hangs(_stage: Stage) -> Play:
    tools = [hanging("hanging"), worker("look", seconds=0.1)]
    return Play(script=[[_one("look"), _one("hanging")], "One worked."], tools=tools)


@scenario("tool_hangs_unbounded", "limits", status="timed_out")
def _tool_hangs_unbounded(_stage: Stage) -> Play:
    tools = [hanging("hanging", timeout=None), worker("look", seconds=0.1)]
    return Play(script=[[_one("look"), _one("hanging")], "Never."], tools=tools)


@scenario("tool_deaf_1")
def _tool_deaf_1(_stage: Stage) -> Play:
    return Play(script=[[_one("deaf"), _one("look")], "Heard."], tools=[deaf("deaf", 1), worker("look", seconds=0.1)])


@scenario("tool_deaf_3")
def _tool_deaf_3(_stage: Stage) -> Play:
    return Play(script=[[_one("deaf"), _one("look")], "Heard."], tools=[deaf("deaf", 3), worker("look", seconds=0.1)])


@scenario("tool_deaf_always")
def _tool_deaf_always(_stage: Stage) -> Play:
    tools = [deaf("deaf", 1000, seconds=30.0), worker("look", seconds=0.1)]
    return Play(script=[[_one("deaf"), _one("look")], "Heard."], tools=tools)


@scenario("tool_thread", "threads", real=True)
def _tool_thread(_stage: Stage) -> Play:
    return Play(script=[[_one("thread"), _one("look")], "Both."], tools=[threaded("thread"), worker("look")])


@scenario("tool_thread_stuck", "threads", "limits", real=True)
def _tool_thread_stuck(_stage: Stage) -> Play:
    return Play(script=[[_one("stuck"), _one("look")], "One."], tools=[stuck("stuck"), worker("look", seconds=0.1)])


@scenario("tool_process", "processes", real=True)
def _tool_process(_stage: Stage) -> Play:
    return Play(script=[[_one("program"), _one("look")], "Both."], tools=[process("program"), worker("look")])


@scenario("tool_process_hangs", "processes", "limits", real=True, status="timed_out")
def _tool_process_hangs(_stage: Stage) -> Play:
    return Play(script=[[_one("program")], "Never."], tools=[process("program", hangs=True)])


@scenario("tool_unknown")
def _tool_unknown(_stage: Stage) -> Play:
    return Play(script=[[_one("nothing"), _one("look")], "One."], tools=[worker("look")])


@scenario("calls_malformed")
def _calls_malformed(_stage: Stage) -> Play:
    bad = ToolCall(id="bad_1", name="look", raw='{"n": ')
    wrong = ToolCall(id="bad_2", name="look", arguments={"n": "many"})
    return Play(script=[[bad, wrong, _one("look")], "One."], tools=[worker("look", seconds=0.1)])


@scenario("calls_same_id")
def _calls_same_id(_stage: Stage) -> Play:
    calls = [call("look", call_id="same", n=1), call("look", call_id="same", n=2)]
    return Play(script=[calls, "Both."], tools=[worker("look", seconds=0.1)])


@scenario("calls_no_id")
def _calls_no_id(_stage: Stage) -> Play:
    calls = [call("look", call_id="", n=1), call("look", call_id="", n=2)]
    return Play(script=[calls, "Both."], tools=[worker("look", seconds=0.1)])


@scenario("calls_cut_off")
def _calls_cut_off(_stage: Stage) -> Play:
    cut = Step("Looking.", calls=[_one("look")], stop_reason="length")
    return Play(script=[cut, [_one("look", 2)], "Found."], tools=[worker("look")])


# ---- questions, steering, compaction ---------------------------------------------------------------------------------


def _replying(stage: Stage, *payloads: Any) -> Callable[[Any, Any], None]:
    """A consumer that answers each question with the payloads, one after the other."""

    def react(run: Any, event: Any) -> None:
        if event.type == "reply_requested":
            for payload in payloads:
                receipt = run.reply(event.question.id, payload)
                stage.replied.append(event.question.id)
                if stage.fired_label == "hook.on_reply" and stage.injected is not None and receipt.reasons:
                    assert receipt.status == "invalid"
                    assert type(stage.injected).__name__ in str(receipt.reasons), receipt
                    stage.heard.append(stage.injected)  # whoever replied was told

    return react


@scenario("ask", "questions")
def _ask(stage: Stage) -> Play:
    tools = [asking("painter"), worker("look", seconds=0.1)]
    return Play(script=[[_one("painter"), _one("look")], "Blue."], tools=tools, react=_replying(stage, "blue"))


@scenario("ask_timeout", "questions")
def _ask_timeout(_stage: Stage) -> Play:
    return Play(script=[[_one("painter")], "No colour."], tools=[asking("painter", timeout=2.0)])


@scenario("ask_wrong_reply", "questions")
def _ask_wrong_reply(stage: Stage) -> Play:
    return Play(
        script=[[_one("painter")], "Blue."], tools=[asking("painter")], react=_replying(stage, 17, "blue", "red")
    )


@scenario("ask_answered", "questions", mode="run")
def _ask_answered(stage: Stage) -> Play:
    async def answer(_question: Any) -> str:
        stage.begin("answer")
        await stage.call("answer")
        return "green"

    return Play(script=[[_one("painter")], "Green."], tools=[asking("painter")], options={"answer": answer})


@scenario("approval", "questions")
def _approval(stage: Stage) -> Play:
    tools = [replace(worker("careful", seconds=0.1), approval=True), worker("look", seconds=0.2)]
    react = _replying(stage, {"approve": True})
    return Play(script=[[_one("careful"), _one("look")], "Done."], tools=tools, react=react)


def _say(say: Callable[[str], None], text: str) -> None:
    """Speak to a run that may have ended already."""
    with suppress(AgentProtocolError):
        say(text)


@scenario("steering", "steering")
def _steering(_stage: Stage) -> Play:
    def react(run: Any, event: Any) -> None:
        if event.type == "tool_started":
            _say(run.steer, "Look elsewhere.")

    calls = [_one("look"), _one("alone"), _one("look", 2)]
    tools = [worker("look", seconds=0.1), worker("alone", seconds=0.3, parallel=False)]
    return Play(script=[calls, "Elsewhere.", "And again."], tools=tools, react=react)


@scenario("steering_each_phase", "steering")
def _steering_each_phase(_stage: Stage) -> Play:
    said: list[str] = []

    def react(run: Any, event: Any) -> None:
        if event.type == "phase_changed" and not event.phase.is_terminal and event.phase.value not in said:
            said.append(event.phase.value)
            _say(run.steer, f"Said in {event.phase.value}.")

    script: list[ScriptStep] = ["One.", [_one("look")], "Two.", "Three.", "Four.", "Five."]
    return Play(script=script, tools=[worker("look", seconds=0.1)], react=react)


@scenario("follow_up", "steering")
def _follow_up(_stage: Stage) -> Play:
    said: list[str] = []

    def react(run: Any, event: Any) -> None:
        if event.type in ("run_started", "text_delta", "tool_started") and event.type not in said:
            said.append(event.type)
            _say(run.follow_up, f"After {event.type}.")

    script: list[ScriptStep] = [[_one("look")], "One.", "Two.", "Three.", "Four."]
    return Play(script=script, tools=[worker("look", seconds=0.1)], react=react)


@scenario("compaction", "hooks")
def _compaction(stage: Stage) -> Play:
    script: list[ScriptStep] = [[_one("look")], "After compaction."]
    return Play(script=script, tools=[worker("look")], plugins=[Compactor(stage, "compactor")])


# ---- plugins ---------------------------------------------------------------------------------------------------------


@scenario("hooks", "hooks")
def _hooks(stage: Stage) -> Play:
    plugins = [EveryHook(stage, "first"), EveryHook(stage, "second")]
    return Play(script=[Step("Looking.", calls=[_one("look")]), "Found."], tools=[worker("look")], plugins=plugins)


@scenario("hooks_run", "hooks", mode="run")
def _hooks_run(stage: Stage) -> Play:
    plugins = [EveryHook(stage, "first"), Closer(stage, "second")]
    return Play(script=[[_one("look")], "Found."], tools=[worker("look", seconds=0.1)], plugins=plugins)


@scenario("hooks_model_error", "hooks", status="failed")
def _hooks_model_error(stage: Stage) -> Play:
    script = [Step("Half an", error=ConnectionError("the provider is gone"))]
    return Play(script=script, plugins=[EveryHook(stage, "first"), Closer(stage, "second")])


@scenario("hooks_ask", "hooks", "questions")
def _hooks_ask(stage: Stage) -> Play:
    script: list[ScriptStep] = [[_one("painter")], "Blue."]
    plugins = [EveryHook(stage, "first"), Listener(stage, "listener")]
    return Play(script=script, tools=[asking("painter")], plugins=plugins, react=_replying(stage, "blue", "red"))


@scenario("listener", "hooks")
def _listener(stage: Stage) -> Play:
    plugins = [Listener(stage, "first"), Listener(stage, "second")]
    return Play(script=[[_one("look")], "Found."], tools=[worker("look")], plugins=plugins)


# ---- stores ----------------------------------------------------------------------------------------------------------


@scenario("store", "store")
def _store(_stage: Stage) -> Play:
    return Play(script=[[_one("look")], "Found."], tools=[worker("look", seconds=0.1)], store="slow")


@scenario("store_run", "store", mode="run")
def _store_run(_stage: Stage) -> Play:
    return Play(script=["An answer."], store="slow")


@scenario("store_parallel", "store")
def _store_parallel(_stage: Stage) -> Play:
    tools = [worker("slow", seconds=0.5), worker("quick")]
    return Play(script=[[_one("slow"), _one("quick")], "Both."], tools=tools, store="slow")


@scenario("store_hooks", "store", "hooks")
def _store_hooks(stage: Stage) -> Play:
    plugins = [EveryHook(stage, "first"), Listener(stage, "listener")]
    return Play(script=[[_one("look")], "Found."], tools=[worker("look")], plugins=plugins, store="slow")


@scenario("store_approval", "store", "hooks", "questions")
def _store_approval(stage: Stage) -> Play:
    tools = [replace(worker("careful"), approval=True), worker("look", seconds=0.2)]
    plugins = [EveryHook(stage, "first"), Listener(stage, "listener")]
    react = _replying(stage, {"approve": True})
    script: list[ScriptStep] = [[_one("careful"), _one("look"), _one("careful", 2)], "Done."]
    return Play(script=script, tools=tools, plugins=plugins, react=react, store="slow")


@scenario("store_ask", "store", "questions")
def _store_ask(stage: Stage) -> Play:
    tools = [asking("painter"), worker("look", seconds=0.1)]
    script: list[ScriptStep] = [[_one("painter"), _one("look")], "Blue."]
    return Play(script=script, tools=tools, react=_replying(stage, "blue"), store="slow")


@scenario("store_steering", "store", "hooks", "steering")
def _store_steering(stage: Stage) -> Play:
    said: list[str] = []

    def react(run: Any, event: Any) -> None:
        if event.type == "tool_started" and not said:
            for text in ("Look elsewhere.", "And at once.", "Please."):
                said.append(text)
                _say(run.steer, text)

    plugins = [EveryHook(stage, "first")]  # nobody hears notifications, before which everything is stored anyway
    script: list[ScriptStep] = [[_one("look")], "Elsewhere.", "And again."]
    return Play(script=script, tools=[worker("look")], plugins=plugins, react=react, store="slow")


# ---- sinks and children ----------------------------------------------------------------------------------------------


@scenario("sink", "sink", mode="sink")
def _sink(_stage: Stage) -> Play:
    return Play(script=[[_one("look")], "Found."], tools=[worker("look", seconds=0.1)])


@scenario("sink_slow", "sink", mode="sink")
def _sink_slow(_stage: Stage) -> Play:
    return Play(script=["An answer of several words."], sink="slow")


@scenario("sink_failing", "sink", mode="sink", status="failed")
def _sink_failing(_stage: Stage) -> Play:
    script: list[ScriptStep] = [Step("Looking for it now.", calls=[_one("look")]), "Found."]
    return Play(script=script, tools=[worker("look", seconds=0.1)], sink="failing")


@scenario("sink_vanishing", "sink", mode="sink", status="failed")
def _sink_vanishing(_stage: Stage) -> Play:
    script: list[ScriptStep] = [Step("Looking for it now.", calls=[_one("look")]), "Found."]
    return Play(script=script, tools=[worker("look", seconds=0.1)], sink="vanishing")


def _with_child(stage: Stage, **options: Any) -> Play:
    child = Play(script=[[_one("dig")], "Dug."], tools=[worker("dig", seconds=0.3)], plugins=[Closer(stage, "child")])
    asked = call("helper", call_id="helper_1", request="Dig.")
    return Play(script=[[asked, _one("look")], "Helped."], tools=[worker("look")], child={"helper": child}, **options)


@scenario("child", "children")
def _child(stage: Stage) -> Play:
    return _with_child(stage)


@scenario("child_run", "children", mode="run")
def _child_run(stage: Stage) -> Play:
    return _with_child(stage)


@scenario("child_store", "children", "store")
def _child_store(stage: Stage) -> Play:
    return _with_child(stage, store="slow")


@scenario("child_asks", "children", "questions")
def _child_asks(_stage: Stage) -> Play:
    child = Play(script=[[_one("painter")], "Painted."], tools=[asking("painter")])
    asked = call("helper", call_id="helper_1", request="Paint.")

    def react(run: Any, event: Any) -> None:
        if event.type == "child_event" and event.event.type == "reply_requested":
            run.reply(event.event.question.id, "blue")

    return Play(script=[[asked], "Helped."], child={"helper": child}, react=react)
