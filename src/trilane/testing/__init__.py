"""The test kit for agents, plugins and Trilane itself. It needs no test framework; nothing here imports pytest.

Names are imported when they are first used, so a test that needs only a scripted model pays for nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clock import VirtualEventLoop, run_virtual, virtual_backend
    from .conformance import assert_plugin, check_plugin
    from .events import assert_events, check_events
    from .history import assert_history, check_history
    from .leaks import LeakError, no_leaks
    from .models import FunctionModel, ScriptedModel, ScriptError, ScriptStep, Step, call
    from .recorder import EventRecorder, HookCall, Recorder, record
    from .run_record import RunRecord, record_run, transcript
    from .sinks import SINK_CHECKS, check_sink

__all__ = [
    "SINK_CHECKS",
    "EventRecorder",
    "FunctionModel",
    "HookCall",
    "LeakError",
    "Recorder",
    "RunRecord",
    "ScriptError",
    "ScriptStep",
    "ScriptedModel",
    "Step",
    "VirtualEventLoop",
    "assert_events",
    "assert_history",
    "assert_plugin",
    "call",
    "check_events",
    "check_history",
    "check_plugin",
    "check_sink",
    "no_leaks",
    "record",
    "record_run",
    "run_virtual",
    "transcript",
    "virtual_backend",
]

_MODULES = {
    "EventRecorder": "recorder",
    "FunctionModel": "models",
    "HookCall": "recorder",
    "LeakError": "leaks",
    "Recorder": "recorder",
    "RunRecord": "run_record",
    "SINK_CHECKS": "sinks",
    "ScriptError": "models",
    "ScriptStep": "models",
    "ScriptedModel": "models",
    "Step": "models",
    "VirtualEventLoop": "clock",
    "assert_events": "events",
    "assert_history": "history",
    "assert_plugin": "conformance",
    "call": "models",
    "check_events": "events",
    "check_history": "history",
    "check_plugin": "conformance",
    "check_sink": "sinks",
    "no_leaks": "leaks",
    "record": "recorder",
    "record_run": "run_record",
    "run_virtual": "clock",
    "transcript": "run_record",
    "virtual_backend": "clock",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
