"""The plugin in an agent: tools reach the model with their descriptions, and their results and errors come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

import trilane_files.plugin
from trilane import Agent, ConfigError, ToolCall, ToolMessage
from trilane.testing import ScriptedModel, call
from trilane_files import files
from trilane_files.tools import tools_below

TOOLS = ["list_files", "read_file", "search_text", "count_words", "file_info"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("one two three\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("SECRET", encoding="utf-8")
    return folder


def _calls(*calls: tuple[str, dict[str, JsonValue]]) -> list[ToolCall]:
    return [call(name, **arguments) for name, arguments in calls]


def _texts(model: ScriptedModel) -> list[tuple[str, str]]:
    """Outcome and text of the results in the last request."""
    last = model.requests[-1].messages[-1]
    assert isinstance(last, ToolMessage)
    return [(result.outcome, str(result.content)) for result in last.results]


@pytest.mark.anyio
async def test_every_tool_works_through_an_agent(docs: Path) -> None:
    model = ScriptedModel(
        _calls(
            ("list_files", {"pattern": "*.md"}),
            ("read_file", {"path": "a.md"}),
            ("search_text", {"query": "t.o", "regex": True}),
            ("count_words", {"path": "a.md"}),
            ("file_info", {"path": "a.md"}),
        ),
        "done",
    )
    result = await Agent(model, plugins=[files(docs)]).run("Look around.")
    assert result.output == "done"
    texts = _texts(model)
    assert texts[:4] == [
        ("ok", "a.md"),
        ("ok", "one two three\n"),
        ("ok", "a.md:1: one two three"),
        ("ok", "3"),
    ]
    assert texts[4][1].startswith("a.md: file, 14 bytes, UTF-8 text, 1 lines (LF), 3 words")
    model.assert_finished()


def test_the_tools_only_read_and_are_made_once_for_a_folder(docs: Path) -> None:
    tools = tools_below(str(docs))
    assert [tool.name for tool in tools] == TOOLS
    assert {tool.effect for tool in tools} == {"read"}
    assert tools_below(str(docs)) is tools
    assert tools_below(str(docs.parent)) is not tools


@pytest.mark.anyio
async def test_the_model_reads_why_a_call_failed(docs: Path) -> None:
    model = ScriptedModel(
        _calls(
            ("read_file", {"path": "../secret.txt"}),
            ("read_file", {"path": "b.md"}),
            ("read_file", {"path": "a.md", "encoding": "klingon"}),
        ),
        "done",
    )
    await Agent(model, plugins=[files(docs)]).run("Look around.")
    outcomes, texts = zip(*_texts(model), strict=True)
    assert set(outcomes) == {"error"}
    assert texts[0].startswith("'../secret.txt' is outside the folder these tools may read.")
    assert texts[1] == "There is no 'b.md'. Did you mean 'a.md'? list_files() shows what is there."
    assert "latin-1" in texts[2]
    assert "SECRET" not in "".join(texts)


@pytest.mark.anyio
async def test_parameters_are_described_to_the_model(docs: Path) -> None:
    model = ScriptedModel("done")
    await Agent(model, plugins=[files(docs)]).run("Look around.")
    assert [tool.name for tool in model.requests[0].tools] == TOOLS
    for tool in model.requests[0].tools:
        assert len(tool.description) > 20
        properties = tool.parameters["properties"]
        assert isinstance(properties, dict)
        assert "self" not in properties
        for name, schema in properties.items():
            assert isinstance(schema, dict)
            assert schema.get("description"), f"{tool.name}.{name}"


@pytest.mark.anyio
async def test_the_module_is_a_plugin_for_the_current_directory(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRILANE_FILES_ROOT", raising=False)
    agent_model = ScriptedModel(_calls(("list_files", {})), "done", _calls(("list_files", {})), "done")
    agent = Agent(agent_model, plugins=[trilane_files.plugin])
    monkeypatch.chdir(docs)
    await agent.run("Look around.")
    assert _texts(agent_model) == [("ok", "a.md")]
    monkeypatch.setenv("TRILANE_FILES_ROOT", str(docs.parent))
    await agent.run("Look around.")
    assert _texts(agent_model) == [("ok", "docs/a.md\nsecret.txt")]


@pytest.mark.anyio
async def test_a_relative_root_counts_from_where_it_was_given(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs.parent)
    model = ScriptedModel(_calls(("list_files", {})), "done")
    agent = Agent(model, plugins=[files("docs")])
    monkeypatch.chdir(docs)
    await agent.run("Look around.")
    assert _texts(model) == [("ok", "a.md")]


@pytest.mark.anyio
async def test_a_missing_root_fails_the_run(docs: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        await Agent(ScriptedModel("done"), plugins=[files(docs / "nowhere")]).run("Look around.")


@pytest.mark.anyio
async def test_what_is_cut_is_not_cut_again(docs: Path) -> None:
    (docs / "long.txt").write_text("x" * 40_000, encoding="utf-8")
    (docs / "lines.txt").write_text("needle \u3042\u3044\u3046\n" * 5000, encoding="utf-8")
    model = ScriptedModel(
        _calls(("read_file", {"path": "long.txt"}), ("search_text", {"query": "needle", "max_results": 500})), "done"
    )
    await Agent(model, plugins=[files(docs)]).run("Look around.")
    (_, text), (_, found) = _texts(model)
    assert text.startswith("x" * 16_000)
    assert text.endswith("continue with offset=1, column=16001]")
    assert "\n[matching lines 1-500 of 5,000; continue with offset=500]" in found
