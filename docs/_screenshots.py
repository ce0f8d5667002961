"""Takes the pictures of the chat page that the tutorials show, in a Chromium of the system.

Run it with `uv run --group browser python docs/_screenshots.py`. Beside each picture stands what could be read in it.
The tests in `tests/guards` look at the page again and compare that: the pixels of two machines differ, what is said on
the page does not.
"""

from __future__ import annotations

import importlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["FLAGS", "IMAGES", "chat_page", "chromium"]

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
TUTORIAL = DOCS / "tutorials" / "serve-it-to-a-browser.md"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Where the Chromium of the system is; empty if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The agent of the tutorial, served as the tutorial says."""
    found = re.search(r'```python title="my_agents\.py"\n(.*?)^```', TUTORIAL.read_text(encoding="utf-8"), re.S | re.M)
    if found is None:
        raise LookupError(f"{TUTORIAL.name} shows no my_agents.py")
    (folder / "my_agents.py").write_text(found[1], encoding="utf-8")
    command = [sys.executable, "-m", "trilane", "serve", "my_agents:helper", "--port", "0"]
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        yield server.stderr.readline().split(" at ")[1].strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=20)


def chat_page(picture: Path | None, browser: Any) -> str:
    """Ask what the tutorial asks, and look at the page while the question is open.

    Args:
        picture: Where to put what is seen; None to read only.
        browser: A Chromium.

    Returns:
        What can be read on the page, a line for each piece of text.
    """
    with tempfile.TemporaryDirectory() as place, _served(Path(place)) as address:
        page = browser.new_page(viewport={"width": 960, "height": 600}, reduced_motion="reduce")
        page.goto(address)
        page.get_by_label("Message", exact=True).fill("Ring the bell 3 times.")
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="Approve").wait_for()
        text = str(page.locator("main").inner_text())
        if picture is not None:
            page.screenshot(path=str(picture))
        page.close()
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


def main() -> None:
    """Take every picture anew."""
    IMAGES.mkdir(exist_ok=True)
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        text = chat_page(IMAGES / "chat-page.png", browser)
        browser.close()
    (IMAGES / "chat-page.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
