"""What the dispatcher gets."""

from __future__ import annotations

import types

import pluggy
import pytest

from trilane.hookspecs import HOOKS, hookimpl
from trilane.plugins import CompiledHooks, HookImplementation, PluginManager
from trilane.plugins.implementations import positional


class Full:
    name = "full"
    strict = True

    @hookimpl(timeout=2, thread=True)
    def before_run(self, run: object) -> object:
        return run

    @hookimpl
    async def after_tool(self, result: object) -> object:
        return result

    @hookimpl(required=True)
    def on_delta(self, run: object, delta: object, final: object) -> object:
        return (run, delta, final)


def test_compiled_hooks_have_one_attribute_for_each_hook() -> None:
    assert CompiledHooks.__slots__ == tuple(HOOKS)
    assert list(CompiledHooks.__annotations__) == list(HOOKS)
    assert all(getattr(PluginManager().compile(), hook) == () for hook in HOOKS)


def test_an_implementation_tells_everything_the_dispatcher_asks() -> None:
    plugin = Full()
    compiled = PluginManager([plugin]).compile()
    (call,) = compiled.before_run

    assert isinstance(call, HookImplementation)
    assert (call.plugin, call.hook, call.timeout, call.thread) == ("full", "before_run", 2.0, True)
    assert (call.is_async, call.required, call.strict) == (False, False, True)
    assert call.location == f"{__file__}:{Full.before_run.__code__.co_firstlineno}"
    assert compiled.after_tool[0].is_async
    assert compiled.after_tool[0].timeout is None
    assert compiled.on_delta[0].required
    assert repr(compiled) == "<CompiledHooks {'before_run': 1, 'on_delta': 1, 'after_tool': 1}>" or "on_delta" in repr(
        compiled
    )
    assert repr(call) == f"<HookImplementation full.before_run at {call.location}>"


def test_strict_must_be_declared() -> None:
    plugin = types.SimpleNamespace(strict="yes", on_state=hookimpl(lambda: None))

    assert PluginManager([plugin]).compile().on_state[0].strict is False


def test_a_function_that_takes_everything_in_order_is_called_directly() -> None:
    plugin = Full()
    compiled = PluginManager([plugin]).compile()

    assert compiled.on_delta[0].call == plugin.on_delta
    assert compiled.on_delta[0].call(1, 2, 3) == (1, 2, 3)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [((), ()), (("result",), (3,)), (("call", "run"), (2, 1)), (("result", "call", "run"), (3, 2, 1))],
)
def test_other_functions_get_what_they_take(wanted: tuple[str, ...], expected: tuple[int, ...]) -> None:
    call = positional(lambda *given: given, ("run", "call", "result"), wanted)

    assert call(1, 2, 3) == expected


def test_call_lists_are_kept_until_the_plugins_change() -> None:
    manager = PluginManager([Full()])
    first = manager.compile()

    assert manager.compile() is first
    manager.register(types.SimpleNamespace(on_state=hookimpl(lambda: None)), name="other")
    assert len(manager.compile().on_state) == 1
    manager.unregister("full")
    assert manager.compile().before_run == ()
    assert len(first.before_run) == 1


def test_functions_marked_with_pluggys_own_marker_are_implementations_too() -> None:
    plugin = types.SimpleNamespace(name="raw", on_state=pluggy.HookimplMarker("trilane")(tryfirst=True)(lambda: 7))

    (call,) = PluginManager([plugin]).compile().on_state

    assert (call.plugin, call.timeout, call.thread, call.call("run")) == ("raw", None, False, 7)


def test_managers_without_plugins_share_one_empty_list_and_make_no_registry() -> None:
    first, second = PluginManager(), PluginManager()

    assert first.compile() is second.compile()
    assert first.names() == ()
    assert first._pluggy is None
