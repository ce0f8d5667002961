from __future__ import annotations

import copy
import enum
import json
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from trilane.errors import ToolDefinitionError
from trilane.tools import Tool, as_tool, tool

SAMPLE = """
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Optional

from pydantic import BaseModel

from trilane.tools import tool

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Model(BaseModel):
    size: int


@dataclass
class Plain:
    models: list["Model"]


def optional(text: Optional[str], other: Optional[str] = None) -> "OnlyForCheckers": ...
def literal(mode: Literal["r", "w"] = "r") -> None: ...
def path(file: Path) -> None: ...
def model(item: Model, plain: Plain) -> None: ...
def models(items: list["Model"], named: "dict[str, Model]") -> None: ...


def make():
    class Local(BaseModel):
        depth: int

    @tool
    def local(item: Local, items: list["Local"]) -> None: ...

    return local


def undecorated(build):
    class Local(BaseModel):
        depth: int

    def local(item: Local, items: list["Local"]) -> None: ...

    return build(local)


class Holder:
    @staticmethod
    def make():
        class Local(BaseModel):
            depth: int

        class Inner:
            @tool
            def method(self, item: Local) -> None: ...

        return Inner().method
"""


def load(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module


@pytest.fixture
def samples() -> Iterator[tuple[types.ModuleType, types.ModuleType]]:
    future = load("sample", "from __future__ import annotations\n" + SAMPLE)
    plain = load("sample", SAMPLE.replace('-> "OnlyForCheckers"', "-> None"))
    yield future, plain
    del sys.modules["sample"]


@pytest.mark.parametrize("name", ["optional", "literal", "path", "model", "models"])
def test_f055_future_annotations_change_no_schema(
    samples: tuple[types.ModuleType, types.ModuleType], name: str
) -> None:
    future, plain = samples
    schema = as_tool(getattr(future, name)).parameters
    assert schema == as_tool(getattr(plain, name)).parameters
    assert schema["properties"]


def test_f055_classes_inside_functions(samples: tuple[types.ModuleType, types.ModuleType]) -> None:
    for build in (
        lambda module: as_tool(module.make()),
        lambda module: module.undecorated(as_tool),
        lambda module: as_tool(module.Holder.make()),
    ):
        future, plain = (build(module) for module in samples)
        assert future.parameters == plain.parameters
        assert "depth" in json.dumps(future.parameters)


def test_f055_unresolvable_name_fails_with_tool_and_parameter() -> None:
    module = load("sample", "from __future__ import annotations\ndef act(when: Decimal): ...\n")
    with pytest.raises(
        ToolDefinitionError, match=r"Tool 'act' \(sample.act, line 2\).*'?Decimal.* parameter 'when'.*TYPE"
    ):
        as_tool(module.act)
    del sys.modules["sample"]


def test_f055_undecorated_local_class_that_is_gone_says_what_to_do() -> None:
    def build() -> Callable[..., None]:
        class Gone(BaseModel):
            x: int

        def act(item: Gone) -> None: ...

        return act

    with pytest.raises(ToolDefinitionError, match=r"parameter 'item'.*decorated with @tool there"):
        as_tool(build())


@pytest.mark.parametrize(
    "annotation", [Callable[[int], int], types.ModuleType, list[types.ModuleType], "1 +", "5", set[Callable[[], int]]]
)
def test_unsupported_annotations_fail_when_the_tool_is_made(annotation: object) -> None:
    def act(fine: int, bad: Any) -> None: ...

    act.__annotations__ = {"fine": int, "bad": annotation}
    with pytest.raises(ToolDefinitionError, match=r"Tool 'act' .*parameter 'bad'") as caught:
        as_tool(act)
    assert "errors.pydantic.dev" not in str(caught.value)


def test_f056_variadics_are_not_properties_and_all_kinds_of_parameter_work() -> None:
    def act(x: int, /, y: int, *args: str, z: int, **kwargs: str) -> tuple[object, ...]:
        return x, y, args, z, kwargs

    made = as_tool(act)
    assert made.parameters == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}, "z": {"type": "integer"}},
        "required": ["x", "y", "z"],
        "additionalProperties": {"type": "string"},
    }
    assert made.call(made.bind({"z": 3, "x": 1, "y": 2, "more": "m"})) == (1, 2, (), 3, {"more": "m"})


def test_f056_positional_only_parameters_with_defaults() -> None:
    missing = object()

    def act(a: int, b: Any = missing, c: int = 3, /, d: int = 4) -> tuple[object, ...]:
        return a, b, c, d

    made = as_tool(act)
    for given, expected in (
        ({"a": 1}, (1, missing, 3, 4)),
        ({"a": 1, "c": 5}, (1, missing, 5, 4)),
        ({"d": 7, "b": 2, "a": 1}, (1, 2, 3, 7)),
    ):
        assert made.call(made.bind(given)) == expected


def test_f059_required_nullable_and_default() -> None:
    def act(a: str, d: str | None, b: int = 3, c: str | None = None) -> tuple[object, ...]:
        return a, b, c, d

    made = as_tool(act)
    assert made.parameters["required"] == ["a", "d"]
    properties: Any = made.parameters["properties"]
    assert properties["b"] == {"type": "integer", "default": 3}
    assert properties["c"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert made.call(made.bind({"a": "x", "d": None, "c": None})) == ("x", 3, None, None)


@pytest.mark.parametrize("function", [lambda: None, lambda *args: None])
def test_f060_no_parameters(function: Callable[..., object]) -> None:
    made = Tool.from_function(function, name="act")
    assert made.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert made.call(made.bind({})) is None


class Node(BaseModel):
    value: int
    children: list[Node] = Field(default=[], description="What hangs below.")


@dataclass
class Left:
    right: Right | None = None


@dataclass
class Right:
    left: Left | None = None


def references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from references(item)


def resolves(schema: Any, reference: str) -> bool:
    for step in reference.removeprefix("#/").split("/"):
        if step not in schema:
            return False
        schema = schema[step]
    return True


def test_f061_recursive_types_have_finite_schemas_whose_references_resolve() -> None:
    def act(node: Node, other: Node, left: Left) -> None: ...

    made = as_tool(act)
    schema: Any = made.parameters
    found = set(references(schema))
    assert found == {"#/$defs/Node", "#/$defs/Left", "#/$defs/Right"}
    assert all(resolves(schema, reference) for reference in found)
    assert schema["$defs"]["Node"]["properties"]["children"]["description"] == "What hangs below."
    bound = made.bind({"node": {"value": 1, "children": [{"value": 2}]}, "other": {"value": 3}, "left": {"right": {}}})
    assert bound["node"] == Node(value=1, children=[Node(value=2)])
    assert bound["left"] == Left(Right())


def test_f061_different_models_of_one_name_are_kept_apart() -> None:
    def make(field: str) -> type[BaseModel]:
        return type("Same", (BaseModel,), {"__annotations__": {field: int}, "__module__": f"package_{field}"})

    def act(a: Any, b: Any) -> None: ...

    act.__annotations__ = {"a": make("one"), "b": make("two")}
    made = as_tool(act)
    schema: Any = made.parameters
    targets = [schema["$defs"][schema["properties"][name]["$ref"].rpartition("/")[2]] for name in "ab"]
    assert [list(target["properties"]) for target in targets] == [["one"], ["two"]]


class Awkward:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "default",
    [Awkward([1, 2]), Awkward(RuntimeError("no")), object(), float("nan"), float("inf"), "\ud83d", b"\xff"],
    ids=["eq-list", "eq-raises", "object", "nan", "inf", "surrogate", "bytes"],
)
def test_f064_defaults_that_cannot_be_written_are_left_out(default: object) -> None:
    def act(x: Any = default) -> object:
        return x

    made = as_tool(act)
    assert made.parameters["properties"] == {"x": {}}
    assert "required" not in made.parameters
    assert made.call(made.bind({})) is default


def test_f064_mutable_defaults_are_written_and_passed_untouched() -> None:
    shared: list[int] = []

    def act(x: list[int] = shared) -> list[int]:
        return x

    made = as_tool(act)
    properties: Any = made.parameters["properties"]
    assert properties["x"]["default"] == []
    properties["x"]["default"].append(1)
    assert made.parameters["properties"]["x"]["default"] == []  # type: ignore[index, call-overload]
    assert made.call(made.bind({})) is shared
    assert shared == []


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def test_f064_enum_defaults_are_written_as_their_value() -> None:
    def act(color: Color = Color.RED) -> None: ...

    properties: Any = as_tool(act).parameters["properties"]
    assert properties["color"]["default"] == "red"


def test_field_descriptions_limits_and_defaults_in_each_place() -> None:
    def act(
        a: Annotated[int, Field(ge=1, le=5, description="limited")],
        b: Annotated[str, "plain words"],
        c: int = Field(7, gt=0, description="with a default"),
        d: int = Field(description="needed"),
    ) -> tuple[object, ...]:
        """Act.

        Args:
            a: from the docstring
            b: from the docstring
        """
        return a, b, c, d

    made = as_tool(act)
    assert made.parameters["properties"] == {
        "a": {"type": "integer", "minimum": 1, "maximum": 5, "description": "limited"},
        "b": {"type": "string", "description": "plain words"},
        "c": {"type": "integer", "exclusiveMinimum": 0, "description": "with a default", "default": 7},
        "d": {"type": "integer", "description": "needed"},
    }
    assert made.parameters["required"] == ["a", "b", "d"]
    assert made.call(made.bind({"a": 1, "b": "x", "d": 2})) == (1, "x", 7, 2)


def test_titles_are_removed_but_members_named_title_stay() -> None:
    class Book(BaseModel):
        title: str = "untitled"

    @tool
    def act(title: str, book: Book, other: Literal["title"] = "title") -> None: ...

    schema: Any = as_tool(act).parameters
    assert list(schema["properties"]) == ["title", "book", "other"]
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Book"]["properties"] == {"title": {"type": "string", "default": "untitled"}}


def test_parameter_names_that_mean_something_to_validators_are_free() -> None:
    def act(
        json: str, schema: str, copy: int, _private: int, self: int, model_config: int, args: int
    ) -> dict[str, object]:
        return dict(locals())

    made = Tool.from_function(act, name="act")
    values = {"json": "j", "schema": "s", "copy": 1, "_private": 2, "self": 3, "model_config": 4, "args": 5}
    assert list(made.parameters["properties"]) == list(values)  # type: ignore[arg-type]
    assert made.call(made.bind(values)) == values


def test_schema_is_the_same_each_time_and_is_a_copy() -> None:
    def act(node: Node, choice: Optional[Literal["a", "b"]] = None, flags: set[int] = frozenset()) -> None: ...  # type: ignore[assignment] # noqa: UP045

    first, second = Tool.from_function(act), Tool.from_function(act)
    assert json.dumps(first.parameters) == json.dumps(second.parameters)
    before = copy.deepcopy(first.parameters)
    first.parameters.clear()
    assert first.parameters == before
    assert first.spec is first.spec
    assert first.spec.parameters == before


@pytest.mark.parametrize("decorate", [tool, lambda function: as_tool(function)], ids=["marked", "direct"])
def test_f061_mutual_recursion_of_classes_inside_a_function(decorate: Callable[..., Any]) -> None:
    def build() -> Any:
        @dataclass
        class Here:
            there: There | None = None

        class There(BaseModel):
            here: Here | None = None

        @decorate
        def act(item: Here) -> None: ...

        return act

    made = as_tool(build())
    schema: Any = made.parameters
    assert set(schema["$defs"]) == {"Here", "There"}
    bound: Any = made.bind({"item": {"there": {"here": {}}}})
    assert bound["item"].there.here.there is None


def test_f061_a_class_that_refers_to_nothing_is_named() -> None:
    def build() -> Any:
        class Broken(BaseModel):
            other: Missing  # type: ignore[name-defined]  # noqa: F821

        @tool
        def act(fine: int, item: Broken) -> None: ...

        return act

    with pytest.raises(
        ToolDefinitionError, match=r"Tool 'act'.*type Broken of parameter 'item'.*'Missing' is not defined"
    ):
        as_tool(build())
