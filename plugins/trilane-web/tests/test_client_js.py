"""The JavaScript client: against a real server in Node, its types with the TypeScript compiler, and its structure."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import trilane_web
from trilane import (
    Agent,
    Delta,
    ModelResponse,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolContext,
    UserMessage,
    new_id,
    tool,
)
from trilane.testing import FunctionModel
from trilane_web import WebSettings, protocol

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
HERE = Path(__file__).parent
STATIC = Path(trilane_web.__file__).parent / "static"
PROGRAM = HERE / "node" / "client.test.mjs"
NODE_MODULES = HERE.parents[2] / ".ci/node/node_modules"


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def _speak(request: Any, emit: Any) -> ModelResponse:
    """Does what the last words of the user say: `words N`, `hold`, `pay`, or `cut` for each time it stands there."""
    last = request.messages[-1]
    asked = next(one for one in reversed(request.messages) if isinstance(one, UserMessage)).text.split()
    calls = 0 if isinstance(last, UserMessage) else sum(one.kind == "tool" for one in request.messages)
    if asked[0] in ("pay", "cut") and calls < len(asked):
        wanted = ToolCall(id=new_id(), name=asked[0], arguments={"amount": 1000} if asked[0] == "pay" else {})
        return ModelResponse(parts=(ToolCallPart(call=wanted),), stop_reason="tool_calls")
    if asked[0] == "hold":
        await emit(Delta(text="holding "))
        await asyncio.Event().wait()
    words = [f"w{number} " for number in range(int(asked[1]) if asked[0] == "words" else 1)]
    for word in words:
        await emit(Delta(text=word))
    return ModelResponse(parts=(TextPart(text="".join(words)),), stop_reason="end")


async def _run(*command: str | Path, environment: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(str(part) for part in command),
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(120):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode()


async def test_the_client_in_node(serve: Serve, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip(f"not installed: node, for {PROGRAM.name}")
    # Before version 22 its WebSocket is behind a flag.
    _, kind = await _run(node, "-p", "typeof WebSocket")
    flags = [] if kind.strip() == "function" else ["--experimental-websocket"]
    client = shutil.copy(STATIC / "client.js", tmp_path / "client.mjs")
    servers: list[Any] = []

    @tool(effect="idempotent")
    async def cut(ctx: ToolContext[Any]) -> str:
        """Drop every connection that watches this run."""
        for connection in servers[0].web._connections:
            if ctx.run_id in connection._watched:
                connection.drop("cut by the test")
        return "cut"

    agent = Agent(FunctionModel(_speak), tools=[pay, cut], name="helper")
    async with serve(agent, token="secret", settings=WebSettings(lanes=True)) as server:
        servers.append(server)
        code, output = await _run(
            node,
            *flags,
            "--test",
            PROGRAM,
            environment={"TRILANE_URL": server.url, "TRILANE_CLIENT": client.as_uri()},
        )
    assert code == 0, output
    passed = re.search(r"^(?:#|ℹ) pass (\d+)$", output, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) == PROGRAM.read_text(encoding="utf-8").count("\ntest(")


async def test_the_types_with_the_compiler() -> None:
    """A program that is right compiles, and each of its lines that is wrong is found."""
    compiler = shutil.which("tsc") or shutil.which("tsc", path=str(NODE_MODULES / ".bin"))
    if compiler is None:
        pytest.skip(f"not installed: typescript, by npm in {NODE_MODULES.parent.name}")
    options = ("--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom")
    code, output = await _run(compiler, *options, "--types", "", HERE / "node" / "types.ts")
    assert code == 0, output


CLIENT = (STATIC / "client.js").read_text(encoding="utf-8")
TYPES = (STATIC / "client.d.ts").read_text(encoding="utf-8")


def _public(text: str, pattern: str) -> set[str]:
    return {name for name in re.findall(pattern, text, re.MULTILINE) if not name.startswith("_")}


def test_the_types_name_what_the_client_has() -> None:
    exported = r"^export (?:declare )?(?:const|function|class) (\w+)"
    assert _public(CLIENT, exported) == _public(TYPES, exported)
    method = r"^  (?:async |readonly )?(\w+)[(<:]"
    written = CLIENT[CLIENT.index("export class TrilaneClient") :]
    typed = TYPES[TYPES.index("export class TrilaneClient") :]
    names = _public(written, r"^  (?:async )?(\w+)\(.*\{$") | {"welcome", "runs"}
    # `ask` is the untyped way to send any message, and stays out of the types.
    assert names - {"ask", "url", "options"} == _public(typed, method) - {"addEventListener"}
    assert _public(CLIENT, r"this\._emit\(\"(\w+)\"") == _public(
        TYPES[TYPES.index("interface ClientEvents") :].partition("}\n\n")[0], r"^  (\w+):"
    )


@pytest.mark.parametrize(
    ("interface", "model"),
    [
        ("Welcome", protocol.Welcome),
        ("Attached", protocol.RunAttached),
        ("Gap", protocol.Gap),
        ("Receipt", protocol.ReceiptGiven),
        ("Notification", protocol.NotificationSeen),
    ],
)
def test_the_types_say_what_the_protocol_says(interface: str, model: Any) -> None:
    body = re.search(rf"export interface {interface} {{(.*?)^}}", TYPES, re.MULTILINE | re.DOTALL)
    assert body is not None
    fields = dict(re.findall(r"^  (\w+): (.*);$", body[1], re.MULTILINE))
    assert set(fields) == set(model.model_fields) - {"re"}
    for name, choices in (("status", fields.get("status")), ("reason", fields.get("reason"))):
        if choices is not None:
            assert re.findall(r'"(\w+)"', choices) == list(get_args(model.model_fields[name].annotation))


@pytest.mark.parametrize(
    ("alias", "choices"), [("AckPolicy", protocol.AckPolicy), ("DisconnectPolicy", protocol.DisconnectPolicy)]
)
def test_the_types_know_the_policies(alias: str, choices: Any) -> None:
    (found,) = re.findall(rf"export type {alias} = (.*);", TYPES)
    assert re.findall(r'"(\w+)"', found) == list(get_args(choices))


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_modules_load_nothing_from_elsewhere_and_make_no_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r'from "(?!\./)', text) == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []
