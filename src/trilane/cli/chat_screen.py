"""The lower end of a terminal: what may still change, and the line that is being edited, below everything that stays.

All drawing happens in the event loop's thread. Imports rich.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.style import Style
from rich.text import Text

from .chat_editor import LineEditor, layout

__all__ = ["Screen"]

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_PROMPT = Style(color="cyan", bold=True)
_DIM = Style(dim=True)
_PLAIN = Style()


class Screen(RenderHook):
    """Prints on `console` above a region that it draws again after everything that is printed.

    Attributes:
        console: The terminal.
        editor: The line that is being edited, None for none.
        prompt: What stands before it.
        placeholder: What stands in its place while it is empty.
        spaced: True if a blank line goes before it.
        region: Gives the lines above it that may still change, for so many rows; None for none.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.editor: LineEditor | None = None
        self.prompt = "> "
        self.placeholder = ""
        self.spaced = True
        self.region: Callable[[Console, ConsoleOptions, int], list[list[Segment]]] | None = None
        self._widths: list[int] = []
        self._cursor = (0, 0)
        self._is_open = False

    def open(self) -> None:
        """Begin to draw, at first or again."""
        self._is_open = True
        self.console.push_render_hook(self)

    def close(self) -> None:
        """Erase what may still change, and draw no more."""
        self._is_open = False
        self.draw()
        self.console.pop_render_hook()
        self.console.show_cursor(True)

    def draw(self) -> None:
        """Draw the region again."""
        self._write(Control())

    def print(self, text: str, style: str = "", *, cut: bool = False) -> None:
        """Print lines that stay; `cut` cuts those that are too long, instead of wrapping them."""
        shown = Text(text, style=style, no_wrap=cut, overflow="ellipsis" if cut else None)
        self._write(shown)

    def _write(self, what: RenderableType) -> None:
        # Once the terminal is gone a signal says so; until that is heard, and after the end, nothing is lost.
        with suppress(OSError, ValueError):
            self.console.print(what)

    def clear(self) -> None:
        """Clear the terminal."""
        self._widths = []
        self.console.clear()
        self.draw()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Put the erasing before, and the region behind what is printed. Called by rich."""
        return [_Codes(self._erasing()), *renderables, self]

    def _erasing(self) -> str:
        if not self._widths:
            return ""
        width = max(self.console.width, 1)
        row, column = self._cursor
        # The terminal may have been made narrower since: then what was one row is several.
        up = sum(max(-(-wide // width), 1) for wide in self._widths[:row]) + column // width
        return f"{_HIDE}\r{f'{chr(27)}[{up}A' if up else ''}\x1b[J"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines, cursor = self._lines(console, options) if self._is_open else ([], (0, 0))
        self._widths = [sum(part.cell_length for part in line) for line in lines]
        self._cursor = cursor
        if not lines:
            return
        yield from _Codes(_HIDE).__rich_console__(console, options)
        for index, line in enumerate(lines):
            if index:
                yield Segment.line()
            yield from line
        up = len(lines) - 1 - cursor[0]
        move = f"\r{f'{chr(27)}[{up}A' if up else ''}{f'{chr(27)}[{cursor[1]}C' if cursor[1] else ''}"
        yield from _Codes(move + (_SHOW if self.editor is not None else "")).__rich_console__(console, options)

    def _lines(self, console: Console, options: ConsoleOptions) -> tuple[list[list[Segment]], tuple[int, int]]:
        room = max(console.height - 1, 3)
        edited: list[list[Segment]] = []
        row = column = 0
        if self.editor is not None:
            edited, row, column = self._edited(self.editor, console.width, max(room - 3, 2))
        above = self.region(console, options, room - len(edited) - 2) if self.region is not None else []
        if edited and self.spaced:
            above = [*([] if above and not above[0] else [[]]), *above, *([[]] if above else [])]
        lines = [*above, *edited]
        if self.editor is None:
            return lines, (max(len(lines) - 1, 0), 0)
        return lines, (len(above) + row, column)

    def _edited(self, editor: LineEditor, width: int, room: int) -> tuple[list[list[Segment]], int, int]:
        rows, row, column = layout(editor.text, editor.cursor, prompt=self.prompt, width=width)
        first = max(0, min(row - room // 2, len(rows) - room))
        size = len(self.prompt)
        lines = [[Segment(text[:size], _PROMPT), Segment(text[size:], _PLAIN)] for text in rows[first : first + room]]
        below = editor.hint
        if not editor.text and self.placeholder:
            lines[0].append(Segment(_cut(self.placeholder, width - cell_len(self.prompt) - 1), _DIM))
        if below:
            lines.append([Segment(_cut("  " + below, width - 1), _DIM)])
        return lines, row - first, column


def _cut(text: str, width: int) -> str:
    shown = Text(text)
    shown.truncate(max(width, 0), overflow="ellipsis")
    return shown.plain


class _Codes:
    """Control codes, written as they are."""

    def __init__(self, codes: str) -> None:
        self._codes = codes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._codes:
            yield Segment(self._codes, None, [(ControlType.CARRIAGE_RETURN,)])
