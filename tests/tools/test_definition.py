from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest

from trilane.errors import AgentProtocolError, ToolDefinitionError
from trilane.tools import Tool, as_tool, check_tools, tool

Deps = TypeVar("Deps")


class FakeContext(Generic[Deps]):
    """Carries the mark by which `ToolContext` is recognised."""

    __trilane_tool_context__ = True


class Settings: ...


class OwnContext(FakeContext[Settings]): ...


def greet(greeting: str, name: str, *, loud: bool = False) -> str:
    """Say hello.

    Args:
        name: Whom to greet.
    """
    return f"{greeting} {name}{'!' if loud else ''}"


class Greeter:
    """A greeter."""

    def method(self, name: str) -> str:
        """Greet by method."""
        return f"method {name}"

    @classmethod
    def of_class(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    @staticmethod
    def static(name: str) -> str:
        return f"static {name}"

    def __call__(self, name: str) -> str:
        """Greet by call."""
        return f"call {name}"


def decorated(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return function(*args, **kwargs).upper()

    return wrapper


@pytest.mark.parametrize(
    ("function", "name", "description", "parameters", "expected"),
    [
        (functools.partial(greet, greeting="hi"), "greet", "Say hello.", ["name", "loud"], "hi bo"),
        (functools.partial(greet, "hi"), "greet", "Say hello.", ["name", "loud"], "hi bo"),
        (
            functools.partial(functools.partial(greet, "hi"), loud=True),
            "greet",
            "Say hello.",
            ["name"],
            "hi bo!",
        ),
        (functools.partial(Greeter().method), "method", "Greet by method.", ["name"], "method bo"),
        (Greeter().method, "method", "Greet by method.", ["name"], "method bo"),
        (Greeter.of_class, "of_class", "", ["name"], "Greeter bo"),
        (Greeter.static, "static", "", ["name"], "static bo"),
        (Greeter(), "Greeter", "Greet by call.", ["name"], "call bo"),
        (decorated(Greeter().method), "method", "Greet by method.", ["name"], "METHOD BO"),
    ],
    ids=["partial", "positional", "nested", "of-method", "method", "class", "static", "instance", "wraps"],
)
def test_f058_callables(
    function: Callable[..., object], name: str, description: str, parameters: list[str], expected: str
) -> None:
    made = as_tool(function)
    assert (made.name, made.description, made.kind) == (name, description, "sync")
    assert list(made.parameters["properties"]) == parameters  # type: ignore[arg-type]
    assert made.call(made.bind({"name": "bo"})) == expected


def test_f058_descriptions_survive_partials_and_decorators() -> None:
    for function in (functools.partial(greet, "hi"), decorated(greet)):
        properties: Any = as_tool(function).parameters["properties"]
        assert properties["name"]["description"] == "Whom to greet."


def test_f058_a_lambda_needs_a_name() -> None:
    with pytest.raises(ToolDefinitionError, match="has no name; give one"):
        as_tool(lambda x: x)
    assert Tool.from_function(lambda x: x, name="same").bind({"x": 1}) == {"x": 1}


def test_f058_a_builtin_without_signature_asks_for_a_schema() -> None:
    with pytest.raises(ToolDefinitionError, match=r"Tool 'max'.*no signature.*or give `parameters=`"):
        as_tool(max)
    target: dict[str, object] = {}
    made = Tool.from_function(target.update, name="put", parameters={"properties": {"a": {"type": "integer"}}})
    made.call(made.bind({"a": 1}))
    assert target == {"a": 1}


@pytest.mark.parametrize("thing", [Greeter, 5, "greet", classmethod(greet)])  # type: ignore[arg-type]
def test_what_cannot_be_called_or_is_a_class_is_refused(thing: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"is not a tool: it (is a class; pass an instance|cannot be called)"):
        as_tool(thing)


def test_a_method_without_its_object_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"pass the method of an instance, `greeter.method`"):
        as_tool(Greeter.method)


def test_partial_and_context_cannot_be_overridden_by_extra_arguments() -> None:
    def act(ctx: FakeContext[None], greeting: str, **more: str) -> tuple[object, ...]:
        return ctx, greeting, more

    made = as_tool(functools.partial(act, greeting="hi"))
    for name in ("greeting", "ctx"):
        with pytest.raises(Exception, match=f"{name} may not be given"):
            made.bind({name: "x"})
    assert made.call(made.bind({"a": "b"}), "CTX") == ("CTX", "hi", {"a": "b"})


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda: None, "größe"),
        (lambda: None, "with space"),
        (lambda: None, ""),
        (lambda: None, "x" * 65),
        (lambda: None, "a.b"),
        (lambda: None, "line\n"),
    ],
)
def test_names_that_providers_refuse_are_refused(function: Callable[..., object], name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"name"):
        Tool.from_function(function, name=name)
    with pytest.raises(ToolDefinitionError, match=r"Use 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"):
        Tool.external(name=name, parameters={})


def test_f047_the_four_ways_to_be_async_have_one_schema_and_are_awaited_once() -> None:
    bodies: list[tuple[object, int]] = []

    def work(ctx: FakeContext[None], n: int) -> int:
        bodies.append((ctx, n))
        return n + 1

    def plain(ctx: FakeContext[None], n: int) -> int:
        return work(ctx, n)

    async def native(ctx: FakeContext[None], n: int) -> int:
        return work(ctx, n)

    class Instance:
        async def __call__(self, ctx: FakeContext[None], n: int) -> int:
            return work(ctx, n)

    def returning(ctx: FakeContext[None], n: int) -> Awaitable[int]:
        return native(ctx, n)

    tools = [Tool.from_function(f, name="act") for f in (plain, native, Instance(), returning)]
    assert [made.kind for made in tools] == ["sync", "async", "async", "sync"]
    assert all(made.spec.parameters == tools[0].spec.parameters for made in tools)

    async def run(made: Tool) -> object:
        found = made.call(made.bind({"n": "1"}), "CTX")
        return await found if inspect.isawaitable(found) else found

    for made in tools:
        bodies.clear()
        assert asyncio.run(run(made)) == 2
        assert bodies == [("CTX", 1)]
    texts = set()
    for made in tools:
        with pytest.raises(Exception, match="expected an integer") as caught:
            made.bind({"n": "x"})
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_kinds_of_generators_also_behind_partial_and_instances() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    class Instance:
        async def __call__(self) -> AsyncIterator[int]:
            yield 1

    assert as_tool(generator).kind == "generator"
    assert as_tool(functools.partial(generator)).kind == "generator"
    assert as_tool(async_generator).kind == "async_generator"
    assert as_tool(Instance()).kind == "async_generator"
    assert list(as_tool(generator).call({})) == [1]  # type: ignore[call-overload]


def test_f060_only_a_context_parameter() -> None:
    def act(ctx: FakeContext[None]) -> object:
        return ctx

    made = as_tool(act)
    assert made.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert made.call({}, "CTX") == "CTX"


def test_the_context_is_found_anywhere_in_the_signature() -> None:
    def first(ctx: FakeContext[Settings], a: int) -> tuple[object, ...]:
        return ctx, a

    def positional_only(a: int, ctx: FakeContext[Settings], b: int = 2, /) -> tuple[object, ...]:
        return ctx, a, b

    def keyword_only(a: int, *, ctx: OwnContext) -> tuple[object, ...]:
        return ctx, a

    def optional(a: int, ctx: FakeContext[Settings] | None = None) -> tuple[object, ...]:
        return ctx, a

    for function in (first, positional_only, keyword_only, optional):
        made = as_tool(function)
        assert made.context_parameter == "ctx"
        assert made.deps_type is Settings
        assert "ctx" not in str(made.parameters)
        assert made.call(made.bind({"a": 1}), "CTX")[:2] == ("CTX", 1)  # type: ignore[index]
    assert as_tool(positional_only).call({"a": 1, "b": 5}, "CTX") == ("CTX", 1, 5)


def test_context_without_deps_and_without_context() -> None:
    def bare(ctx: FakeContext) -> None: ...  # type: ignore[type-arg]

    def generic(ctx: FakeContext[Deps]) -> None: ...

    def none(ctx: int) -> None: ...

    assert [as_tool(f).deps_type for f in (bare, generic, none)] == [None, None, None]
    assert as_tool(none).context_parameter == ""


def test_two_context_parameters_are_refused() -> None:
    def act(a: FakeContext[None], b: FakeContext[None]) -> None: ...

    with pytest.raises(ToolDefinitionError, match="two context parameters, 'a' and 'b'"):
        as_tool(act)


def test_tool_returns_the_function_itself() -> None:
    def act(n: int) -> int:
        return n + 1

    assert tool(act) is act
    assert tool(name="other", effect="read")(act) is act
    assert act(1) == 2


def test_options_reach_the_tool_and_explicit_ones_win() -> None:
    def settle() -> None: ...

    @tool(
        name="named",
        description="Described.",
        timeout=2.5,
        attempts=3,
        parallel=False,
        approval=True,
        effect="idempotent",
        on_error="raise",
        max_result_chars=None,
        run_on="loop",
        reconcile=settle,
    )
    def act() -> None:
        """Not this."""

    made = as_tool(act)
    assert (made.name, made.description, made.timeout, made.attempts) == ("named", "Described.", 2.5, 3)
    assert (made.parallel, made.approval, made.effect, made.on_error) == (False, True, "idempotent", "raise")
    assert (made.max_result_chars, made.run_on, made.reconcile) == (None, "loop", settle)
    assert (made.function, made.is_external) == (act, False)
    changed = Tool.from_function(act, name="again", description="", timeout=None)
    assert (changed.name, changed.description, changed.timeout, changed.attempts) == ("again", "", None, 3)


def test_defaults_of_options() -> None:
    made = as_tool(greet)
    assert (made.timeout, made.attempts, made.parallel, made.approval, made.effect) == (None, 1, True, False, "unsafe")
    assert (made.on_error, made.max_result_chars, made.run_on, made.reconcile) == ("result", 20000, "thread", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 2}, "attempts=2 would repeat an unsafe effect"),
        ({"attempts": 0}, "attempts must be 1 or more"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": "5"}, "timeout must be"),
        ({"max_result_chars": 0}, "max_result_chars must be above 0, or None"),
        ({"effect": "none"}, "effect must be one of read, idempotent, unsafe"),
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"run_on": "process"}, "run_on must be one of"),
        ({"reconcile": 5}, "reconcile must be a function"),
        ({"timeout_seconds": 5}, "there is no option timeout_seconds; options are name, description, timeout"),
    ],
)
def test_options_without_a_meaning_are_refused_where_they_are_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"greet.*{message}"):
        tool(**options)(greet)
    with pytest.raises(ToolDefinitionError, match=f"Tool 'greet'.*{message}"):
        Tool.from_function(greet, **options)


def test_marks_on_methods_callables_and_both_orders_of_classmethod() -> None:
    class Kit:
        @tool(effect="read")
        def method(self, n: int) -> int:
            return n

        @classmethod
        @tool(effect="read")
        def inside(cls, n: int) -> int:
            return n

        @tool(effect="read")
        @classmethod
        def outside(cls, n: int) -> int:
            return n

        def __call__(self, n: int) -> int:
            return n

    kit = Kit()
    for function in (kit.method, Kit.inside, Kit.outside, tool(effect="read")(Kit()), functools.partial(kit.method)):
        made = as_tool(function)
        assert made.effect == "read"
        assert made.call(made.bind({"n": 3})) == 3


def test_marking_what_takes_no_attributes_says_what_to_use() -> None:
    class Closed:
        __slots__ = ()

        def __call__(self) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"takes no attributes; use `Tool.from_function"):
        tool(Closed())
    with pytest.raises(ToolDefinitionError, match=r"cannot be called\. Options are given by keyword"):
        tool("name")  # type: ignore[call-overload]


def test_as_tool_is_cached_by_function_and_by_mark() -> None:
    def act() -> None: ...

    first = as_tool(act)
    assert as_tool(act) is first
    assert as_tool(first) is first
    tool(name="later")(act)
    assert as_tool(act).name == "later"

    @functools.wraps(act)
    def wrapper() -> None: ...

    assert as_tool(wrapper).function is wrapper
    assert as_tool(act).function is act


def test_tools_do_not_keep_their_functions_alive() -> None:
    def act() -> None: ...

    as_tool(act)
    seen = weakref.ref(act)
    del act
    gc.collect()
    assert seen() is None


def test_check_tools_keeps_order_and_refuses_two_of_one_name() -> None:
    def one() -> None: ...

    def two() -> None: ...

    assert list(check_tools([two, as_tool(one)])) == ["two", "one"]
    other = Tool.from_function(two, name="one")
    with pytest.raises(ToolDefinitionError, match=r"'one': .*\.one, line \d+ and .*\.two, line \d+\. Give one"):
        check_tools([one, other])


def test_external_tools() -> None:
    def signature(place: str, days: int = 1) -> None:
        """Forecast the weather.

        Args:
            place: A town.
        """

    made = Tool.external(name="weather", parameters=signature, approval=True)
    assert (made.name, made.description, made.approval) == ("weather", "Forecast the weather.", True)
    assert (made.function, made.is_external, made.context_parameter) == (None, True, "")
    assert made.bind({"place": "x", "days": "2"}) == {"place": "x", "days": 2}
    with pytest.raises(AgentProtocolError, match="'weather' is external"):
        made.call({})
    with pytest.raises(ToolDefinitionError, match="must be a JSON Schema or a function"):
        Tool.external(name="weather", parameters=5)  # type: ignore[arg-type]


def test_a_given_schema_still_gets_the_context() -> None:
    async def forward(ctx: FakeContext[Settings], **arguments: object) -> tuple[object, ...]:
        return ctx, arguments

    made = Tool.from_function(forward, name="remote", description="Far.", parameters={"properties": {"a": {}}})
    assert (made.kind, made.context_parameter, made.deps_type) == ("async", "ctx", Settings)
    found: Any = made.call(made.bind({"a": 1}), "CTX")
    assert asyncio.run(found) == ("CTX", {"a": 1})


def test_f118_tools_copy_as_themselves_and_pickle_by_their_function() -> None:
    made = Tool.from_function(greet, name="hello", timeout=3)
    assert copy.copy(made) is made
    assert copy.deepcopy([made])[0] is made
    again = pickle.loads(pickle.dumps(made))
    assert (again.name, again.timeout, again.function, again.spec) == ("hello", 3, greet, made.spec)
    external = pickle.loads(pickle.dumps(Tool.external(name="e", parameters={"required": ["a"]})))
    assert external.parameters["required"] == ["a"]


def test_tools_are_frozen_and_show_where_they_are_from() -> None:
    made = as_tool(greet)
    with pytest.raises(AttributeError, match=r"frozen.*from_function\(\.\.\., name=\.\.\.\)"):
        made.name = "other"
    with pytest.raises(ToolDefinitionError, match="Make tools with"):
        Tool()
    assert repr(made).startswith("Tool('greet', ")
    assert "test_definition.greet, line " in repr(made)


def test_importing_and_building_a_simple_tool_does_not_import_pydantic() -> None:
    code = """
import sys
from trilane.tools import tool, as_tool
assert not {"pydantic", "pydantic_core", "anyio", "asyncio", "inspect", "json"} & set(sys.modules)
@tool
def add(a: int, b: "list[str] | None" = None) -> int: ...
made = as_tool(add)
assert "pydantic" not in sys.modules
assert made.parameters["required"] == ["a"]
assert "pydantic" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
