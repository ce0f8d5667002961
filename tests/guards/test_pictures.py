"""The screenshots of the documentation show the pages as they are, are small, and are on a page."""

from __future__ import annotations

import importlib.util
import re
import struct
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
PICTURES = sorted(IMAGES.glob("*.png"))


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """`docs/_pictures.py`; it needs no browser until it takes them."""
    spec = importlib.util.spec_from_file_location("docs_pictures", ROOT / "docs" / "_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_light_dark_phone_and_the_queues_are_there(pictures: ModuleType) -> None:
    assert {"chat-page", "page-light", "page-dark", "page-phone", "queues-light"} <= set(pictures.SCENES)
    assert set(pictures.SCENES) <= {path.stem for path in PICTURES}
    wide, phone = ((IMAGES / f"page-{name}.png").read_bytes()[16:24] for name in ("light", "phone"))
    assert struct.unpack(">II", wide) == (1280, 800)
    assert struct.unpack(">II", phone)[0] == 390 * 1.5


def test_the_pages_have_not_changed_since(pictures: ModuleType) -> None:
    assert pictures.SOURCES.read_text(encoding="utf-8").strip() == pictures.sources_hash(), (
        "the pages have changed since their pictures were taken: uv run --group browser python docs/_pictures.py"
    )


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_shown_with_words(path: Path) -> None:
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size < 150_000
    shown = re.compile(rf"!\[[^\]]{{20,}}\]\([./]*images/{re.escape(path.name)}\)")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if shown.search(page.read_text(encoding="utf-8"))]
    assert pages, "show it on a page, with a text for who cannot see it"


def test_the_colours_of_a_picture_survive_the_palette(pictures: ModuleType) -> None:
    """A picture with each kind of row that PNG has comes out as it went in."""
    import zlib

    rows = [bytes(((x * 7 + y * 5) % 8 * 30, (x + y) % 4 * 60, y % 2 * 200)) for y in range(5) for x in range(6)]
    raw, above = b"", bytes(18)
    for y in range(5):
        row = b"".join(rows[y * 6 : y * 6 + 6])
        raw += bytes([y]) + _filtered(y, row, above)
        above = row
    head = struct.pack(">IIBBBBB", 6, 5, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(pictures._chunk(name, data) for name, data in chunks)
    assert pictures._pixels(png) == (6, 5, rows)
    small = pictures.with_palette(png)
    palette, body = _data(small, b"PLTE"), zlib.decompress(_data(small, b"IDAT"))
    colours = [palette[at : at + 3] for at in range(0, len(palette), 3)]
    assert [colours[number] for y in range(5) for number in body[y * 7 + 1 : y * 7 + 7]] == rows


def _data(png: bytes, name: bytes) -> bytes:
    at = png.index(name)
    (size,) = struct.unpack(">I", png[at - 4 : at])
    return png[at + 4 : at + 4 + size]


def _filtered(kind: int, row: bytes, above: bytes) -> bytes:
    out = bytearray()
    for x, value in enumerate(row):
        left, corner = (row[x - 3], above[x - 3]) if x >= 3 else (0, 0)
        up = above[x]
        nearest = min((left, up, corner), key=lambda one, aim=left + up - corner: abs(aim - one))  # type: ignore[misc]
        out.append((value - (0, left, up, (left + up) // 2, nearest)[kind]) & 255)
    return bytes(out)
