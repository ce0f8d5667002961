"""The specification of every hook: when it is called, with what, and what its result and its errors mean.

How implementations are combined is data, in `catalogue.py`; how they are called is in `_dispatch.py`. Argument names
are public: adding one is free, renaming one is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .markers import hookspec

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.context import RunContext
    from trilane.decisions import AnswerDecision, CompactedHistory, Reject, RetryModel, ToolDecision
    from trilane.events import ExtensionEvent, Question
    from trilane.messages import AssistantMessage, Delta, ToolCall, ToolResult, UserMessage
    from trilane.models import ModelRequest, ModelResponse
    from trilane.plugins import ModelRegistry, SettingsRegistry, StoreRegistry
    from trilane.result import RunResult, Status
    from trilane.tools import Tool

__all__ = ["HookSpecs", "MaybeAwaitable"]

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""What a `def` returns, or what an `async def` does."""


class HookSpecs:
    """All hooks. A plugin implements those it wants, as functions of a module or methods of an object.

    `run` is the `RunContext`. Implementations may leave arguments out. *Plugin order* is: `tryfirst` plugins, the
    others, `trylast` plugins, each group last registered first; then `before` and `after` hold.
    *Reported* means: logged, kept in `result.hook_failures`, told to plugins and shown, and nothing is undone.
    """

    @hookspec
    def on_tool(self, run: RunContext[Any]) -> MaybeAwaitable[Iterable[Tool | Callable[..., object]] | None]:
        """A run collects the tools that it offers to the model.

        When: First in LOADING_CONTEXT, and first again when a stored run is resumed.
        Arguments:
            run: The run.
        May return: Tools, as `Tool` objects or functions; they are added to the agent's own. None or nothing adds
            none. What `@tool` decorates stays a function, to type checkers a `Callable[..., object]`.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_tool(run) -> list[Callable[..., object]]:
                return [read_file, search]
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_state(self, run: RunContext[Any]) -> MaybeAwaitable[None]:
        """A run has its tools and prepares what it knows.

        When: In LOADING_CONTEXT after every `on_tool`, and when a stored run is resumed. `run.history` may be edited
            only here and in `on_message`.
        Arguments:
            run: The run.
        May return: Nothing.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            async def on_state(run):
                run.stash["rules"] = await read_rules(run.session_id)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_message(self, run: RunContext[Any], message: UserMessage) -> MaybeAwaitable[UserMessage | None]:
        """A user message is about to enter the history.

        When: In LOADING_CONTEXT after every `on_state`, for what an earlier run was told and had not heard, then for
            the request; later for steering and follow-ups. Not for the request when a stored run is resumed.
        Arguments:
            run: The run.
            message: The message, as the plugin before left it.
        May return: A `UserMessage` to use instead; None keeps it.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_message(run, message):
                return message.replace(parts=tuple(redact(part) for part in message.parts))
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def before_run(self, run: RunContext[Any]) -> MaybeAwaitable[None]:
        """The context is loaded and the first turn is about to begin.

        When: Once, in READY, before the first turn. Not when a stored run is resumed.
        Arguments:
            run: The run.
        May return: Nothing.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            def before_run(run):
                run.stash["started"] = time.monotonic()
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def before_turn(self, run: RunContext[Any], turn: int) -> MaybeAwaitable[None]:
        """A turn is about to begin.

        When: In READY, before each model call is prepared.
        Arguments:
            run: The run.
            turn: Number of the turn, from 1.
        May return: Nothing. To end the run at this boundary, call `run.stop(reason)`.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            def before_turn(run, turn):
                if turn > 20:
                    run.stop("too many turns")
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_model_request(self, run: RunContext[Any], request: ModelRequest) -> MaybeAwaitable[ModelRequest | None]:
        """A model request is complete and about to be sent.

        When: In READY, once in each turn, before GENERATING.
        Arguments:
            run: The run.
            request: The request, as the plugin before left it.
        May return: A changed copy (`request.replace(...)`, `request.with_context(text)`); None keeps it. The history
            is never touched.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_model_request(run, request):
                return request.with_context(f"Today is {date.today()}.")
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def around_model(
        self, run: RunContext[Any], request: ModelRequest, call_next: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> Awaitable[ModelResponse]:
        """A model is called.

        When: In GENERATING, around each model call.
        Arguments:
            run: The run.
            request: The request.
            call_next: Calls the next plugin, at last the model. It may be called again: the message shown so far is
                closed.
        May return: The `ModelResponse`: what `call_next` returned, a changed one, or one of its own.
        If it raises: The model call has failed with that error, see `on_model_error`.
        Order: Plugin order; the first plugin is the outermost layer.
        Example:
            @hookimpl
            async def around_model(run, request, call_next):
                async with limiter:
                    return await call_next(request)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_delta(self, run: RunContext[Any], delta: Delta, final: bool) -> Delta | Sequence[Delta] | None:
        """A streamed increment is about to be shown.

        When: In GENERATING, for each delta, and once more at the end of each segment. Sync: it must return at once.
        Arguments:
            run: The run.
            delta: The delta, as the plugin before left it.
            final: True at the end of a segment, when whatever was held back must be given.
        May return: None to show it as it is, a delta to show instead, or a list of deltas, where an empty list holds
            it back.
        If it raises: The run fails. With `required=True` the segment is withheld as well.
        Order: Plugin order.
        Example:
            @hookimpl(required=True)
            def on_delta(run, delta, final):
                return delta.replace(text=mask(delta.text))
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_model_error(
        self, run: RunContext[Any], request: ModelRequest, error: Exception
    ) -> MaybeAwaitable[RetryModel | ModelResponse | None]:
        """A model call failed.

        When: In GENERATING, after each failed call; never for a cancel.
        Arguments:
            run: The run.
            request: The request that failed.
            error: What it failed with.
        May return: `RetryModel(after_seconds)` to call again, a `ModelResponse` to go on with, None to leave it to
            the next plugin. The first that is not None counts.
        If it raises: Reported; the run fails with the original error.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_model_error(run, request, error):
                if getattr(error, "retryable", False):
                    return RetryModel(after_seconds=2)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def after_model(self, run: RunContext[Any], response: ModelResponse) -> MaybeAwaitable[ModelResponse | None]:
        """A model has answered and its message is committed.

        When: In READY, after each model call.
        Arguments:
            run: The run.
            response: The response, as the plugin before left it.
        May return: A `ModelResponse` that the history keeps instead; None keeps it. What was shown stays shown, see
            `on_delta`.
        If it raises: Reported; the committed message stands. With `required=True` it is withheld and the run fails.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            def after_model(run, response):
                meter.add(response.usage)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def decide_tool(self, run: RunContext[Any], call: ToolCall) -> MaybeAwaitable[ToolDecision | None]:
        """A tool call waits for permission.

        When: In READY, for each call of a batch, before any of them starts; in RUNNING_TOOL again for an approved
            call.
        Arguments:
            run: The run.
            call: The call; `call.approval` has the reply if one was asked for.
        May return: `Allow` or None, `Deny(reason)`, `Rewrite(arguments)`, `UseResult(result)`, `Ask(prompt, schema)`.
            Every plugin is asked; a `Deny` ends it, a `Rewrite` asks everybody again, `Ask` beats `UseResult` beats
            `Allow`.
        If it raises: The call is denied.
        Order: Plugin order.
        Example:
            @hookimpl
            def decide_tool(run, call):
                if call.name == "delete":
                    return Ask(prompt=f"Delete {call.arguments}?")
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def before_tool(self, run: RunContext[Any], call: ToolCall) -> MaybeAwaitable[None]:
        """A tool is about to be invoked.

        When: In RUNNING_TOOL, for each call that was allowed, after its `ToolStarted` was seen.
        Arguments:
            run: The run.
            call: The call, with the arguments that were decided.
        May return: Nothing.
        If it raises: Reported; the tool is invoked nevertheless.
        Order: Plugin order.
        Example:
            @hookimpl
            def before_tool(run, call):
                log.info("calling %s", call.name)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def around_tool(
        self, run: RunContext[Any], call: ToolCall, call_next: Callable[[], Awaitable[ToolResult]]
    ) -> Awaitable[ToolResult]:
        """A tool is invoked.

        When: In RUNNING_TOOL, around each invocation.
        Arguments:
            run: The run.
            call: The call, with the arguments that were decided.
            call_next: Calls the next plugin, at last the tool. At most once.
        May return: The `ToolResult`: what `call_next` returned, a changed one, or one of its own.
        If it raises: Before `call_next` the call gets an error result; after it the committed result stands and the
            error is reported.
        Order: Plugin order; the first plugin is the outermost layer.
        Example:
            @hookimpl
            async def around_tool(run, call, call_next):
                with span(call.name):
                    return await call_next()
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def after_tool(self, run: RunContext[Any], call: ToolCall, result: ToolResult) -> MaybeAwaitable[ToolResult | None]:
        """A tool has returned and its result is committed.

        When: In RUNNING_TOOL, for each call that `before_tool` was called for, unless the run is cancelled before. If
            it was stopped after `before_tool` and before the tool began, `result.outcome` is `not_started`.
        Arguments:
            run: The run.
            call: The call.
            result: The result, as the plugin before left it.
        May return: A `ToolResult` that the model is told instead; None keeps it. Events and stores hold its `data` too;
            `replace(content=...)` with another content leaves none, unless `data=` is given.
        If it raises: Reported; the committed result stands. With `required=True` it is withheld and the run fails.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            def after_tool(run, call, result):
                if isinstance(result.content, str):  # else text and media
                    return result.replace(content=shorten(result.content))
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def after_turn(self, run: RunContext[Any], turn: int, message: AssistantMessage) -> MaybeAwaitable[None]:
        """A turn is over: the model has answered and its calls have results.

        When: In READY, at the end of each turn.
        Arguments:
            run: The run.
            turn: Number of the turn, from 1.
            message: What the model said in it.
        May return: Nothing.
        If it raises: Reported; the run goes on.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            def after_turn(run, turn, message):
                log.info("turn %d: %s", turn, message.stop_reason)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_answer(
        self, run: RunContext[Any], message: AssistantMessage, output: object
    ) -> MaybeAwaitable[AnswerDecision | None]:
        """A run has an answer and is about to complete.

        When: In READY, after the last turn.
        Arguments:
            run: The run.
            message: The message that holds the answer.
            output: The validated output; the text where no `output_type` was given.
        May return: None to accept, `Replace(output)` to give another output (everybody is asked again),
            `SendBack(feedback)` to return to the model, at most `Limits.answer_retries` times.
        If it raises: The run fails.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_answer(run, message, output):
                if not output:
                    return SendBack(feedback="The answer is empty.")
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def after_run(self, run: RunContext[Any], result: RunResult[Any]) -> MaybeAwaitable[None]:
        """A run has completed.

        When: Once, in COMPLETED, before `on_success`. Not for failed or cancelled runs.
        Arguments:
            run: The run.
            result: What the run returns.
        May return: Nothing.
        If it raises: Reported; the answer stands.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            def after_run(run, result):
                meter.close(run.run_id, result.usage)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_success(self, run: RunContext[Any], result: RunResult[Any]) -> MaybeAwaitable[None]:
        """A run has completed and every `after_run` was called.

        When: Once, in COMPLETED, after every `after_run`.
        Arguments:
            run: The run.
            result: What the run returns.
        May return: Nothing.
        If it raises: Reported; the answer stands.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            async def on_success(run, result):
                await outbox.send(result.text)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_error(self, run: RunContext[Any], error: BaseException) -> MaybeAwaitable[None]:
        """A run has failed.

        When: Once, in FAILED, when every tool call is answered.
        Arguments:
            run: The run.
            error: What the run failed with; the caller gets this object.
        May return: Nothing.
        If it raises: Reported; the original error is the one that is raised.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            def on_error(run, error):
                log.error("run %s failed: %s", run.run_id, error)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_cancel(self, run: RunContext[Any], reason: str) -> MaybeAwaitable[None]:
        """A run was cancelled, stopped or suspended.

        When: Once, in CANCELLED, after the `RunCancelledEvent` notification, within the grace time.
        Arguments:
            run: The run.
            reason: Why.
        May return: Nothing.
        If it raises: Reported; the run stays cancelled.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            def on_cancel(run, reason):
                log.info("run %s: %s", run.run_id, reason)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def close_run(self, run: RunContext[Any], status: Status) -> MaybeAwaitable[None]:
        """A run has ended, in whatever way, and what it held is released.

        When: Once for each run, last, in its terminal phase; shielded from cancels, within the grace time.
        Arguments:
            run: The run.
            status: How the run ended.
        May return: Nothing.
        If it raises: Reported; the other plugins are still called.
        Order: Reverse plugin order, so that plugins nest.
        Example:
            @hookimpl
            async def close_run(run, status):
                await run.stash["connection"].close()
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_event(self, run: RunContext[Any], notification: ExtensionEvent) -> MaybeAwaitable[None]:
        """A notification was published in the run.

        When: In any phase, for each notification, one after the other. `run.publish` is refused here.
        Arguments:
            run: The run.
            notification: One of Trilane's, such as `PhaseTransitionEvent`, or a plugin's own.
        May return: Nothing.
        If it raises: Reported; the other plugins are still called.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_event(run, notification):
                if isinstance(notification, QuestionOpenedEvent):
                    bell.ring()
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_reply(self, run: RunContext[Any], question: Question, payload: JsonValue) -> JsonValue | Reject:
        """A reply to an open question has come in from outside.

        When: While the question is open, in the thread that replies. Sync: it must return at once.
        Arguments:
            run: The run.
            question: The open question.
            payload: The reply as it was given, before it is validated.
        May return: A payload to use instead, `Reject(reason)` to refuse it, None to leave it to the next plugin. The
            first that is not None counts.
        If it raises: The receipt says `invalid` and the question stays open.
        Order: Plugin order.
        Example:
            @hookimpl
            def on_reply(run, question, payload):
                if question.kind == "approval" and run.metadata.get("role") != "admin":
                    return Reject(reason="only an admin may approve")
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def on_compact(self, run: RunContext[Any], requested: bool) -> MaybeAwaitable[CompactedHistory | None]:
        """The conversation may be made shorter for the model.

        When: In COMPACTING: before each model call, and when somebody asks for it.
        Arguments:
            run: The run. `run.call_model` has a model summarise, `run.progress` tells the caller how far that is.
            requested: True if somebody asked for it with `agent.compact`; otherwise only what is too long need be
                shortened.
        May return: A `CompactedHistory`, None to leave it to the next plugin. The first that is not None counts.
        If it raises: Reported; the history stays as it is and the run goes on.
        Order: Plugin order.
        Example:
            @hookimpl
            async def on_compact(run, requested):
                return await summarise(run.history) if requested or len(run.history) > 100 else None
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def register_models(self, registry: ModelRegistry) -> None:
        """A plugin names the model providers that it supplies.

        When: While the plugin is loaded, outside any run. Sync; import SDKs in the factory, not here.
        Arguments:
            registry: Call `registry.add(provider, factory)`.
        May return: Nothing.
        If it raises: The plugin is not loaded; nothing of it stays registered.
        Order: None: names must be unique.
        Example:
            @hookimpl
            def register_models(registry):
                registry.add("echo", EchoModel, models=["loud", "quiet"])
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def register_stores(self, registry: StoreRegistry) -> None:
        """A plugin names the session stores that it supplies.

        When: While the plugin is loaded, outside any run. Sync; open nothing here.
        Arguments:
            registry: Call `registry.add(name, factory)`.
        May return: Nothing.
        If it raises: The plugin is not loaded; nothing of it stays registered.
        Order: None: names must be unique.
        Example:
            @hookimpl
            def register_stores(registry):
                registry.add("sqlite", open_sqlite)
        versionadded: 0.1
        """
        raise NotImplementedError

    @hookspec
    def register_settings(self, registry: SettingsRegistry) -> None:
        """A plugin declares its settings.

        When: While the plugin is loaded, outside any run, before its other `register_` hooks. Sync.
        Arguments:
            registry: Call `registry.add(name, model)` with a pydantic model; keep it to read the settings later.
        May return: Nothing.
        If it raises: The plugin is not loaded; nothing of it stays registered.
        Order: None: names must be unique.
        Example:
            @hookimpl
            def register_settings(registry):
                registry.add("search", SearchSettings)
        versionadded: 0.1
        """
        raise NotImplementedError
