"""Who is called first, and why."""

from __future__ import annotations

import itertools
import random
import types
from collections.abc import Callable
from typing import Any

import pluggy
import pytest

from trilane.errors import HookSpecError
from trilane.hookspecs import HOOKS, hookimpl
from trilane.plugins import PluginManager


def plugin(name: str, hook: str = "before_turn", **options: Any) -> object:
    return types.SimpleNamespace(name=name, **{hook: hookimpl(**options)(lambda run: None)})


def recorder(seen: list[str], name: str) -> Callable[[], None]:
    return lambda: seen.append(name)


def called(*plugins: object, hook: str = "before_turn") -> list[str]:
    return [call.plugin for call in getattr(PluginManager(plugins).compile(), hook)]


@pytest.mark.parametrize("hook", [name for name, info in HOOKS.items() if info.mode != "register"])
def test_without_before_and_after_the_order_is_pluggys_own(hook: str) -> None:
    generator = random.Random(hook)
    for _ in range(20):
        kinds = generator.choices([{}, {"tryfirst": True}, {"trylast": True}], k=7)
        seen: list[str] = []
        pluggys = pluggy.PluginManager("trilane")
        manager = PluginManager()
        for number, options in enumerate(kinds):
            one = types.SimpleNamespace(**{hook: hookimpl(**options)(recorder(seen, f"p{number}"))})
            pluggys.register(one, name=f"p{number}")
            manager.register(one, name=f"p{number}")
        getattr(pluggys.hook, hook)()

        calls = [call.plugin for call in getattr(manager.compile(), hook)]

        assert calls == (seen[::-1] if HOOKS[hook].reverse else seen)


def test_before_and_after_move_a_plugin() -> None:
    assert called(plugin("a"), plugin("b"), plugin("c")) == ["c", "b", "a"]
    assert called(plugin("a", before="c"), plugin("b"), plugin("c")) == ["b", "a", "c"]
    assert called(plugin("a"), plugin("b"), plugin("c", after=("a", "b"))) == ["b", "a", "c"]


def test_before_and_after_are_stronger_than_tryfirst_and_trylast() -> None:
    assert called(plugin("a", tryfirst=True, after="b"), plugin("b", trylast=True)) == ["b", "a"]


def test_hooks_on_the_way_out_run_the_order_backwards_so_that_plugins_nest() -> None:
    def layer(name: str, **options: Any) -> object:
        functions = {hook: hookimpl(**options)(lambda run: None) for hook in ("before_run", "close_run")}
        return types.SimpleNamespace(name=name, **functions)

    compiled = PluginManager([layer("a", before="b"), layer("b"), layer("c", tryfirst=True)]).compile()

    way_in = [call.plugin for call in compiled.before_run]
    assert way_in == ["c", "a", "b"]
    assert [call.plugin for call in compiled.close_run] == way_in[::-1]


def test_every_order_that_can_be_is_found_and_the_rest_stays_as_it_was() -> None:
    names = ["a", "b", "c", "d"]
    for first, second in itertools.permutations(names, 2):
        order = called(*[plugin(name, before=second) if name == first else plugin(name) for name in names])
        assert order.index(first) < order.index(second)
        rest = [name for name in order if name not in (first, second)]
        assert rest == sorted(rest, reverse=True)


def test_a_plugin_that_does_not_implement_the_hook_has_no_place_in_it() -> None:
    assert called(plugin("a", before="other"), plugin("b"), plugin("other", hook="on_state")) == ["b", "a"]


def test_an_unknown_name_is_refused_with_the_nearest_and_a_way_to_make_it_optional() -> None:
    with pytest.raises(HookSpecError) as caught:
        PluginManager([plugin("audit"), plugin("b", after="audt")])

    text = str(caught.value)
    assert text.startswith(f"plugin 'b': 'before_turn' at {__file__}:")
    assert "names the plugin 'audt' in before= or after=, which is neither registered nor installed" in text
    assert "did you mean 'audit'?" in text
    assert "Write 'audt?' if it may be missing" in text


def test_a_name_with_a_question_mark_may_be_missing_or_there() -> None:
    assert called(plugin("b", after="audit?")) == ["b"]
    assert called(plugin("audit"), plugin("b", after="audit?")) == ["audit", "b"]


def test_the_name_of_a_blocked_plugin_is_known() -> None:
    manager = PluginManager([plugin("b", after="audit")], disabled=["audit"])

    assert manager.names() == ("b",)


def test_a_plugin_cannot_be_before_itself() -> None:
    with pytest.raises(HookSpecError, match="asks to be before or after itself"):
        PluginManager([plugin("a", before="a")])


def test_a_circle_is_refused_and_names_hook_plugins_and_places() -> None:
    with pytest.raises(HookSpecError) as caught:
        PluginManager([plugin("a", before="b"), plugin("b", before="c"), plugin("c", before="a"), plugin("d")])

    text = str(caught.value)
    assert text.startswith("hook 'before_turn': the plugins want to be ")
    circle = text.split("want to be ")[1].split(";")[0].split(" before ")
    assert circle[0] == circle[-1]
    assert "".join(circle[:-1]) in ("abc", "bca", "cab")
    assert text.count(__file__) == 3


def test_a_set_of_plugins_that_cannot_be_ordered_leaves_nothing_registered() -> None:
    manager = PluginManager([plugin("first")])

    with pytest.raises(HookSpecError):
        manager.load([plugin("a", before="b"), plugin("b", before="a")])

    assert manager.names() == ("first",)
    assert [call.plugin for call in manager.compile().before_turn] == ["first"]


def test_order_says_why_each_plugin_stands_where_it_stands() -> None:
    manager = PluginManager([plugin("a", tryfirst=True), plugin("b", after="c"), plugin("c", trylast=True)])

    assert manager.order("before_turn") == [
        ("a", "tryfirst"),
        ("c", "trylast"),
        ("b", "order of registration, last first; after c"),
    ]
    assert PluginManager([plugin("a", hook="after_turn")]).order("after_turn") == [
        ("a", "order of registration, last first; reversed on the way out")
    ]
    assert PluginManager().order("on_tool") == []


def test_order_of_an_unknown_hook_names_the_nearest() -> None:
    with pytest.raises(HookSpecError, match="there is no hook 'on_tools'; did you mean 'on_tool'"):
        PluginManager().order("on_tools")
