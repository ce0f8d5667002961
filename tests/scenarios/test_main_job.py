"""The main job of the command line: the planner `offline` with the tools of `files` on a real folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from trilane import Agent
from trilane_files import files

pytestmark = pytest.mark.anyio

FIRST = "How many words are in README.md, and which Markdown files are there?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Lanes\n\nThere are three lanes here.\n")
    (tmp_path / "docs" / "guide.md").write_text("one two three\n")
    (tmp_path / "LICENSE").write_text("as is\n")
    return tmp_path


def _agent(folder: Path) -> Agent:
    return Agent("offline", plugins=[files(folder)])


async def test_main_job(folder: Path) -> None:
    result = await _agent(folder).run(FIRST)
    assert result.output == "README.md has 7 words.\n\n2 files matching *.md:\n- README.md\n- docs/guide.md"
    assert result.turns == 2
    calls = [call.name for message in result.messages if message.kind == "assistant" for call in message.calls]
    assert calls == ["count_words", "list_files"]


async def test_follow_up_in_a_session(folder: Path) -> None:
    agent = _agent(folder)
    await agent.run(FIRST, session="s")
    assert (await agent.run("and in LICENSE?", session="s")).output == "LICENSE has 2 words."


async def test_two_steps(folder: Path) -> None:
    result = await _agent(folder).run("How many words are in each Markdown file?")
    assert result.output == "- README.md has 7 words.\n- docs/guide.md has 3 words.\nTogether: 10 words."
    assert result.turns == 3


async def test_search_and_missing_file(folder: Path) -> None:
    agent = _agent(folder)
    found = (await agent.run("what does README.md say about lanes?")).output
    assert found.count("README.md:") >= 2
    missing = (await agent.run("count words in nope.md")).output
    assert missing.startswith('count_words(path="nope.md") failed: ')
