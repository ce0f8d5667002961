"""Everything that registration refuses, with the text a plugin author reads."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pluggy
import pytest

from trilane.errors import HookSpecError, PluginLoadError
from trilane.hookspecs import HOOKS, hookimpl
from trilane.plugins import PluginManager


def place(function: object) -> str:
    inner = inspect.unwrap(function)  # type: ignore[arg-type]
    code = getattr(inner, "__func__", inner).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def refused(plugin: object) -> str:
    """Registers, and returns the text of the refusal; nothing may stay behind."""
    manager = PluginManager()
    with pytest.raises(HookSpecError) as caught:
        manager.register(plugin)
    assert manager.names() == ()
    assert manager.plugins() == []
    return str(caught.value)


class TestNames:
    def test_an_unknown_hook_names_the_nearest(self) -> None:
        class Plugin:
            @hookimpl
            def on_tol(self, run: object) -> None: ...

        assert refused(Plugin()) == (
            f"plugin 'Plugin': 'on_tol' at {place(Plugin.on_tol)} is marked with @hookimpl, but there is no such hook; "
            "did you mean 'on_tool'?"
        )

    def test_an_optional_hook_may_be_unknown(self) -> None:
        class Plugin:
            @hookimpl(optionalhook=True)
            def on_moonrise(self, run: object) -> None: ...

        assert PluginManager([Plugin()]).names() == ("Plugin",)

    def test_a_hooks_name_without_the_marker(self) -> None:
        class Plugin:
            def before_run(self, run: object) -> None: ...

        text = refused(Plugin())
        assert text.startswith(f"plugin 'Plugin': 'before_run' at {place(Plugin.before_run)} has the name of a hook")
        assert "put @hookimpl above it, or rename it" in text

    def test_the_marker_is_also_missed_on_an_inherited_function(self) -> None:
        class Base:
            def on_error(self, run: object, error: object) -> None: ...

        class Plugin(Base):
            pass

        text = refused(Plugin())
        assert "'on_error'" in text
        assert "(defined in Base)" in text

    def test_the_marker_is_also_missed_on_an_override(self) -> None:
        class Base:
            @hookimpl
            def on_error(self, run: object, error: object) -> None: ...

        class Plugin(Base):
            def on_error(self, run: object, error: object) -> None: ...

        assert "is not marked" in refused(Plugin())

    def test_an_inherited_marked_function_is_an_implementation(self) -> None:
        class Base:
            @hookimpl
            def on_error(self, run: object, error: object) -> None: ...

        class Plugin(Base):
            pass

        assert len(PluginManager([Plugin()]).compile().on_error) == 1

    def test_a_module_function_without_the_marker(self) -> None:
        module = types.ModuleType("plain")
        exec("def on_state(run): ...", module.__dict__)

        assert "plugin 'plain': 'on_state'" in refused(module)

    def test_properties_are_not_run_and_other_attributes_do_not_matter(self) -> None:
        class Plugin:
            limit = 3

            @property
            def on_tool(self) -> object:
                raise AssertionError("a property was run")

        assert PluginManager([Plugin()]).names() == ("Plugin",)

    @pytest.mark.parametrize("value", [functools.partial(print), functools.lru_cache(lambda run: None)])
    def test_a_callable_that_is_no_function_is_refused_by_name(self, value: object) -> None:
        plugin = types.SimpleNamespace(on_tool=value)

        text = refused(plugin)
        assert "'on_tool'" in text
        assert "is not marked, so it would never be called" in text

    def test_a_marked_callable_that_is_no_function(self) -> None:
        class Plugin:
            on_tool = functools.lru_cache(hookimpl(lambda self, run: None))

        assert "is a _lru_cache_wrapper, not a function; make it a plain def" in refused(Plugin())

    def test_a_marked_function_in_a_slot_is_checked(self) -> None:
        class Plugin:
            __slots__ = ("on_state",)

            def __init__(self) -> None:
                self.on_state = hookimpl(lambda ran: None)

        assert "takes 'ran'" in refused(Plugin())


class TestParameters:
    def test_an_unknown_argument_names_the_nearest(self) -> None:
        class Plugin:
            @hookimpl
            def after_tool(self, run: object, cal: object) -> None: ...

        assert refused(Plugin()) == (
            f"plugin 'Plugin': 'after_tool' at {place(Plugin.after_tool)} takes 'cal', which is not an argument of "
            "this hook; did you mean 'call'?"
        )

    def test_an_unknown_argument_without_a_near_one_lists_them(self) -> None:
        class Plugin:
            @hookimpl
            def after_tool(self, zebra: object = None) -> None: ...

        assert "takes 'zebra', which is not an argument of this hook; there are: call, result, run" in refused(Plugin())

    def test_keyword_only_parameters(self) -> None:
        class Plugin:
            @hookimpl
            def after_tool(self, run: object, *, result: object = None) -> None: ...

        text = refused(Plugin())
        assert "has the keyword-only parameter 'result'" in text
        assert "after_tool has the arguments (run, call, result)" in text

    @pytest.mark.parametrize("stars", ["*things", "**things"])
    def test_star_arguments(self, stars: str) -> None:
        module = types.ModuleType("stars")
        exec(f"def on_state({stars}): ...", module.__dict__)
        hookimpl(module.__dict__["on_state"])

        assert f"takes {stars}; name the arguments you want: on_state has the arguments (run)" in refused(module)

    def test_a_method_without_self(self) -> None:
        class Plugin:
            @hookimpl
            def on_state(run: object) -> None: ...  # noqa: N805

        assert "is a method whose first parameter is 'run': self is missing" in refused(Plugin())

    def test_fewer_arguments_in_any_order_are_fine(self) -> None:
        class Plugin:
            @hookimpl
            def after_tool(self, result: object, run: object) -> object:
                return (run, result)

            @hookimpl
            def on_state(self) -> None: ...

        compiled = PluginManager([Plugin()]).compile()
        assert compiled.after_tool[0].call("run", "call", "result") == ("run", "result")
        assert compiled.on_state[0].call("run") is None

    def test_static_and_class_methods_are_fine(self) -> None:
        class Plugin:
            @hookimpl
            @staticmethod
            def on_state(run: object) -> object:
                return run

            @classmethod
            @hookimpl
            def before_run(cls, run: object) -> object:
                return (cls, run)

        compiled = PluginManager([Plugin()]).compile()
        assert compiled.on_state[0].call(1) == 1
        assert compiled.before_run[0].call(1) == (Plugin, 1)

    def test_a_decorated_function_shows_the_parameters_of_what_it_wraps(self) -> None:
        def twice(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def wrapper(*args: Any) -> Any:
                return [function(*args), function(*args)]

            return wrapper

        class Plugin:
            @hookimpl
            @twice
            def decide_tool(self, call: object) -> object:
                return call

        assert PluginManager([Plugin()]).compile().decide_tool[0].call("run", "call") == ["call", "call"]


class TestKinds:
    @pytest.mark.parametrize("hook", HOOKS)
    def test_f067_def_and_async_def_are_registered_or_refused_and_run_once(self, hook: str) -> None:
        ran: list[str] = []
        parameters = ", ".join(HOOKS[hook].arguments)
        for word in ("def", "async def"):
            module = types.ModuleType(f"plugin_{hook}")
            module.__dict__["ran"] = ran
            exec(f"{word} {hook}({parameters}): ran.append({word!r})", module.__dict__)
            hookimpl(module.__dict__[hook])
            if word == "async def" and HOOKS[hook].sync:
                assert "is async def, but this hook is sync" in refused(module)
                continue
            ran.clear()
            (call,) = getattr(PluginManager([module]).compile(), hook)
            assert call.is_async is (word == "async def")
            if HOOKS[hook].mode != "register":  # those have been called by the registration
                returned = call.call(*HOOKS[hook].arguments)
                if call.is_async:
                    with pytest.raises(StopIteration):
                        returned.send(None)
            assert ran == [word]

    def test_f067_a_sync_register_hook_that_returns_a_coroutine_is_refused_and_the_coroutine_closed(self) -> None:
        async def later() -> None: ...

        class Plugin:
            @hookimpl
            def register_stores(self, registry: object) -> object:
                return later()

        assert "returned an awaitable, but nothing can be awaited while plugins are loaded" in refused(Plugin())

    def test_a_generator(self) -> None:
        class Plugin:
            @hookimpl
            def on_tool(self, run: object) -> Iterator[object]:
                yield run

        assert "is a generator, which nobody would iterate; return a list" in refused(Plugin())

    @pytest.mark.parametrize("hook", ["on_state", "on_delta"])
    def test_an_async_generator(self, hook: str) -> None:
        async def generate(run: object) -> AsyncIterator[object]:
            yield run

        plugin = types.SimpleNamespace(**{hook: hookimpl(generate)})
        assert "is an async generator, which nobody would iterate" in refused(plugin)

    @pytest.mark.parametrize("option", ["wrapper", "hookwrapper"])
    def test_wrappers_are_refused_with_a_pointer_to_around_hooks(self, option: str) -> None:
        def after_tool(run: object) -> None: ...

        for marker in (hookimpl, pluggy.HookimplMarker("trilane")):
            plugin = types.SimpleNamespace(after_tool=marker(**{option: True})(after_tool))  # type: ignore[call-overload]
            assert "implement around_model or around_tool, which get call_next" in refused(plugin)


class TestMarks:
    def mark(self, hook: str, function: Callable[..., Any], **options: Any) -> object:
        return types.SimpleNamespace(**{hook: hookimpl(**options)(function)})

    def test_required_is_for_three_hooks(self) -> None:
        text = refused(self.mark("before_tool", lambda run: None, required=True))
        assert "is marked required=True, which only on_delta, after_model, after_tool can be" in text
        for hook in ("on_delta", "after_model", "after_tool"):
            compiled = PluginManager([self.mark(hook, lambda run: None, required=True)]).compile()
            assert getattr(compiled, hook)[0].required

    @pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan"), float("inf")])
    def test_a_timeout_is_a_number_of_seconds(self, timeout: object) -> None:
        text = refused(self.mark("before_tool", lambda run: None, timeout=timeout))
        assert f"has timeout={timeout!r}; give a number of seconds above 0" in text

    def test_threads_are_for_plain_functions(self) -> None:
        async def before_tool(run: object) -> None: ...

        assert "is async def and marked thread=True" in refused(self.mark("before_tool", before_tool, thread=True))

    @pytest.mark.parametrize("hook", ["on_delta", "around_tool", "register_models"])
    def test_some_hooks_are_never_called_in_a_thread(self, hook: str) -> None:
        text = refused(self.mark(hook, lambda: None, thread=True))
        assert f"is marked thread=True, but {hook} is always called where the run is" in text

    def test_tryfirst_and_trylast_together(self) -> None:
        text = refused(self.mark("on_state", lambda: None, tryfirst=True, trylast=True))
        assert "is marked tryfirst and trylast; choose one" in text


class TestObjects:
    def test_a_class_instead_of_an_instance(self) -> None:
        class Plugin:
            @hookimpl
            def on_state(self, run: object) -> None: ...

        assert (
            refused(Plugin)
            == "plugin 'Plugin' is the class Plugin, not an instance; write Plugin() with the parentheses"
        )

    def test_a_function(self) -> None:
        def make() -> object:
            return object()

        assert "is the function make, not a plugin; call it (make()) if it makes one" in refused(make)

    @pytest.mark.parametrize("value", [None, 3, {"a": 1}, [object()]])
    def test_a_plain_value(self, value: object) -> None:
        assert refused(value).startswith(f"{value!r} is not a plugin; give an instance, a module")


class TestDuplicates:
    def test_two_plugins_of_one_name_are_both_named(self) -> None:
        class First:
            name = "audit"

        class Second:
            name = "audit"

        manager = PluginManager([First()])
        with pytest.raises(PluginLoadError, match=re.escape("two plugins are called 'audit'")) as caught:
            manager.register(Second())
        assert "First" in str(caught.value)
        assert "Second" in str(caught.value)
        assert caught.value.plugin == "audit"
        assert type(manager.get("audit")) is First

    def test_one_object_under_two_names(self) -> None:
        plugin = types.SimpleNamespace(name="a")
        manager = PluginManager([plugin])

        with pytest.raises(PluginLoadError, match="plugin 'b' is the same object as the plugin 'a'; register it once"):
            manager.register(plugin, name="b")
