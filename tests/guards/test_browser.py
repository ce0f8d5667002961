"""The documentation in a Chromium: wide and narrow, light and dark; nothing sticks out, nothing comes from elsewhere.

Needs the dependency group `browser`, a Chromium of the system, and for the checks of accessibility axe-core from npm:
`uv run --group browser pytest -m browser tests/guards`. With `DOCS_ALL_LOOKS=1` axe-core looks at each page in both
looks; without it, at the one page wide and light, at the next narrow and dark: a look takes a second or more.
"""

from __future__ import annotations

import functools
import http.server
import importlib
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
AXE = ROOT / ".ci" / "node" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = sorted(str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md"))
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = {"wide-light": (WIDE, "light"), "phone-dark": (PHONE, "dark")}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
pytestmark = pytest.mark.browser

_OUT = """
() => {
    const wide = document.documentElement.clientWidth, all = document.documentElement.scrollWidth;
    const found = all > wide ? ['the page is ' + all + ' wide'] : [];
    const texts = ['h1', 'h2', 'h3', 'p', 'li'].map((name) => '.md-content ' + name).join(', ');
    for (const element of document.querySelectorAll(texts)) {
        const box = element.getBoundingClientRect();
        const scrolls = element.closest('.md-typeset__scrollwrap, pre, .highlight, figure, .doc-signature');
        if (box.width && box.right > wide + 1 && !scrolls) found.push(element.textContent.slice(0, 60));
    }
    for (const code of document.querySelectorAll('.md-content pre code')) {
        const size = parseFloat(getComputedStyle(code).fontSize);
        if (size < 11) found.push(size + ' pixels: ' + code.textContent.slice(0, 60));
    }
    return found;
}
"""
_AXE = """
async ([exclude, runOnly]) => (await axe.run({ exclude }, { runOnly, resultTypes: ['violations'] })).violations.map(
    (one) => [one.id, one.help, ...one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + node.failureSummary)])
"""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the built documentation is served."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def pictures() -> Any:
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("_pictures")
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")  # not longer: while it is there, no other event loop can run in this thread
def chromium(pictures: Any) -> Iterator[Any]:
    missing = "" if pictures.chromium() else "chromium, Debian's package"
    if importlib.util.find_spec("playwright") is None:
        missing = "playwright, in the dependency group browser"
    if missing:
        pytest.skip(f"not installed: {missing}")
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=pictures.chromium(), args=list(pictures.FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tabs(chromium: Any, address: str) -> Iterator[Callable[..., Any]]:
    """A tab with these options, kept for the next page; what goes wrong in it is in its `troubles`."""
    kept: dict[str, Any] = {}

    def tab(**options: Any) -> Any:
        key = json.dumps(options, sort_keys=True)
        if key not in kept:
            context = chromium.new_context(**options)
            page = kept[key] = context.new_page()
            page.troubles = []
            page.on("pageerror", lambda error: page.troubles.append(str(error)))
            page.on("console", lambda said: page.troubles.append(said.text) if said.type == "error" else None)
            page.on("request", lambda request: _only_from(address, request.url, page.troubles))
        kept[key].troubles.clear()
        return kept[key]

    yield tab
    for page in kept.values():
        page.context.close()


def _only_from(address: str, url: str, troubles: list[str]) -> None:
    if not url.startswith((address, "data:", "blob:")):
        troubles.append(f"asks {url}")


def _place(page: str) -> str:
    return "" if page == "index" else f"{page}/"


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read(tabs: Callable[..., Any], address: str, page: str, look: str) -> None:
    viewport, scheme = LOOKS[look]
    tab = tabs(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    tab.goto(address + _place(page))
    assert tab.evaluate("document.body.dataset.mdColorScheme") == ("slate" if scheme == "dark" else "default")
    assert tab.evaluate(_OUT) == []
    for other in (PHONE, WIDE):
        tab.set_viewport_size(other)
        assert tab.evaluate(_OUT) == [], other
    tab.set_viewport_size(viewport)
    assert tab.troubles == []


def _looks() -> Iterator[Any]:
    for number, page in enumerate(PAGES):
        looks = list(LOOKS) if "DOCS_ALL_LOOKS" in os.environ else [list(LOOKS)[number % 2]]
        yield from (pytest.param(page, look, id=f"{page}-{look}") for look in looks)


@pytest.mark.parametrize(("page", "look"), list(_looks()))
def test_axe_finds_nothing_on_a_page(tabs: Callable[..., Any], address: str, page: str, look: str) -> None:
    if not AXE.is_file():
        pytest.skip(f"not installed: axe-core, {'npm install --no-package-lock in .ci/node'}")
    viewport, scheme = LOOKS[look]
    tab = tabs(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    tab.goto(address + _place(page))
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    # Around the content every page is the same.
    without = [] if page in ("index", "cheat-sheet") else [".md-header", ".md-sidebar--primary", ".md-footer"]
    found = tab.evaluate(_AXE, [without, RULES])
    assert found == [], json.dumps(found, indent=1, ensure_ascii=False)


def test_what_is_copied_are_the_commands(tabs: Callable[..., Any], address: str) -> None:
    tab = tabs(viewport=WIDE, permissions=["clipboard-read", "clipboard-write"])
    tab.goto(address + "tutorials/sessions-that-survive/")
    tab.locator(".highlight:has(.gp) [data-md-type=copy]").nth(1).click()
    tab.wait_for_function("navigator.clipboard.readText().then((text) => text.includes('harbour.py'))")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert [line.strip() for line in copied.splitlines() if line.strip()] == [
        'python harbour.py "Count the ships."',
        'python harbour.py "Ring the bell 3 times."',
    ]


def test_a_word_is_found(tabs: Callable[..., Any], address: str) -> None:
    tab = tabs(viewport=WIDE)
    tab.goto(address)
    tab.keyboard.press("f")
    tab.keyboard.type("idempotent")
    tab.locator(".md-search-result__item").first.wait_for()
    assert tab.troubles == []


def test_the_light_can_be_switched_off(tabs: Callable[..., Any], address: str) -> None:
    tab = tabs(viewport=PHONE, color_scheme="light")
    tab.goto(address)
    tab.locator("label[title=Dark]").click()
    tab.wait_for_function("document.body.dataset.mdColorScheme === 'slate'")
    tab.goto(address + "cheat-sheet/")
    assert tab.evaluate("document.body.dataset.mdColorScheme") == "slate"


@pytest.mark.parametrize(("motion", "shown"), [("reduce", "run-still.svg"), ("no-preference", "run.svg")])
def test_who_wants_less_motion_sees_a_still_picture(
    tabs: Callable[..., Any], address: str, motion: str, shown: str
) -> None:
    tab = tabs(viewport=WIDE, reduced_motion=motion)
    tab.goto(address)
    assert tab.locator(".terminal img").evaluate(
        "(image) => [image.currentSrc.split('/').pop(), image.naturalWidth > 0]"
    ) == [
        shown,
        True,
    ]


def test_the_chat_page_says_what_the_picture_in_the_tutorial_says(chromium: Any, pictures: Any) -> None:
    shown = (pictures.IMAGES / "chat-page.txt").read_text(encoding="utf-8")
    with pictures._played(chromium, pictures.SCENES["chat-page"]) as page:
        assert pictures._read(page) == shown, "run: uv run --group browser python docs/_pictures.py"
