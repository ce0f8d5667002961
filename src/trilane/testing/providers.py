"""What every provider adapter must do, as tests: one suite, run by each adapter against the wire server.

```python
@pytest.mark.anyio
class TestConformance(ProviderConformance):
    format = "openai-chat"

    def make(self, server, **settings):
        return OpenAIModel("wire-model", base_url=server.openai_url, api_key=self.key, **settings)
```

Because the wire server renders one script in each format, the suite fixes that adapters agree: the same meaning gives
the same deltas. Messages of one adapter that another one continues with, and the requests themselves, are in
`conversations.py` and `wire/requests.py`. Nothing here imports pytest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal

from trilane.config import ModelSettings
from trilane.errors import ModelError
from trilane.messages import AssistantMessage, TextPart, Usage, UserMessage
from trilane.models import Model, ModelRequest, ModelResponse

from .calls import Consumer, Emitted, ask, close_model, error_of, meaning
from .wire import (
    STALL,
    Call,
    Cut,
    Empty,
    Fail,
    Hold,
    Ping,
    Raw,
    Refuse,
    Reply,
    Think,
    Unknown,
    WireServer,
    call,
    interleaved,
)

__all__ = ["CLOSE_SECONDS", "ProviderConformance"]

CLOSE_SECONDS = 0.1
"""How soon the server must see the connection close after a stop."""
_EVENTS = [
    "run_started",
    "user_message_added",
    "turn_started",
    "model_started",
    "message_started",
    "reasoning_started",
    "reasoning_delta",
    "reasoning_completed",
    "text_started",
    "text_delta",
    "text_completed",
    "tool_call_delta",
    "tool_call_delta",
    "message_completed",
    "tool_started",
    "tool_completed",
    "turn_completed",
    "turn_started",
    "model_started",
    "message_started",
    "text_started",
    "text_delta",
    "text_completed",
    "message_completed",
    "turn_completed",
    "run_completed",
]


class _Stopped(Exception):
    """What a consumer raises that wants no more."""


class ProviderConformance:
    """Subclass it in a test module, mark the subclass for anyio, and say how the adapter's model is made.

    Attributes:
        format: The wire format the adapter speaks.
        key: The API key to give to the model; it must appear nowhere.
    """

    format: ClassVar[Literal["openai-chat", "anthropic"]]
    key: ClassVar[str] = "sk-conformance-0123456789abcdef"

    def make(self, server: WireServer, **settings: Any) -> Model:
        """A model that asks `server`.

        Args:
            server: It listens already.
            settings: Any of `connect_seconds`, `first_byte_seconds`, `idle_seconds`, `total_seconds`, `max_retries`,
                and `max_retry_after_seconds`; the adapter's defaults for the others.
        """
        raise NotImplementedError(f"{type(self).__name__}.make has to return a model that asks `server`")

    async def _run(
        self, *script: Any, consumer: Consumer | None = None, request: ModelRequest | None = None, **settings: Any
    ) -> tuple[Emitted, ModelResponse]:
        """One call against a script that it must use up."""
        taken = consumer or Consumer()
        with WireServer(*script) as server:
            taken.server = server
            model = self.make(server, **settings)
            try:
                response = await model.call(request or ask(), taken)
            finally:
                await close_model(model)
            server.assert_finished()
            assert server.busy == ()
        return meaning(taken.deltas), response

    async def _fails(self, *script: Any, consumer: Consumer | None = None, **settings: Any) -> tuple[ModelError, int]:
        """The error of one call, and how many requests it made."""
        taken = consumer or Consumer()
        with WireServer(*script) as server:
            taken.server = server
            model = self.make(server, **settings)
            error = await error_of(model, taken)
            assert not server.problems
            assert self.key not in f"{error} {error!r} {error.__cause__} {error.__context__}"
            assert "\n" not in str(error)
            assert error.model == model.name
            return error, len(server.exchanges)

    # ---- what is answered --------------------------------------------------------------------------------------------

    async def test_text(self) -> None:
        emitted, response = await self._run(Reply.of("Hello", ", ", "world"))
        assert emitted == [("text", 0, "Hello"), ("text", 0, ", "), ("text", 0, "world")]
        assert (response.stop_reason, response.model) == ("end", "wire-model")
        assert response.parts is None or [part.kind for part in response.parts] == ["text"]

    async def test_f036_text_and_then_a_call(self) -> None:
        emitted, response = await self._run(Reply.of("I will look. ", call("search", {"q": 1}, size=100)))
        assert emitted == [
            ("text", 0, "I will look. "),
            ("call", 1, "call_0", "search"),
            ("arguments", 1, '{"q": 1}'),
        ]
        assert response.stop_reason == "tool_calls"

    async def test_f031_interleaved_calls(self) -> None:
        calls = interleaved(call("search", {"q": "ships"}), call("read", {"f": "a.txt"}, number=1))
        emitted, response = await self._run(Reply.of(calls))
        assert emitted[:2] == [("call", 0, "call_0", "search"), ("call", 1, "call_1", "read")]
        assert [item[1] for item in emitted[2:]] == [0, 1, 0, 1, 0, 1]
        assert _arguments(emitted) == ['{"q": "ships"}', '{"f": "a.txt"}']
        assert response.stop_reason == "tool_calls"

    async def test_f032_calls_without_an_index(self) -> None:
        one = call("search", {"q": "a"}, indexed=False)
        other = call("read", {"f": "b"}, number=1, indexed=False)
        for pieces, expected in (([*one], ['{"q": "a"}']), ([*one, *other], ['{"q": "a"}', '{"f": "b"}'])):
            emitted, _ = await self._run(Reply.of(pieces))
            assert _arguments(emitted) == expected
        mixed = [*call("search", {"q": "a"}), *other]
        emitted, _ = await self._run(Reply.of(mixed))
        assert _arguments(emitted) == ['{"q": "a"}', '{"f": "b"}']

    async def test_reasoning_comes_before_the_text(self) -> None:
        emitted, response = await self._run(Reply.of(Think("Let me "), Think("see.", "c2lnbmVk"), "Done."))
        assert emitted == [("reasoning", 0, "Let me "), ("reasoning", 0, "see."), ("text", 1, "Done.")]
        assert response.stop_reason == "end"

    async def test_f043_only_reasoning_until_the_limit(self) -> None:
        emitted, response = await self._run(Reply.of(Think("Hm"), stop="length"))
        assert emitted == [("reasoning", 0, "Hm")]
        assert response.stop_reason == "length"

    async def test_f035_usage_counts_once_wherever_it_comes(self) -> None:
        usage = Usage(input_tokens=50, output_tokens=20, cache_read_tokens=30)
        for place in ("last", "finish", "both"):
            emitted, response = await self._run(Reply.of(Empty(), "Hi", Empty(), usage=usage, usage_at=place))
            assert emitted == [("text", 0, "Hi")]
            assert response.usage == usage

    async def test_no_usage_at_all(self) -> None:
        _, response = await self._run(Reply.of("Hi", usage=None))
        assert response.usage == Usage()

    async def test_f034_characters_may_be_cut_anywhere(self) -> None:
        text = "a🌍世é"
        reply = Reply.of(text)
        whole, _ = await self._run(reply)
        assert whole == [("text", 0, text)]
        begin, end = self._place_of(reply, text)
        splits: list[int | tuple[int, ...]] = [1, 2, 3, 7, *((at,) for at in range(begin - 2, end + 3))]
        for split in splits:
            emitted, _ = await self._run(Reply.of(text, split=split))
            assert emitted == whole, split

    def _place_of(self, reply: Reply, text: str) -> tuple[int, int]:
        from .wire import anthropic_messages, openai_chat

        make = anthropic_messages.frames if self.format == "anthropic" else openai_chat.frames
        body = b"".join(frame for frame in make(reply, 1, {}) if isinstance(frame, bytes))
        begin = body.index(text.encode())
        return begin, begin + len(text.encode())

    async def test_f033_line_separators_are_text(self) -> None:
        text = "one\u2028two\u2029three\u0085four"
        emitted, _ = await self._run(Reply.of(text, call("search", f'{{"q": "{text}"}}', size=100)))
        assert emitted[0] == ("text", 0, text)
        assert _arguments(emitted) == [f'{{"q": "{text}"}}']

    async def test_signs_of_life_mean_nothing(self) -> None:
        emitted, _ = await self._run(Reply.of(Ping(), "a", Ping(), Ping(), "b", Ping()))
        assert emitted == [("text", 0, "a"), ("text", 0, "b")]

    async def test_f038_what_is_not_known_is_skipped(self) -> None:
        emitted, response = await self._run(Reply.of(Unknown(), "a", Unknown(), "b"))
        assert emitted == [("text", 0, "a"), ("text", 0, "b")]
        assert response.stop_reason == "end"

    async def test_malformed_arguments_are_kept_as_they_are(self) -> None:
        for raw in ('{"city": "Par', "not json", "[1]", '{"a": 1}}'):
            emitted, response = await self._run(Reply.of(call("search", raw)))
            assert _arguments(emitted) == [raw]
            assert response.stop_reason == "tool_calls"

    async def test_a_call_that_the_limit_cuts_off(self) -> None:
        emitted, response = await self._run(Reply.of("Wait. ", call("search", '{"q": "shi'), stop="length"))
        assert emitted[0] == ("text", 0, "Wait. ")
        assert _arguments(emitted) == ['{"q": "shi']
        assert response.stop_reason == "length"

    async def test_f042_refusals_and_filters(self) -> None:
        emitted, response = await self._run(Reply.of(Refuse("I cannot "), Refuse("do that.")))
        assert emitted == [("text", 0, "I cannot "), ("text", 0, "do that.")]
        assert response.stop_reason == "refusal"
        _, response = await self._run(Reply.of("Half", stop="content_filter"))
        assert response.stop_reason in ("content_filter", "refusal")

    async def test_f040_an_empty_reply_is_no_error(self) -> None:
        emitted, response = await self._run(Reply.of(""))
        assert (emitted, response.stop_reason) == ([], "end")

    async def test_the_stop_reason_ends_an_answer_that_lacks_its_last_event(self) -> None:
        emitted, response = await self._run(Reply.of("All of it", ends="finished"))
        assert (emitted, response.stop_reason) == ([("text", 0, "All of it")], "end")

    async def test_long_pieces(self) -> None:
        text = "x" * 300_000
        emitted, _ = await self._run(Reply.of(text, split=65_536))
        assert emitted == [("text", 0, text)]

    # ---- what fails --------------------------------------------------------------------------------------------------

    async def test_f111_a_wrong_key_is_tried_once(self) -> None:
        error, requests = await self._fails(Reply.error(401, f"Incorrect API key provided: {self.key}"))
        assert (requests, error.retryable, error.request_id) == (1, False, "req_1")
        assert "401" in str(error)
        assert "key" in str(error)

    async def test_f111_a_refused_request_is_tried_once(self) -> None:
        error, requests = await self._fails(Reply.error(400, "max_tokens is too large"))
        assert (requests, error.retryable) == (1, False)
        assert "max_tokens is too large" in str(error)

    async def test_an_unknown_model_says_what_to_check(self) -> None:
        error, requests = await self._fails(Reply.error(404, "The model does not exist"))
        assert (requests, error.retryable) == (1, False)
        assert "name" in str(error)

    async def test_f111_always_too_many_requests(self) -> None:
        replies = [Reply.error(429, retry_after="0") for _ in range(4)]
        error, requests = await self._fails(*replies, max_retries=3)
        assert (requests, error.retryable, error.retry_after_seconds) == (4, True, 0.0)
        assert error.request_id == "req_4"

    async def test_f110_a_wait_above_the_limit_fails_at_once(self) -> None:
        error, requests = await self._fails(Reply.error(429, retry_after="90"), max_retry_after_seconds=60.0)
        assert (requests, error.retry_after_seconds) == (1, 90.0)
        assert "90 s" in str(error)

    async def test_trouble_of_the_server_is_tried_again(self) -> None:
        zero = {"retry-after": "0"}
        emitted, _ = await self._run(Reply.error(500, headers=zero), Reply.error(529, headers=zero), "Here.")
        assert emitted == [("text", 0, "Here.")]

    async def test_f037_nothing_is_tried_again_once_something_was_shown(self) -> None:
        for end in (Cut(), Cut(reset=True), Fail()):
            consumer = Consumer()
            error, requests = await self._fails(Reply.of("Hello wo", Hold("shown"), end), consumer=consumer)
            assert (requests, error.retryable, error.request_id) == (1, True, "req_1")
            assert meaning(consumer.deltas) == [("text", 0, "Hello wo")]

    async def test_f037_a_cut_before_anything_was_shown_is_tried_again(self) -> None:
        emitted, _ = await self._run(Reply.of(Ping(), Cut()), "Hello world", max_retries=1)
        assert emitted == [("text", 0, "Hello world")]

    async def test_a_stream_that_just_ends_is_no_answer(self) -> None:
        error, requests = await self._fails(Reply.of("Hello wo", ends="open"))
        assert (requests, error.retryable) == (1, True)

    async def test_an_error_in_the_stream(self) -> None:
        error, _ = await self._fails(Reply.of("a", Fail("The engine is on fire")))
        assert "The engine is on fire" in str(error)

    async def test_an_event_that_is_not_json(self) -> None:
        error, _ = await self._fails(Reply.of("a", Raw(b"event: message_delta\ndata: {oops\n\n")))
        assert "JSON" in str(error)

    async def test_half_a_character_at_the_end(self) -> None:
        error, _ = await self._fails(Reply.of("a", Raw('data: "é'.encode()[:-1]), ends="open"))
        assert error.retryable

    async def test_nobody_is_there(self) -> None:
        with WireServer() as server:
            model = self.make(server, max_retries=0)
        error = await error_of(model, Consumer())
        assert error.retryable
        assert "cannot be reached" in str(error)

    # ---- time limits -------------------------------------------------------------------------------------------------

    async def test_time_limits_have_their_own_texts(self) -> None:
        late = Reply.of("a", hold_headers="never")
        cases: tuple[tuple[Reply, dict[str, Any], str], ...] = (
            (late, {"first_byte_seconds": 0.05}, "first_byte_seconds"),
            (Reply.of(STALL), {"idle_seconds": 0.05, "first_byte_seconds": 5.0}, "idle_seconds"),
            (Reply.of("a", STALL), {"idle_seconds": 0.05}, "idle_seconds"),
            (Reply.of("a", STALL), {"total_seconds": 0.1}, "total_seconds"),
        )
        await self._run("The SDK is imported now.")
        texts = set()
        for reply, settings, name in cases:
            error, requests = await self._fails(reply, max_retries=0, **settings)
            assert requests <= 1, "it was tried again"  # none, where the machine was too slow to send one in time
            assert name in str(error)
            assert error.retryable
            texts.add(str(error).partition(name)[0].rpartition("/")[2])
        assert len(texts) >= 3

    async def test_a_slow_consumer_does_not_use_up_the_time(self) -> None:
        import anyio

        consumer = Consumer(1, lambda: anyio.sleep(0.3))
        emitted, _ = await self._run(
            Reply.of("a", "b"), consumer=consumer, idle_seconds=0.2, total_seconds=0.25, first_byte_seconds=5.0
        )
        assert emitted == [("text", 0, "a"), ("text", 0, "b")]

    # ---- stopping ----------------------------------------------------------------------------------------------------

    async def test_a_stop_from_the_consumer_closes_the_connection(self) -> None:
        for at in (1, 2, 3):
            await _soon(lambda at=at: self._stopped_by_consumer(at))  # type: ignore[misc]

    async def _stopped_by_consumer(self, at: int) -> float:
        with WireServer(Reply.of("a", "b", "c", STALL), "Next.") as server:
            model = self.make(server)

            def stop() -> None:
                server.note("stopped")
                raise _Stopped

            try:
                await model.call(ask(), Consumer(at, stop))
            except _Stopped:
                pass
            seconds = await _closing(server)
            await model.call(ask(), Consumer())
            await close_model(model)
        return seconds

    async def test_f006_a_cancel_closes_the_connection_at_every_point(self) -> None:
        points: dict[str, Reply] = {
            "headers": Reply.of("a", hold_headers="stall"),
            "first byte": Reply.of(STALL, "a"),
            "text": Reply.of("a", "b", STALL, "c"),
            "arguments": Reply.of(Call(0, "call_0", "search"), Call(0, arguments='{"q'), STALL),
            "the last event": Reply.of("a", STALL),
        }
        for reply in points.values():
            for _ in range(3):
                await _soon(lambda reply=reply: self._cancelled(reply))  # type: ignore[misc]

    async def _cancelled(self, reply: Reply) -> float:
        import anyio

        with WireServer(reply, "Next.") as server:
            model = self.make(server)
            ended = anyio.Event()

            async def work() -> None:
                try:
                    await model.call(ask(), Consumer())
                finally:
                    ended.set()

            async with anyio.create_task_group() as group:
                group.start_soon(work)
                await server.reached("stall")
                server.note("stopped")
                group.cancel_scope.cancel()
            assert ended.is_set()
            seconds = await _closing(server)
            response = await model.call(ask(), Consumer())
            assert response.stop_reason == "end"
            await close_model(model)
        return seconds

    async def test_f006_no_connection_is_left_in_use(self) -> None:
        import anyio

        with WireServer() as server:
            model = self.make(server)
            for _ in range(10):
                server.add(Reply.of("a", STALL))
                async with anyio.create_task_group() as group:
                    group.start_soon(model.call, ask(), Consumer())
                    number = len(server.exchanges) + 1
                    await server.received(number)
                    group.cancel_scope.cancel()
                await server.closed(number)
            assert server.busy == ()
            server.add("One.", "Two.")
            await model.call(ask(), Consumer())
            await model.call(ask(), Consumer())
            connections = {exchange.connection for exchange in server.exchanges[-2:]}
            assert len(connections) == 1, "a complete answer must leave its connection usable"
            await close_model(model)
            await server.closed(len(server.exchanges))
            assert server.open_connections == 0

    # ---- inside a run ------------------------------------------------------------------------------------------------

    async def test_the_events_of_a_run(self) -> None:
        from trilane import Agent, tool

        @tool
        def search(q: str) -> str:
            """Search."""
            return f"found {q}"

        script = (Reply.of(Think("Hm", "c2ln"), "Wait. ", call("search", {"q": "a"}, size=100)), "Done.")
        with WireServer(*script) as server:
            agent = Agent(self.make(server), tools=[search])
            async with agent.stream("Find") as run:
                events = [event async for event in run]
            await agent.aclose()
            server.assert_finished()
        shown = [event.type for event in events if event.type not in ("phase_changed", "custom_event")]
        assert shown == _EVENTS
        result = run.result
        assert [message.kind for message in result.new_messages] == ["user", "assistant", "tool", "assistant"]
        assert (result.output, result.usage.input_tokens, result.usage.output_tokens) == ("Done.", 22, 14)

    async def test_a_cut_answer_fails_the_run_and_the_session_goes_on(self) -> None:
        from trilane import Agent

        with WireServer(Reply.of("Half", Hold("shown"), Cut()), "Whole.") as server:
            agent = Agent(self.make(server))
            failure: Exception | None = None
            try:
                async with agent.stream("Hi", session="s") as run:
                    async for event in run:
                        if event.type == "text_delta":
                            server.release("shown")
            except ModelError as error:
                failure = error
            assert failure is not None
            result = await agent.run("Again", session="s")
            await agent.aclose()
            server.assert_finished()
        assert result.output == "Whole."
        assert "Half" in str(result.messages)

    # ---- what is asked -----------------------------------------------------------------------------------------------

    async def test_f112_equal_requests_are_equal_bytes(self) -> None:
        with WireServer("a", "b") as server:
            for _ in range(2):
                model = self.make(server)
                await model.call(ask(instructions="Be brief.", context=("Now.",)), Consumer())
                await close_model(model)
            assert server.exchanges[0].body == server.exchanges[1].body
            text = server.exchanges[0].body.decode()
            assert text.index("Be brief.") >= 0
            assert text.rindex("Now.") > text.rindex("Hello")

    async def test_f113_a_forced_choice_holds_for_the_first_turn(self) -> None:
        forced = ModelSettings(max_output_tokens=100, tool_choice="required")
        with WireServer("a", "b") as server:
            model = self.make(server)
            await model.call(ask(settings=forced), Consumer())
            await model.call(ask(settings=forced, turn=2), Consumer())
            await close_model(model)
            first, second = (exchange.json.get("tool_choice") for exchange in server.exchanges)
            assert first not in (None, "auto")
            assert second in (None, "auto")

    async def test_f041_nothing_empty_is_sent(self) -> None:
        messages = (
            *ask().messages,
            AssistantMessage(id="m2", parts=(TextPart(text=""),)),
            UserMessage(id="m3", parts=(TextPart(text=" "), TextPart(text="Go on."))),
        )
        emitted, _ = await self._run("ok", request=ask(messages=messages))
        assert emitted == [("text", 0, "ok")]

    async def test_f122_the_key_is_shown_nowhere(self) -> None:
        import logging

        records: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("trilane").addHandler(handler)
        try:
            with WireServer(Reply.error(500, f"key {self.key}", retry_after="0"), "ok") as server:
                model = self.make(server)
                response = await model.call(ask(), Consumer())
                sent = " ".join(server.exchanges[0].headers.values())
                await close_model(model)
        finally:
            logging.getLogger("trilane").removeHandler(handler)
        assert self.key in sent
        shown = f"{model} {model!r} {vars(model) if hasattr(model, '__dict__') else ''} {response!r} {records}"
        assert self.key not in shown


def _arguments(emitted: Emitted) -> list[str]:
    """The arguments of each call, in the order in which the calls were opened."""
    numbers = [item[1] for item in emitted if item[0] == "call"]
    return ["".join(str(item[2]) for item in emitted if item[:2] == ("arguments", number)) for number in numbers]


async def _closing(server: WireServer) -> float:
    """Wait for the close of the first request's connection; seconds since the stop. The order must be this."""
    closed = await server.closed(1)
    kinds = server.kinds()
    assert kinds.index("stopped") < kinds.index("closed")
    assert "sent" not in kinds[: kinds.index("closed")]
    return closed - next(entry.at for entry in server.log if entry.text == "stopped")


async def _soon(attempt: Callable[[], Awaitable[float]]) -> None:
    """The order is asserted at each attempt, the time in one of three: a busy machine may hold up any thread."""
    seconds = [await attempt()]
    while min(seconds) >= CLOSE_SECONDS and len(seconds) < 3:
        seconds.append(await attempt())
    assert min(seconds) < CLOSE_SECONDS, f"the server saw the close after {seconds} s"
