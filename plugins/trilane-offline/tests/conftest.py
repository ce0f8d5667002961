"""Tools at hand, and a talk with the planner: the smallest loop that runs its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from trilane.messages import AssistantMessage, Delta, TextPart, ToolCall, ToolMessage, ToolResult, UserMessage
from trilane.models import ModelRequest, ModelResponse, ToolSpec
from trilane_offline.model import OfflineModel

Handler = Callable[..., ToolResult | str | int | float | list[Any] | dict[str, Any]]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def spec(name: str, description: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=schema)


def _text(description: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _integer(description: str, default: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "default": default}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description, "default": False}


_ENCODING = {"enum": ["utf-8", "utf-16", "latin-1"], "type": "string", "default": "utf-8"}


@pytest.fixture(scope="session")
def file_tools() -> tuple[ToolSpec, ...]:
    """The tools of trilane-files, as a model sees them."""
    glob = (
        "Glob. A pattern without a slash matches at any depth: '*.md' is every Markdown file. "
        "'docs/*.md' one folder, 'src/**/*.py' a tree."
    )
    return (
        spec(
            "list_files",
            "List files by name, one path a line, sorted. Folders are not listed themselves.",
            pattern=_text(glob, default="**/*"),
            path=_text("Folder to look in.", default="."),
            max_results=_integer("How many paths to return, at most 1000.", 200),
            offset=_integer("How many paths to leave out at the start, to get the rest of a long list.", 0),
            include_ignored=_flag("Also look into hidden and vendor folders."),
        ),
        spec(
            "read_file",
            "Read a text file. If it is long, a note at the end says how to get the rest. Line ends are given as \\n.",
            ["path"],
            path=_text("The file."),
            offset=_integer("Number of the first line to return; the first line of the file is 1.", 1),
            limit=_integer("How many lines to return, at most 2000.", 500),
            column=_integer("Where to begin in the first line, for lines that are too long to return at once.", 1),
            encoding=_ENCODING,
        ),
        spec(
            "search_text",
            "Find lines of text files; returns path:line: text for each.",
            ["query"],
            query=_text("Text to find, within one line."),
            pattern=_text(
                "Which files to search, a glob as for list_files: '*.py' matches at any depth.", default="**/*"
            ),
            path=_text("Folder or file to search.", default="."),
            regex=_flag("Take the query as a Python regular expression."),
            ignore_case=_flag("Let upper and lower case match each other."),
            max_results=_integer("How many lines to return, at most 500.", 100),
            offset=_integer("How many matching lines to leave out at the start.", 0),
        ),
        spec(
            "count_words",
            "Count the words of a text file, as wc -w does: a word is a run of characters without white space.\n\n"
            "White space is space, tab, line feed.",
            ["path"],
            path=_text("The file."),
            encoding=_ENCODING,
        ),
        spec(
            "file_info",
            "Tell what a file or folder is: kind, size in bytes, lines, words, line ends, time of the last change.",
            ["path"],
            path=_text("The file or folder."),
        ),
    )


@pytest.fixture(scope="session")
def other_tools() -> tuple[ToolSpec, ...]:
    """Tools of other kinds: arithmetic, weather, mail, and one that destroys."""
    integer, number = {"type": "integer"}, {"type": "number"}
    return (
        spec("add", "Add two numbers.", ["a", "b"], a=integer, b=integer),
        spec("multiply", "Multiply two numbers.", ["a", "b"], a=number, b=number),
        spec("evaluate", "Evaluate an arithmetic expression.", ["expression"], expression=_text()),
        spec(
            "get_weather",
            "Current weather of a city.",
            ["city"],
            city=_text(),
            unit={"enum": ["celsius", "fahrenheit"]},
        ),
        spec("send_mail", "Send an email.", ["to", "subject"], to=_text(), subject=_text()),
        spec("delete_file", "Delete a file.", ["path"], path=_text()),
    )


@dataclass
class Talk:
    """Answers a model's calls with handlers until it has said what it has to say."""

    handlers: Mapping[str, Handler]
    tools: Sequence[ToolSpec]
    history: list[Any] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    responses: list[ModelResponse] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)

    async def say(self, text: str, *, origin: Any = "request", schema: Mapping[str, Any] | None = None) -> str:
        self.history.append(UserMessage(id=str(len(self.history)), parts=(TextPart(text=text),), origin=origin))
        for _ in range(4):
            message = await self.turn(schema)
            if not message.calls:
                return message.text
            results = tuple([self.answer(call) for call in message.calls])
            self.history.append(ToolMessage(id=str(len(self.history)), results=results))
        raise AssertionError("the planner does not come to an end")

    async def turn(self, schema: Mapping[str, Any] | None = None) -> AssistantMessage:
        self.deltas.clear()

        async def emit(delta: Delta) -> None:
            self.deltas.append(delta)

        request = ModelRequest(messages=tuple(self.history), tools=tuple(self.tools), output_schema=schema)
        response = await OfflineModel(installed=lambda: ("files", "openai")).call(request, emit)
        self.responses.append(response)
        text = "".join([delta.text for delta in self.deltas])
        parts = response.parts if response.parts is not None else (TextPart(text=text),)
        message = AssistantMessage(id=str(len(self.history)), parts=parts, stop_reason=response.stop_reason)
        self.history.append(message)
        self.calls += [(call.name, dict(call.arguments)) for call in message.calls]
        return message

    def answer(self, call: ToolCall) -> ToolResult:
        import json

        value = self.handlers[call.name](**call.arguments)
        if isinstance(value, ToolResult):
            return value.replace(call_id=call.id)
        if isinstance(value, str):
            return ToolResult(call_id=call.id, content=value)
        return ToolResult(call_id=call.id, content=json.dumps(value), data=value)


_WORDS = {"README.md": 412, "docs/guide.md": 1500, "LICENSE": 170}


def _count(path: str) -> ToolResult | int:
    if path not in _WORDS:
        return ToolResult(call_id="", content=f"There is no '{path}'.", outcome="error")
    return _WORDS[path]


def _list(pattern: str = "**/*", path: str = ".") -> str:
    ending = pattern.removeprefix("**/").removeprefix("*")
    found = [name for name in _WORDS if name.endswith(ending)]
    return "\n".join(found) or f"No file in '{path}' matches '{pattern}'."


@pytest.fixture
def talk(file_tools: tuple[ToolSpec, ...], other_tools: tuple[ToolSpec, ...]) -> Talk:
    """A talk with a small world: three files, and numbers to add."""
    handlers: dict[str, Handler] = {
        "count_words": _count,
        "list_files": _list,
        "read_file": lambda path, limit=500, offset=1: "\n".join(["one", "two", "three", "four"][: min(limit, 4)]),
        "search_text": lambda query, **_: f"README.md:7: three {query}s",
        "file_info": lambda path: f"{path}: file, 1,079 bytes",
        "add": lambda a, b: a + b,
        "get_weather": lambda city, unit="celsius": {"city": city, "temperature": 21.5, "wind": "north"},
        "delete_file": lambda path: "gone",
    }
    return Talk(handlers, (*file_tools, *other_tools))
