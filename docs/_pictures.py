"""Takes the screenshots of the documentation: `uv run --group browser python docs/_pictures.py`.

It needs Debian's package chromium. The pictures go to `docs/images/`, with the hash of what they show, so that a guard
notices when the pages have changed since. Beside the one of the tutorial stands what could be read in it: a guard looks
at that page again and compares, for the pixels of two machines differ and what is said on the page does not. What is
made from code in the reference: `_generate.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
SOURCES = IMAGES / ".sources"
STATIC = ROOT / "plugins" / "trilane-web" / "src" / "trilane_web" / "static"
EXAMPLES = ROOT / "examples"
TUTORIAL = ROOT / "docs" / "tutorials" / "serve-it-to-a-browser.md"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
)
SMALL = {"viewport": {"width": 960, "height": 600}}
WIDE = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5, "has_touch": True}

ANSWER = """There are **two** notes on the trip:

| file | words | about |
| --- | --- | --- |
| `notes.md` | 120 | the way there |
| `plan.md` | 86 | what to see |

```python
for name in ("notes.md", "plan.md"):
    print(open(name).read())
```

Shall I write them to Ann?"""
THOUGHT = "The user wants to know what has been written down so far. I look into the folder first."


def sources_hash() -> str:
    """Of everything the pictures show: the pages, and what is done on them here."""
    files = [Path(__file__), *STATIC.iterdir(), *(EXAMPLES / "chat_and_event_agent" / "page").iterdir()]
    total = hashlib.sha256()
    for file in sorted(file for file in files if file.suffix in (".css", ".html", ".js", ".py", ".svg")):
        total.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


# ---- servers ---------------------------------------------------------------------------------------


@contextmanager
def _served(web: Any) -> Iterator[str]:
    """The application, served by a thread."""
    from trilane_web.serving import listen, make_server

    with listen("127.0.0.1", 0, protected=True) as listener:
        server = make_server(web)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _tutorial() -> Iterator[str]:
    """The agent of the tutorial, served as the tutorial says."""
    found = re.search(r'```python title="my_agents\.py"\n(.*?)^```', TUTORIAL.read_text(encoding="utf-8"), re.S | re.M)
    if found is None:
        raise LookupError(f"{TUTORIAL.name} shows no my_agents.py")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "my_agents.py").write_text(found[1], encoding="utf-8")
        command = [sys.executable, "-m", "trilane", "serve", "my_agents:helper", "--port", "0"]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        try:
            yield server.stderr.readline().split(" at ")[1].strip()
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=20)


def _assistant() -> AbstractContextManager[str]:
    """An agent that has something to show."""
    from trilane import Agent, Delta, ReasoningPart, TextPart, ToolContext, tool
    from trilane.testing import ScriptedModel, Step, call
    from trilane_web import WebSettings, app

    @tool(effect="read")
    async def list_files(ctx: ToolContext[Any], folder: str) -> str:
        """List files."""
        await ctx.progress("looking", fraction=0.5)
        return "notes.md\nplan.md"

    @tool(approval=True)
    def send_mail(to: str, subject: str, urgent: bool) -> str:
        """Send a mail."""
        return f"sent to {to}"

    said = Step(
        parts=[ReasoningPart(text=THOUGHT), TextPart(text=ANSWER)],
        deltas=[Delta(kind="reasoning", text=THOUGHT), Delta(text=ANSWER, index=1)],
    )
    mail = call("send_mail", to="ann@example.org", subject="Our trip", urgent=False)
    script = ("Hello! Ask me about the trip.", call("list_files", folder="trip"), said, mail, "It is sent.")
    agent = Agent(ScriptedModel(*script), tools=[list_files, send_mail], name="Travel assistant")
    return _served(app(agent, settings=WebSettings(lanes=True)))


def _two_agents() -> AbstractContextManager[str]:
    """The example, with an event agent that never takes the second call."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        desk = importlib.import_module("chat_and_event_agent.desk")
        application = importlib.import_module("chat_and_event_agent.application")
    finally:
        sys.path.remove(str(EXAMPLES))
    return _served(application.make_site(desk.DeskModel(), pause=asyncio.Event().wait))


# ---- what is done on the pages ---------------------------------------------------------------------------------------


def _ask(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def _answered(page: Any) -> None:
    page.get_by_role("button", name="Send").wait_for()


def _talk(page: Any) -> None:
    _ask(page, "Hello")
    _answered(page)
    page.get_by_role("button", name="New session").click()
    _ask(page, "What have we written down?")
    page.locator("#transcript").get_by_text("Shall I write them").wait_for()
    _answered(page)


def _answer_and_lanes(page: Any) -> None:
    _talk(page)
    page.locator("details.tool summary").click()
    page.get_by_role("button", name="Lanes").click()
    page.locator("#transcript").evaluate("node => (node.scrollTop = 0)")


def _approval(page: Any) -> None:
    _talk(page)
    _ask(page, "Yes, please")
    page.get_by_label("subject").fill("Our trip to Bregenz")


def _approval_on_a_phone(page: Any) -> None:
    _ask(page, "Hello")
    _answered(page)
    _ask(page, "What have we written down?")
    page.locator("#transcript").get_by_text("Shall I write them").wait_for()
    _answered(page)
    _ask(page, "Yes, please")
    page.get_by_label("subject").wait_for()


def _call_that_waits(page: Any) -> None:
    _ask(page, "Which trains go to Bregenz?")
    page.get_by_text("1 waiting").wait_for()
    page.locator("details.tool").nth(1).wait_for()


def _question_of_the_tutorial(page: Any) -> None:
    _ask(page, "Ring the bell 3 times.")
    page.get_by_role("button", name="Approve").wait_for()


Scene = tuple[Callable[[], AbstractContextManager[str]], str, dict[str, Any], Callable[[Any], None]]
SCENES: dict[str, Scene] = {
    "chat-page": (_tutorial, "", SMALL, _question_of_the_tutorial),
    "page-light": (_assistant, "", WIDE, _answer_and_lanes),
    "page-dark": (_assistant, "", {**WIDE, "color_scheme": "dark"}, _approval),
    "page-phone": (_assistant, "", PHONE, _approval_on_a_phone),
    "queues-light": (_two_agents, "queues/", WIDE, _call_that_waits),
}
READ = ("chat-page",)  # what can be read there is kept


@contextmanager
def _played(browser: Any, scene: Scene) -> Iterator[Any]:
    """The page, at the moment that is to be seen."""
    serve, path, screen, act = scene
    with serve() as url:
        context = browser.new_context(reduced_motion="reduce", **screen)
        page = context.new_page()
        page.goto(url + path)
        page.locator("#connection[data-state=online]").wait_for()
        act(page)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_load_state("networkidle") if path == "" else None
        yield page
        context.close()


def _take(page: Any) -> bytes:
    picture: bytes = page.screenshot(animations="disabled", caret="hide")
    return picture


def _read(page: Any) -> str:
    """What can be read on the page, a line for each piece of text."""
    lines = (line.strip() for line in page.locator("main").inner_text().splitlines())
    return "\n".join(line for line in lines if line) + "\n"


# ---- PNG ---------------------------------------------------------------------------------------


def with_palette(png: bytes) -> bytes:
    """The picture with the 256 colours it has most of, each other one drawn in the nearest of them."""
    width, height, pixels = _pixels(png)
    counted = Counter(pixels)
    palette = [colour for colour, _ in counted.most_common(256)]
    index = {colour: number for number, colour in enumerate(palette)}
    for colour in counted:
        if colour not in index:
            index[colour] = min(
                range(len(palette)), key=lambda at: sum((a - b) ** 2 for a, b in zip(colour, palette[at], strict=True))
            )
    rows = (bytes(index[pixel] for pixel in pixels[at : at + width]) for at in range(0, width * height, width))
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height, and the colours, without transparency."""
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        name = png[at + 4 : at + 8]
        chunks[name] = chunks.get(name, b"") + png[at + 8 : at + 8 + size]
        at += 12 + size
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    if depth != 8 or kind not in (2, 6) or any(rest):
        raise ValueError(f"this is not a PNG as Chromium writes them: {depth} bits, kind {kind}")
    channels = 3 if kind == 2 else 4
    raw = zlib.decompress(chunks[b"IDAT"])
    stride = width * channels
    above = bytearray(stride)
    pixels: list[bytes] = []
    for start in range(0, len(raw), stride + 1):
        above = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), above, channels)
        pixels += (bytes(above[x : x + 3]) for x in range(0, stride, channels))
    return width, height, pixels


def _unfiltered(kind: int, row: bytearray, above: bytearray, channels: int) -> bytearray:
    for x in range(len(row) if kind else 0):
        left = row[x - channels] if x >= channels else 0
        up = above[x]
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = up
        elif kind == 3:
            guess = (left + up) // 2
        else:
            corner = above[x - channels] if x >= channels else 0
            guess = min((left, up, corner), key=lambda one, aim=left + up - corner: abs(aim - one))  # type: ignore[misc]
        row[x] = (row[x] + guess) & 255
    return row


def chromium() -> str:
    """Where the Chromium of the system is; empty if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


def main() -> int:
    """Take all pictures."""
    if not chromium():
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    playwright = importlib.import_module("playwright.sync_api")
    IMAGES.mkdir(exist_ok=True)
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for name, scene in SCENES.items():
            with _played(browser, scene) as page:
                picture = with_palette(_take(page))
                (IMAGES / f"{name}.png").write_bytes(picture)
                print(f"{name}.png: {len(picture) / 1000:.0f} kB")
                if name in READ:
                    (IMAGES / f"{name}.txt").write_text(_read(page), encoding="utf-8")
        browser.close()
    SOURCES.write_text(sources_hash() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
