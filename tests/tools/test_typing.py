"""What type checkers see. The sample is checked in strict mode; every line that must be an error is marked."""

from __future__ import annotations

from pathlib import Path

import mypy.api

import trilane

SAMPLE = """
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypedDict, assert_type

from trilane import Agent, Question, RunContext, hookimpl
from trilane.testing import ScriptedModel, ScriptStep, call
from trilane.tools import Tool, as_tool, check_tools, parse_arguments, tool


@tool
def plain(n: int, *, text: str = "") -> bool:
    return bool(n)


@tool(name="x", effect="read", attempts=2, timeout=1.5, max_result_chars=None, run_on="loop")
def options(n: int) -> bool:
    return bool(n)


@tool
async def native(n: int) -> bool:
    return bool(n)


@tool(approval=True)
async def native_options(n: int) -> bool:
    return bool(n)


@tool
def generator(n: int) -> Iterator[str]:
    yield "x"


@tool(parallel=False)
async def async_generator(n: int) -> AsyncIterator[str]:
    yield "x"


class Kit:
    @tool
    def method(self, n: int) -> bool:
        return bool(n)

    @tool(effect="idempotent", on_error="raise", reconcile=plain)
    async def native_method(self, n: int) -> bool:
        return bool(n)

    @classmethod
    @tool
    def of_class(cls, n: int) -> bool:
        return bool(n)

    @staticmethod
    @tool
    def static(n: int) -> bool:
        return bool(n)


assert_type(plain(1, text="x"), bool)
assert_type(options(1), bool)
assert_type(native(1), Coroutine[Any, Any, bool])
assert_type(native_options(1), Coroutine[Any, Any, bool])
assert_type(generator(1), Iterator[str])
assert_type(async_generator(1), AsyncIterator[str])
assert_type(Kit().method(1), bool)
assert_type(Kit().native_method(1), Coroutine[Any, Any, bool])
assert_type(Kit.of_class(1), bool)
assert_type(Kit.static(1), bool)
assert_type(as_tool(plain), Tool)
assert_type(check_tools([plain, as_tool(native)]), dict[str, Tool])
assert_type(Tool.from_function(plain, name="y", timeout=3, effect="read"), Tool)
assert_type(Tool.external(name="e", parameters={"type": "object"}), Tool)
assert_type(as_tool(plain).bind({"n": "1"}), dict[str, object])
assert_type(as_tool(plain).call({"n": 1}), object)
plain("x")  # E: arg-type
native_options(n="x")  # E: arg-type
Kit().method("x")  # E: arg-type
tool(effect="none")  # E: call-overload
tool(timeout="x")  # E: call-overload
tool(5)  # E: call-overload
Tool.from_function(plain, attempt=2)  # E: call-arg


class Reply(TypedDict):
    approve: bool


class Toolbox:
    name = "toolbox"

    @hookimpl
    def on_tool(self, run: RunContext[object]) -> list[Callable[..., object]]:
        return [plain, native_options]


def scripted(*script: ScriptStep) -> Agent:
    return Agent(ScriptedModel(*script), plugins=[Toolbox()])


async def approving(question: Question) -> dict[str, bool]:
    return {"approve": True}


async def typed(question: Question) -> Reply:
    return {"approve": True}


async def named(question: Question) -> list[str]:
    return ["red"]


async def unordered(question: Question) -> set[str]:
    return {"red"}


Agent("offline", answer=approving)
Agent("offline", answer=typed)
scripted(call("plain", n=1), "Done.").run_sync("Go", answer=named)
scripted("Done.").run_sync("Go", answer=unordered)  # E: arg-type
"""


def test_f120_signatures_are_kept_and_nothing_is_any(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE, encoding="utf-8")
    config = tmp_path / "mypy.ini"
    source = Path(trilane.__file__).parents[1]
    config.write_text(
        "[mypy]\nstrict = true\ndisable_error_code = unused-coroutine\n"
        f"mypy_path = {source.as_posix()}\nfollow_imports = silent\n",
        encoding="utf-8",
    )
    output, errors, _ = mypy.api.run(
        [
            f"--config-file={config}",
            f"--cache-dir={tmp_path / 'cache'}",
            "--no-error-summary",
            "--hide-error-context",
            str(sample),
        ]
    )
    assert errors == ""
    found = {}
    for line in output.splitlines():
        if ": error: " in line:
            _, number, rest = line.removeprefix(str(sample)).split(":", 2)
            found[int(number)] = rest.rpartition("[")[2].rstrip("]")
    expected = {
        number: line.partition("# E: ")[2]
        for number, line in enumerate(SAMPLE.splitlines(), start=1)
        if "# E: " in line
    }
    assert found == expected, output
    assert len(expected) == 8


def test_f120_the_package_declares_itself_typed() -> None:
    assert (Path(trilane.__file__).parent / "py.typed").is_file()
