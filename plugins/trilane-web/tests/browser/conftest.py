"""A real Chromium, servers in threads and in processes of their own, and models that speak when they are let."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trilane import Agent, Delta, ModelResponse, TextPart
from trilane_web import WebSettings, app
from trilane_web.serving import WebServer, listen, make_server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HERE = Path(__file__).parent
AXE = Path(__file__).parents[4] / ".ci/node/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


class Steps:
    """A model that says one word for each time it is let, from any thread."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.said = 0
        self._allowed = threading.Semaphore(0)

    def allow(self, count: int) -> None:
        for _ in range(count):
            self._allowed.release()

    async def speak(self, request: Any, emit: Any) -> ModelResponse:
        for word in self.words:
            while not self._allowed.acquire(blocking=False):  # noqa: ASYNC110  (it is released by another thread)
                await asyncio.sleep(0)
            self.said += 1
            await emit(Delta(text=word))
        return ModelResponse(parts=(TextPart(text="".join(self.words)),), stop_reason="end")


@pytest.fixture
def steps() -> type[Steps]:
    return Steps


class Served:
    """A server in a thread of its own, that can be ended and started again on its port."""

    def __init__(self) -> None:
        self.port = 0
        self.web: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: WebServer | None = None
        self._thread: threading.Thread | None = None

    def start(self, agent: Agent[Any, Any], **options: Any) -> str:
        settings = options.pop("settings", None) or WebSettings(lanes=True)
        return self.serve(app(agent, settings=settings, **options))

    def serve(self, web: Any) -> str:
        listener = listen("127.0.0.1", self.port, protected=True)
        self.port = listener.getsockname()[1]
        self.web = web
        self._server = make_server(web)
        self._thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self.port}/"

    def _serve(self, listener: socket.socket) -> None:
        server = self._server
        assert server is not None

        async def work() -> None:
            self._loop = asyncio.get_running_loop()
            await server.serve(sockets=[listener])

        with listener:
            asyncio.run(work())

    def cut(self) -> None:
        """Drop every connection, as a network does."""
        assert self._loop is not None
        for connection in tuple(self.web._connections):
            self._loop.call_soon_threadsafe(connection.drop, "cut by the test")

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(20)
            self._server = None


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.stop()


class Process:
    """`trilane serve` in a process of its own, in the folder of its program; can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self, program: str) -> str:
        """Serve `agent` of this program; its address."""
        number = len(list(self.folder.glob("program_*.py")))
        (self.folder / f"program_{number}.py").write_text(program, encoding="utf-8")
        command = [sys.executable, "-m", "trilane", "serve", f"program_{number}:agent", "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRILANE_")}
        self._process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True, env=environment)
        assert self._process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", self._process.stderr.readline())
        assert found is not None
        self.port = int(found[1])
        return found[0]

    def kill(self) -> None:
        """kill -9, and wait."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.kill()


@pytest.fixture(scope="module")  # not longer: while it is there, no other event loop can run in this thread
def chromium() -> Iterator[Any]:
    missing = "" if CHROMIUM else "chromium, Debian's package"
    if importlib.util.find_spec("playwright") is None:
        missing = "playwright, in the dependency group browser"
    if missing:
        pytest.skip(f"not installed: {missing}")
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Wire:
    """What the WebSockets of a tab received and sent, as the browser saw it."""

    def __init__(self, page: Any) -> None:
        self.down: list[dict[str, Any]] = []
        self.up: list[dict[str, Any]] = []
        page.on("websocket", self._open)

    def _open(self, websocket: Any) -> None:
        websocket.on("framereceived", lambda text: self.down.append(json.loads(text)))
        websocket.on("framesent", lambda text: self.up.append(json.loads(text)))

    def events(self, *kinds: str, run: str = "") -> list[dict[str, Any]]:
        """Events in the order in which they came: of these types, or all; of this run, or all."""
        return [
            event
            for message in self.down
            if message["type"] == "events" and run in ("", message["run"])
            for event in message["events"]
            if event["type"] in kinds or not kinds
        ]

    def numbers(self, run: str = "") -> list[int]:
        """Their sequence numbers."""
        return [event["seq"] for event in self.events(run=run)]


@pytest.fixture
def expect(chromium: Any) -> Any:
    found = importlib.import_module("playwright.sync_api").expect
    found.set_options(timeout=20_000)  # for what should take milliseconds, on a machine that does other things too
    return found


@pytest.fixture
def new_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """A tab, with what its WebSocket said as `wire`.

    It fails the test if anything is wrong on its console, or if it asks another host for anything.
    """
    troubles: list[str] = []
    contexts: list[Any] = []

    def make(url: str, *, context: Any = None, **options: Any) -> Any:
        if context is None:
            context = chromium.new_context(**options)
            contexts.append(context)
        page = context.new_page()
        page.wire = Wire(page)
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                troubles.append(request.url)
                if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:"))
                else None
            ),
        )
        page.goto(url)
        return page

    make.troubles = troubles  # type: ignore[attr-defined]
    yield make
    for context in contexts:
        context.close()
    assert [text for text in troubles if "ERR_CONNECTION_REFUSED" not in text and "WebSocket" not in text] == []


@pytest.fixture
def ask() -> Callable[[Any, str], None]:
    """Type a text into the message box and press Enter."""

    def type_and_send(page: Any, text: str) -> None:
        page.get_by_label("Message", exact=True).fill(text)
        page.keyboard.press("Enter")

    return type_and_send


@pytest.fixture
def check() -> Any:
    """Fails with what axe-core has found, and where."""
    if not AXE.is_file():
        where = "npm install --no-package-lock in .ci/node"
        pytest.skip(f"not installed: axe-core, {where}")
    source = AXE.read_text(encoding="utf-8")

    def run(page: Any, where: str) -> None:
        page.evaluate(source)
        found = page.evaluate(
            "async (rules) => (await axe.run(document, { runOnly: rules, resultTypes: ['violations'] })).violations"
            ".map((one) => [one.id, one.help, ...one.nodes.map((node) => node.html + ' ' + node.failureSummary)])",
            RULES,
        )
        assert found == [], f"{where}:\n{json.dumps(found, indent=1, ensure_ascii=False)}"

    return run
