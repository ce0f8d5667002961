"""Records the command line on a terminal of its own; what is seen becomes the moving picture of the landing page.

`uv run python docs/_terminal.py` writes it; `--check` only says whether it is still what the command shows. What moves
is made up (how fast somebody types, how long a line takes): the same output always gives the same files. The second
one, for who asked for less motion, is the last frame.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

__all__ = ["PICTURES", "REQUEST", "Cell", "picture", "record", "screen"]

IMAGES = Path(__file__).resolve().parent / "images"
#: Each picture, and whether it moves. What asks for less motion is not heard inside an image, so the page chooses.
PICTURES = {IMAGES / "run.svg": True, IMAGES / "run-still.svg": False}
REQUEST = "How many words are in README.md, and which Markdown files are there?"
FILES = {
    "README.md": "# Harbour\n\nTwo ships are in, and one is expected before the tide turns.\n",
    "plan.md": "# Plan\n\nPaint the boat.\n",
    "notes/tides.md": "High at six.\n",
}
COLUMNS, LINES = 86, 24

_CONTROL = re.compile(r"\r|\n|\x1b\[(?P<amount>[0-9;?]*)(?P<code>[A-Za-z])|\x1b\][^\x07]*\x07|[^\r\n\x1b]")
_COLOURS = {31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan", 90: "dim"}
_WIDTH, _HEIGHT, _LEFT, _TOP = 8.4, 20, 16, 44
_TYPED_SECONDS, _LINE_SECONDS, _REST_SECONDS = 2.4, 0.35, 4.0


class Cell(NamedTuple):
    """A character with the names of its looks."""

    text: str
    style: tuple[str, ...] = ()


def record(request: str) -> str:
    """What `trilane run` writes to a terminal, in a folder with a few files and where no key is set."""
    with tempfile.TemporaryDirectory() as place:
        for name, text in FILES.items():
            file = Path(place, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
        size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        environment = {**keep, **size, "TERM": "xterm-256color", "HOME": place, "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-m", "trilane", "run", request]
        master, slave = pty.openpty()
        with subprocess.Popen(command, cwd=place, env=environment, stdin=slave, stdout=slave, stderr=slave) as running:
            os.close(slave)
            seen = b"".join(_chunks(master))
        os.close(master)
    if running.returncode:
        raise RuntimeError(f"trilane run ended with {running.returncode}: {seen.decode()}")
    return seen.decode()


def _chunks(master: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # how Linux says that nobody has the other end open any more
            return
        if not data:
            return
        yield data


def screen(written: str) -> list[list[Cell]]:
    """What stands on the terminal in the end, from its first line, without empty lines at the end."""
    rows: list[list[Cell]] = [[]]
    row = column = 0
    style: tuple[str, ...] = ()
    for found in _CONTROL.finditer(written):
        piece, code = found[0], found["code"]
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
        elif code == "m":
            style = _style(style, found["amount"])
        elif code == "A":
            row = max(0, row - int(found["amount"] or 1))
        elif code == "K":
            rows[row:] = [rows[row][:0] if found["amount"] == "2" else rows[row][:column], *rows[row + 1 :]]
        elif not code and piece[0] != "\x1b":
            line = rows[row]
            line += [Cell(" ")] * (column + 1 - len(line))
            line[column] = Cell(piece, style)
            column += 1
        rows += [[] for _ in range(row + 1 - len(rows))]
    while rows and not "".join(cell.text for cell in rows[-1]).strip():
        rows.pop()
    return rows


def _style(now: tuple[str, ...], amount: str) -> tuple[str, ...]:
    names = set(now)
    for number in (int(part or 0) for part in amount.split(";")):
        if number == 0:
            names.clear()
        elif number in (1, 2):
            names.add("bold" if number == 1 else "dim")
        elif number in (22, 39):
            names -= {"bold", "dim"} if number == 22 else set(_COLOURS.values())
        elif number in _COLOURS or number - 60 in _COLOURS:
            names.add(_COLOURS.get(number) or _COLOURS[number - 60])
    return tuple(sorted(names))


# ---- the picture -----------------------------------------------------------------------------------------------------

_LOOKS = """
.t{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dde5;white-space:pre}
.b{fill:#141a22}.dim{fill:#93a1b3}.bold{font-weight:700}.red{fill:#ff8a80}.green{fill:#7fd88f}.yellow{fill:#e9c46a}
.blue{fill:#82b1ff}.magenta{fill:#d8a0e8}.cyan{fill:#6fd0d8}
"""


def _text(cells: Sequence[Cell], top: int) -> str:
    """One line; each piece has its place and its length, so that every font gives the same picture."""
    parts, column = [], 0
    for style, group in groupby(cells, key=lambda cell: cell.style):
        text = "".join(cell.text for cell in group)
        if text.strip():
            blank = len(text) - len(text.lstrip())
            left = _LEFT + (column + blank) * _WIDTH
            length = len(text.strip()) * _WIDTH
            looks = " ".join(("t", *style))
            place = f'x="{left:.1f}" y="{top}" textLength="{length:.1f}"'
            parts.append(f'<text class="{looks}" {place}>{escape(text.strip())}</text>')
        column += len(text)
    return "".join(parts)


def _wrapped(typed: str) -> list[str]:
    return [typed[start : start + COLUMNS] for start in range(0, len(typed), COLUMNS)]


def picture(request: str, rows: Sequence[Sequence[Cell]], *, moving: bool) -> str:
    """The SVG: somebody types the command, then what it showed comes line by line, then it begins again."""
    typed = _wrapped(f'$ trilane run "{request}"')
    moves = _TYPED_SECONDS + 0.5
    total = moves + _LINE_SECONDS * len(rows) + _REST_SECONDS
    height = _TOP + _HEIGHT * (len(typed) + len(rows)) + 8
    width = 2 * _LEFT + COLUMNS * _WIDTH
    style, body = [_LOOKS.strip()], []
    for number, text in enumerate(typed):
        top = _TOP + _HEIGHT * number
        share = _TYPED_SECONDS / len(typed)
        begin, end = (100 * share * at / total for at in (number, number + 1))
        style.append(
            f"@keyframes k{number}{{0%,{begin:.2f}%{{transform:none;animation-timing-function:steps({len(text)})}}"
            f"{end:.2f}%,100%{{transform:translateX({len(text) * _WIDTH:.1f}px)}}}}"
            f"#k{number}{{animation:k{number} {total:.2f}s infinite}}"
        )
        cover = f'<rect id="k{number}" class="b c" x="{_LEFT}" y="{top - 15}" width="{width:.0f}" height="{_HEIGHT}"/>'
        body.append(_text([Cell(letter, ("bold",)) for letter in text], top) + cover)
    for number, row in enumerate(rows):
        at = 100 * (moves + _LINE_SECONDS * number) / total
        style.append(
            f"@keyframes l{number}{{0%,{at:.2f}%{{opacity:0}}{at + 0.01:.2f}%,100%{{opacity:1}}}}"
            f"#l{number}{{animation:l{number} {total:.2f}s infinite}}"
        )
        body.append(f'<g id="l{number}">{_text(row, _TOP + _HEIGHT * (len(typed) + number))}</g>')
    if not moving:
        style[1:] = [".c{display:none}"]
    said = "\n".join("".join(cell.text for cell in row).rstrip() for row in rows)
    lines = "\n".join(body)
    looks = "\n".join(style)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">
<title>trilane run on a terminal</title>
<desc>{escape(f'$ trilane run "{request}"')}
{escape(said)}</desc>
<style>
{looks}
</style>
<clipPath id="frame"><rect width="{width:.0f}" height="{height}" rx="8"/></clipPath>
<g clip-path="url(#frame)">
<rect class="b" width="{width:.0f}" height="{height}"/>
<g fill="#3b4656"><circle cx="20" cy="16" r="5"/><circle cx="38" cy="16" r="5"/><circle cx="56" cy="16" r="5"/></g>
{lines}
</g>
</svg>
"""


def main() -> int:
    """Write the pictures or, with `--check`, compare them."""
    rows = screen(record(REQUEST))
    made = {path: picture(REQUEST, rows, moving=moving) for path, moving in PICTURES.items()}
    if "--check" not in sys.argv:
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        return 0
    if all(path.exists() and path.read_text(encoding="utf-8") == text for path, text in made.items()):
        return 0
    print("docs/images/run.svg is not what the command shows; run: uv run python docs/_terminal.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
