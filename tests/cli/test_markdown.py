"""Markdown that grows: what is given away is final, nothing is lost, cost is linear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilane.cli.markdown import GrowingMarkdown, crop

TEXT = """# Title

First paragraph,
two lines.

- one
- two

  still two

```python
# not a heading

x = 1
```

| a | b |
|---|---|
| 1 | 2 |

Last.
"""


def _grow(text: str, size: int) -> list[str]:
    growing = GrowingMarkdown()
    blocks = [growing.add(text[start : start + size]) for start in range(0, len(text), size)]
    return [block for block in [*blocks, growing.finish()] if block]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_blocks_are_whole_and_nothing_is_lost(size: int) -> None:
    blocks = _grow(TEXT, size)
    assert "".join("".join(blocks).split()) == "".join(TEXT.split())
    assert all(block.count("```") % 2 == 0 for block in blocks), blocks
    fence = next(block for block in blocks if "```" in block)
    assert "# not a heading\n\nx = 1" in fence


def test_a_finished_block_is_given_away_while_the_next_grows() -> None:
    growing = GrowingMarkdown()
    assert growing.add("First.\n\n") == ""
    assert growing.add("Second\n") == "First."
    assert growing.tail.strip() == "Second"
    assert growing.finish() == "Second"
    assert growing.tail == ""


def test_one_huge_block_is_not_parsed_again_for_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    real = GrowingMarkdown._last_block

    def counting(self: GrowingMarkdown, text: str) -> int:
        nonlocal looked_at
        looked_at += len(text)
        return real(self, text)

    monkeypatch.setattr(GrowingMarkdown, "_last_block", counting)
    line = "x = 1  # a line of code\n"
    growing = GrowingMarkdown()
    growing.add("```\n")
    for _ in range(2000):
        growing.add(line)
    assert looked_at < 12 * 2000 * len(line)


@given(st.lists(st.text(alphabet="a#->`~|1. \n", max_size=12), max_size=30))
def test_any_text_comes_out_as_it_went_in(pieces: list[str]) -> None:
    growing = GrowingMarkdown()
    got = "".join([*(growing.add(piece) for piece in pieces), growing.finish()])
    assert got.replace("\n", "") == "".join(pieces).replace("\n", "")


def test_crop_keeps_the_end_and_the_kind() -> None:
    code = "```python\n" + "".join(f"line {number}\n" for number in range(100))
    cropped = crop(code, 10)
    assert cropped.startswith("```python\n")
    assert cropped.rstrip().endswith("line 99")
    assert cropped.count("\n") <= 11
    assert crop("a\nb", 10) == "a\nb"
    assert crop("\n".join("abcdef"), 2) == "e\nf"
