"""The model in a conversation: calls, answers, streaming, sessions, steering."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trilane.messages import AssistantMessage, TextPart, ToolMessage, ToolResult, UserMessage
from trilane.models import Model, ModelRequest
from trilane_offline.model import OfflineModel

pytestmark = pytest.mark.anyio


async def test_main_job_is_two_calls_in_one_response_and_a_true_answer(talk: Any) -> None:
    text = await talk.say("How many words are in README.md, and which Markdown files are there?")
    assert talk.calls == [("count_words", {"path": "README.md"}), ("list_files", {"pattern": "*.md"})]
    assert [response.stop_reason for response in talk.responses] == ["tool_calls", "end"]
    assert text == "README.md has 412 words.\n\n2 files matching *.md:\n- README.md\n- docs/guide.md"


async def test_answer_is_streamed_and_nothing_else_is_said(talk: Any) -> None:
    text = await talk.say("How many words are in README.md, and which Markdown files are there?")
    assert len(talk.deltas) > 3
    assert "".join([delta.text for delta in talk.deltas]) == text
    assert {delta.kind for delta in talk.deltas} == {"text"}
    assert talk.responses[-1].parts is None
    assert talk.responses[-1].model == "offline:planner"
    assert talk.responses[-1].usage.output_tokens == 0


async def test_name_and_protocol() -> None:
    model = OfflineModel()
    assert isinstance(model, Model)
    assert model.name == "offline:planner"


async def test_call_ids_differ_within_a_run(talk: Any) -> None:
    await talk.say("List the Markdown files and count the words in each")
    ids = [call.id for message in talk.history if message.kind == "assistant" for call in message.calls]
    assert len(ids) == len(set(ids)) == 3


async def test_second_step_comes_from_the_first_result(talk: Any) -> None:
    text = await talk.say("how many words are in each Markdown file?")
    assert talk.calls == [
        ("list_files", {"pattern": "*.md"}),
        ("count_words", {"path": "README.md"}),
        ("count_words", {"path": "docs/guide.md"}),
    ]
    assert text == "- README.md has 412 words.\n- docs/guide.md has 1500 words.\nTogether: 1912 words."


async def test_extreme_is_picked_from_the_results(talk: Any) -> None:
    text = await talk.say("which Markdown file has the most words?")
    assert text.startswith("The most: docs/guide.md, with 1500 words.\n")


async def test_no_second_step_without_items(talk: Any) -> None:
    text = await talk.say("how many words are in each Ruby file?")
    assert talk.calls == [("list_files", {"pattern": "*.rb"})]
    assert text == "No file in '.' matches '*.rb'."


async def test_a_list_too_long_is_worked_off_in_part_and_said_so(talk: Any) -> None:
    talk.handlers = {**talk.handlers, "list_files": lambda **_: "\n".join([f"{n}.md" for n in range(50)])}
    talk.handlers["count_words"] = lambda path: 1
    text = await talk.say("how many words are in each Markdown file?")
    assert len(talk.calls) == 1 + 32
    assert text.endswith("Together: 32 words.\nThe list has 18 more; I worked through the first 32.")


async def test_tool_errors_are_reported_beside_the_rest(talk: Any) -> None:
    text = await talk.say("count words in nope.txt and LICENSE")
    assert text == "count_words(path=\"nope.txt\") failed: There is no 'nope.txt'.\n\nLICENSE has 170 words."


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("denied", "was denied: no"),
        ("timed_out", "ran out of time: no"),
        ("interrupted", "was interrupted: no"),
        ("not_started", "was not started: no"),
        ("still_running", "is still running: no"),
    ],
)
async def test_other_ends_are_told_apart(talk: Any, outcome: Any, words: str) -> None:
    talk.handlers = {"add": lambda a, b: ToolResult(call_id="", content="no", outcome=outcome)}
    assert await talk.say("add 2 and 3") == f"add(a=2, b=3) {words}"


async def test_follow_up_in_the_same_session(talk: Any) -> None:
    await talk.say("How many words are in README.md, and which Markdown files are there?")
    assert await talk.say("and in LICENSE?") == "LICENSE has 170 words."


async def test_lines_and_searches_are_shown_as_returned(talk: Any) -> None:
    assert await talk.say("show the first 2 lines of a.txt") == "a.txt (limit=2):\n\none\ntwo"
    assert await talk.say("what does README.md say about lanes?") == "README.md:7: three lanes"
    assert await talk.say("show the last 2 lines of a.txt") == (
        "The last 2 of the 4 lines that read_file returned for a.txt:\n\nthree\nfour"
    )


async def test_fields_of_an_object_are_picked_by_the_question(talk: Any) -> None:
    text = await talk.say("what is the weather temperature in Paris?")
    assert text == "Paris:\n- temperature: 21.5"


async def test_nothing_returned_is_said(talk: Any) -> None:
    talk.handlers = {"delete_file": lambda path: ""}
    assert await talk.say("delete x.txt") == 'delete_file(path="x.txt") ran and returned nothing.'


async def test_what_it_cannot_do_it_says_and_names_the_choices(talk: Any) -> None:
    text = await talk.say("Why is the sky blue?")
    assert talk.calls == []
    assert talk.responses[-1].stop_reason == "end"
    assert text.startswith("I am not an AI.")
    assert "- count_words: Count the words of a text file" in text
    assert "- openai: `--model openai:NAME` (installed)" in text
    assert "- anthropic: install `trilane-anthropic`, then `--model anthropic:NAME`" in text
    assert "- local: install `trilane-local`, then `--model local:NAME`" in text


async def test_without_tools_it_says_so(talk: Any) -> None:
    talk.tools = ()
    assert "There are no tools at hand" in await talk.say("How many words are in README.md?")


async def test_part_of_a_request_is_done_and_the_rest_named(talk: Any) -> None:
    text = await talk.say("count words in LICENSE and bake a cake")
    assert text.startswith("LICENSE has 170 words.\n\nNot done: “bake a cake”. Reason: no tool at hand fits.")
    assert "I am not an AI" in text


async def test_steering_replaces_the_request(talk: Any) -> None:
    talk.history.append(UserMessage(id="1", parts=(TextPart(text="count words in README.md"),)))
    message = await talk.turn()
    result = ToolResult(call_id=message.calls[0].id, content="superseded", outcome="superseded")
    talk.history.append(ToolMessage(id="2", results=(result,)))
    assert await talk.say("no, how big is LICENSE?", origin="steering") == "LICENSE: file, 1,079 bytes"


async def test_steering_with_and_adds_to_the_request(talk: Any) -> None:
    talk.history.append(UserMessage(id="1", parts=(TextPart(text="count words in README.md"),)))
    message = await talk.turn()
    talk.history.append(ToolMessage(id="2", results=(talk.answer(message.calls[0]),)))
    text = await talk.say("and in LICENSE?", origin="steering")
    assert text == "LICENSE has 170 words.\n\nREADME.md has 412 words."


async def test_results_of_calls_that_a_plugin_changed_are_still_told(talk: Any) -> None:
    talk.history.append(UserMessage(id="1", parts=(TextPart(text="count words in README.md"),)))
    message = await talk.turn()
    part = message.parts[0]
    changed = part.replace(call=part.call.replace(arguments={"path": "LICENSE"}))
    talk.history[-1] = AssistantMessage(id="2", parts=(changed,), stop_reason="tool_calls")
    talk.history.append(ToolMessage(id="3", results=(talk.answer(changed.call),)))
    assert (await talk.turn()).text == "LICENSE has 170 words."


async def test_withheld_text_wins_over_the_data_behind_it(talk: Any) -> None:
    talk.handlers = {"add": lambda a, b: ToolResult(call_id="", content="withheld", data=4711)}
    assert await talk.say("add 2 and 3") == "add(a=2, b=3): withheld"


async def test_feedback_is_refused_for_a_planner_cannot_do_better(talk: Any) -> None:
    await talk.say("count words in README.md")
    text = await talk.say("Answer in French.", origin="feedback")
    assert talk.responses[-1].stop_reason == "refusal"
    assert text.startswith("I was told that my answer will not do: “Answer in French.”.")


async def test_same_request_same_answer(talk: Any, file_tools: Any) -> None:
    request = ModelRequest(
        messages=(UserMessage(id="1", parts=(TextPart(text="list *.md and read a.md"),)),), tools=file_tools
    )

    async def emit(delta: object) -> None:
        raise AssertionError("a response with calls says nothing")

    first, second = await OfflineModel().call(request, emit), await OfflineModel().call(request, emit)
    assert first == second


async def test_a_long_text_comes_in_a_bounded_number_of_pieces(talk: Any) -> None:
    talk.handlers = {**talk.handlers, "read_file": lambda path: "word " * 20_000 + "\nend"}
    text = await talk.say("read a.txt")
    assert len(talk.deltas) <= 202
    assert text.endswith("\nend")
    assert all(re.search(r"\s$", delta.text) for delta in talk.deltas[:-1])
