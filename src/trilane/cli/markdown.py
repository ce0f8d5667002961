"""Markdown that is still being written: which part is final and can stay on the screen, which may still change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["GrowingMarkdown", "crop"]


class GrowingMarkdown:
    """Collects text and gives away its finished top-level blocks.

    Only the last top-level block of a Markdown text can change when text is added; everything before it is final. The
    text is looked at again only when it has grown by an eighth, so that one huge block costs time in proportion to its
    length, not to its square.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._look_at = 0
        self._parser: MarkdownIt | None = None

    @property
    def tail(self) -> str:
        """The text that has not been given away. Changes nothing: another thread may ask."""
        return "".join(self._parts)

    def add(self, text: str) -> str:
        """Add text; returns the blocks that have become final, as one text, often empty."""
        self._parts.append(text)
        self._length += len(text)
        if "\n" not in text or self._length < self._look_at:
            return ""
        tail = self.tail
        cut = self._last_block(tail)
        self._keep(tail[cut:])
        return tail[:cut].strip("\n")

    def finish(self) -> str:
        """Give away the rest."""
        tail = self.tail
        self._keep("")
        return tail.strip("\n")

    def _keep(self, text: str) -> None:
        self._parts = [text] if text else []
        self._length = len(text)
        self._look_at = self._length + self._length // 8

    def _last_block(self, text: str) -> int:
        """Offset at which the last top-level block begins."""
        if self._parser is None:
            from markdown_it import MarkdownIt

            self._parser = MarkdownIt().enable("table").disable("inline")
        starts = [
            token.map[0]
            for token in self._parser.parse(text)
            if token.level == 0 and token.map is not None and token.nesting >= 0
        ]
        if len(starts) < 2:
            return 0
        offset = 0
        for _ in range(starts[-1]):
            offset = text.index("\n", offset) + 1
        return offset


def crop(tail: str, lines: int) -> str:
    """The end of an unfinished block, about `lines` lines of it, still readable as the same kind of block."""
    if tail.count("\n") <= lines:
        return tail
    kept = "\n".join(tail.rsplit("\n", lines)[1:])
    first = tail.split("\n", 1)[0]
    fence = first.lstrip()[:3]
    return f"{first}\n{kept}" if fence in ("```", "~~~") else kept
