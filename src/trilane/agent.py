"""`Agent`: configuration, and the ways to run a request. What a run does is in `_run.py` and the modules below it."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, cast, overload

from typing_extensions import TypeForm, TypeVar, Unpack

from ._core import Core
from ._questions import QuestionDesk
from ._run import RunStream, Runtime
from ._setup import RunSetup, user_message
from .config import Limits, ModelSettings
from .context import RunContext, ToolContext
from .errors import ConfigError, RunSyncError, ToolDefinitionError
from .events import Event, Question, Receipt
from .messages import (
    Message,
    Request,
    TextPart,
    UserMessage,
    clean_text,
    new_id,
)
from .models import Model
from .output import Output
from .plugins import Installed, PluginManager
from .plugins.registries import resolve_model
from .result import RunResult
from .stores import InMemoryStore, SessionStore
from .tools import Tool, check_tools

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .channels import RuntimeQueues
    from .plugins import CompiledHooks
    from .replay import Aspect, Replay

__all__ = ["Agent", "Answerer", "RunOptions"]

D = TypeVar("D", default=None)
O = TypeVar("O", default=str)  # noqa: E741
T = TypeVar("T")

Answerer: TypeAlias = "Callable[[Question], Awaitable[JsonValue | Mapping[str, object] | Sequence[object]]]"
"""Answers questions in the process: an async function of the question that returns the reply, as JSON."""


class RunOptions(TypedDict, total=False):
    """Options of `run`, `run_sync`, `stream` and `resume`.

    Attributes:
        session: Session to work on; None makes a new one.
        history: Messages to start a new session from.
        model: Model for this run instead of the agent's.
        instructions: Instructions for this run instead of the agent's.
        tools: Further tools for this run.
        model_settings: Settings that override the agent's.
        limits: Limits for this run instead of the agent's.
        metadata: Whatever plugins should know; `run.metadata` has it.
        answer: Answers questions in the process: an async function of the question.
        queues: The run's three lanes, to record or feed them.
        trace_plugins: Keep in `result.ledger.changes` what plugins change, from what to what.
        replayable: Store with the session what `replay` compares beside its messages.
    """

    session: str | None
    history: Sequence[Message]
    model: str | Model
    instructions: str
    tools: Sequence[Tool | Callable[..., object]]
    model_settings: ModelSettings
    limits: Limits
    metadata: Mapping[str, JsonValue]
    answer: Answerer
    queues: RuntimeQueues
    replayable: bool
    trace_plugins: bool


_OPTIONS = frozenset(RunOptions.__annotations__) | {"deps", "output_type"}


class Agent(Generic[D, O]):
    """Configuration to run requests with. It holds no state of any run and may serve any number at once.

    Args:
        model: A model, or `PROVIDER:NAME` of an installed provider plugin.
        name: Name of the agent, for plugins and child runs.
        instructions: What the model is told first; a function of the run is called once per turn.
        tools: Functions or `Tool`s the model may call.
        plugins: Plugin instances, modules, names of installed plugins, or `installed()` for all of them.
        deps_type: Type of the `deps` every run is given; checked against the tools' `ToolContext[X]`.
        output_type: What a run answers with; `str` for the text.
        answer: Answers questions in the process: an async function of the question.
        store: Where sessions live; in this process's memory by default.
        limits: What one run may use.
        model_settings: Knobs of every model call.
        tool_concurrency: At most so many tools of a run at once.
        hook_timeout: Seconds one hook may take, where it does not say itself.
        grace_seconds: How long the end of a stopped or failed run may take.
        disabled_plugins: Names of plugins that are not to be loaded.
        strict_plugins: Raise for plugins that fail to load, instead of listing them as failed.
        trace_plugins: Keep in `result.ledger.changes` what plugins change; for a run, give it as an option.
        replayable: Store with each session what `replay` compares beside its messages; for a run, give it as an option.

    Raises:
        ConfigError: something of this cannot be used; the message says what and what to do.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        name: str = "agent",
        instructions: str | Callable[[RunContext[D]], str | Awaitable[str]] = "",
        tools: Sequence[Tool | Callable[..., object]] = (),
        plugins: Sequence[object] | Installed = (),
        deps_type: TypeForm[D] = cast("Any", None),
        output_type: TypeForm[O] = cast("Any", None),
        answer: Answerer | None = None,
        store: SessionStore | None = None,
        limits: Limits | None = None,
        model_settings: ModelSettings | None = None,
        tool_concurrency: int = 8,
        hook_timeout: float = 30.0,
        grace_seconds: float = 1.5,
        disabled_plugins: Sequence[str] = (),
        strict_plugins: bool = False,
        trace_plugins: bool = False,
        replayable: bool = False,
    ) -> None:
        if tool_concurrency < 1:
            raise ConfigError(f"tool_concurrency is {tool_concurrency}; at least 1 tool must be able to run")
        if hook_timeout <= 0 or grace_seconds < 0:
            raise ConfigError("hook_timeout must be more than 0 seconds, grace_seconds at least 0")
        self.name = name
        self.model = model
        self._instructions = instructions
        self._deps_type = deps_type
        self._tools = check_tools(tools)
        self._check_deps(self._tools)
        self._output = Output(output_type)
        self._answer = answer
        self.store: SessionStore = store if store is not None else InMemoryStore()
        self._limits = limits if limits is not None else _DEFAULT_LIMITS
        self._settings = model_settings if model_settings is not None else _DEFAULT_SETTINGS
        self._tool_concurrency = tool_concurrency
        self._hook_timeout = float(hook_timeout)
        self._grace_seconds = float(grace_seconds)
        self._trace_plugins = trace_plugins
        self._replayable = replayable
        self._streams: weakref.WeakValueDictionary[str, RunStream[Any]] = weakref.WeakValueDictionary()
        self.plugins = PluginManager(
            plugins, disabled=disabled_plugins, strict=strict_plugins, active=partial(_active_sessions, self._streams)
        )
        self._hooks = self.plugins.compile()
        self._breaker: dict[Any, int] = {}
        self._desk = QuestionDesk()
        self._models: dict[str, Model] = {}
        self._retired_models: list[Model] = []
        self._resolve(model)

    def _check_deps(self, tools: Mapping[str, Tool]) -> None:
        wanted = self._deps_type
        if not isinstance(wanted, type):
            return
        for tool in tools.values():
            if tool.deps_type is Any:  # a class, in newer versions of Python
                continue
            if isinstance(tool.deps_type, type) and not issubclass(wanted, tool.deps_type):
                raise ToolDefinitionError(
                    f"tool {tool.name!r} ({tool.origin}) takes ToolContext[{tool.deps_type.__name__}], but the agent's "
                    f"deps_type is {wanted.__name__}; make them agree"
                )

    def _resolve(self, model: str | Model) -> Model:
        if not isinstance(model, str):
            if not (callable(getattr(model, "call", None)) and isinstance(getattr(model, "name", None), str)):
                raise ConfigError(
                    f"model={model!r} is no model: give a string such as 'offline' or 'openai:NAME', or an object with "
                    "a `name` and an async `call(request, emit)`"
                )
            return model
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = resolve_model(model, self.plugins)
        return found

    def _adopt_plugins(self, hooks: CompiledHooks) -> None:
        """The plugins have changed since the last run: forget what belonged to those that are gone."""
        self._hooks = hooks
        kept = {implementation for name in hooks.__slots__ for implementation in getattr(hooks, name)}
        for implementation in [one for one in self._breaker if one not in kept]:
            del self._breaker[implementation]
        self._retired_models += self._models.values()
        self._models = {}

    # ---- running -----------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self: Agent[None, O], request: Request, *, output_type: None = ..., **options: Unpack[RunOptions]
    ) -> RunResult[O]: ...
    @overload
    async def run(
        self: Agent[None, Any], request: Request, *, output_type: TypeForm[T], **options: Unpack[RunOptions]
    ) -> RunResult[T]: ...
    @overload
    async def run(
        self, request: Request, *, deps: D, output_type: None = ..., **options: Unpack[RunOptions]
    ) -> RunResult[O]: ...
    @overload
    async def run(
        self, request: Request, *, deps: D, output_type: TypeForm[T], **options: Unpack[RunOptions]
    ) -> RunResult[T]: ...
    async def run(self, request: Request, **options: Any) -> RunResult[Any]:
        """Work a request to its end and return the result.

        Raises:
            ConfigError: the request or an option cannot be used; nothing was started.
            SessionBusyError: the session has an active run.
            RunError: the run was stopped or reached a limit; `.result` has what it had reached.
            Exception: what made the run fail, the original object.
        """
        async with self._make_stream(request, options) as stream:
            return await stream.wait()

    @overload
    def run_sync(
        self: Agent[None, O], request: Request, *, output_type: None = ..., **options: Unpack[RunOptions]
    ) -> RunResult[O]: ...
    @overload
    def run_sync(
        self: Agent[None, Any], request: Request, *, output_type: TypeForm[T], **options: Unpack[RunOptions]
    ) -> RunResult[T]: ...
    @overload
    def run_sync(
        self, request: Request, *, deps: D, output_type: None = ..., **options: Unpack[RunOptions]
    ) -> RunResult[O]: ...
    @overload
    def run_sync(
        self, request: Request, *, deps: D, output_type: TypeForm[T], **options: Unpack[RunOptions]
    ) -> RunResult[T]: ...
    def run_sync(self, request: Request, **options: Any) -> RunResult[Any]:
        """`run`, for programs without an event loop.

        Raises:
            RunSyncError: there is a running event loop; `await agent.run(...)` there.
            Exception: as `run`.
        """
        _refuse_running_loop("run_sync", "await agent.run(...)")
        from ._loop import run_loop

        return run_loop(self.run(request, **options))

    @overload
    def stream(
        self: Agent[None, O], request: Request, *, output_type: None = ..., **options: Unpack[RunOptions]
    ) -> RunStream[O]: ...
    @overload
    def stream(
        self: Agent[None, Any], request: Request, *, output_type: TypeForm[T], **options: Unpack[RunOptions]
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self, request: Request, *, deps: D, output_type: None = ..., **options: Unpack[RunOptions]
    ) -> RunStream[O]: ...
    @overload
    def stream(
        self, request: Request, *, deps: D, output_type: TypeForm[T], **options: Unpack[RunOptions]
    ) -> RunStream[T]: ...
    def stream(self, request: Request, **options: Any) -> RunStream[Any]:
        """Run a request and see every event: `async with agent.stream(...) as run: async for event in run: ...`.

        The run starts when the `async with` is entered, never runs ahead of the event you hold, and is stopped when it
        is left.

        Raises:
            ConfigError: the request or an option cannot be used; nothing was started.
        """
        return self._make_stream(request, options)

    def stream_sync(self, request: Request, **options: Any) -> AbstractContextManager[Iterator[Event]]:
        """`stream`, for programs without an event loop: `with agent.stream_sync(...) as events: for event in events`.

        The run lives in a thread of its own and is acknowledged all the same.

        Raises:
            RunSyncError: there is a running event loop; use `agent.stream(...)` there.
        """
        _refuse_running_loop("stream_sync", "async with agent.stream(...)")
        return self._stream_sync(request, options)

    @contextmanager
    def _stream_sync(self, request: Request, options: dict[str, Any]) -> Iterator[Iterator[Event]]:
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal() as portal:
            stream = self._make_stream(request, options)
            with portal.wrap_async_context_manager(stream):

                def events() -> Iterator[Event]:
                    while True:
                        try:
                            yield portal.call(stream.__anext__)
                        except StopAsyncIteration:
                            return

                yield events()

    def runtime(self, *, abandoned_seconds: float = 60) -> AbstractAsyncContextManager[Runtime]:
        """For servers: `async with agent.runtime() as rt:` owns the tasks, and `rt.stream(...)` needs no `async with`.

        Args:
            abandoned_seconds: A stream that is kept but not read for so long, or up to a quarter longer, is stopped,
                unless a question is open.
        """

        def make(request: Request, **options: Any) -> RunStream[Any]:
            return self._make_stream(request, options)

        return Runtime(make, abandoned_seconds)

    def resume(self, session: str, /, *, deps: D = cast("Any", None), **options: Unpack[RunOptions]) -> RunStream[O]:
        """Take a session up where it was left: by `suspend`, by a crash, or by a run that failed.

        What the store knows decides: a question that was open is asked again under its id; an answer that was cut off
        is generated again; calls with a stored result keep it; calls that had started run again only if their `effect`
        is `read` or `idempotent`, with the same key and a higher attempt, and otherwise are answered "interrupted,
        effect unknown" or by the tool's `reconcile`. `on_message` and `before_run` are not called. Use it like
        `stream`; `.wait()` returns the result.

        Raises:
            SessionError: on entering: nothing was said in the session yet, or its last run has completed.
        """
        setup = self._setup(_RESUMED, {**options, "session": session, "deps": deps})
        setup.mode = "resume"
        return RunStream(setup, self._register)

    async def compact(self, session: str, /, *, deps: D = cast("Any", None), **options: Unpack[RunOptions]) -> bool:
        """Let `on_compact` shorten what models see of a session now; True if it changed.

        The stored history stays whole, and `undo_compaction` takes it back. It is a run of its own: the session must
        not be busy. `stream_compaction` shows how far it is, and says why nothing changed.

        Raises:
            SessionBusyError: the session has an active run.
        """
        async with self.stream_compaction(session, deps=deps, **options) as stream:
            await stream.wait()
        return stream._core is not None and stream._core.compacted is not None

    def stream_compaction(
        self, session: str, /, *, deps: D = cast("Any", None), **options: Unpack[RunOptions]
    ) -> RunStream[str]:
        """`compact`, with its events. The output says what came of it; `CompactionCompleted.changed`, whether any."""
        setup = self._setup(_COMPACTION, {**options, "session": session, "deps": deps})
        setup.mode = "compact"
        return RunStream(setup, self._register)

    async def undo_compaction(self, session: str) -> bool:
        """Take the last compaction of a session back; False if there is none, see `stores.undo_compaction`.

        Raises:
            SessionBusyError: the session has an active run.
            SessionError: a tool call of the session has no result yet.
        """
        from .stores import undo_compaction

        return await undo_compaction(self.store, session)

    async def replay(
        self,
        session: str,
        /,
        *,
        run_id: str = "",
        ignore: Collection[Aspect] = (),
        deps: D = cast("Any", None),
        **options: Unpack[RunOptions],
    ) -> Replay:
        """Run the stored runs of a session again, offline, and report the first thing that is not as it was.

        The model answers what is stored and no tool runs: its stored result is taken. Everything else is today's: this
        agent's plugins, tools, instructions and options. The session itself is only read. Runs that were `replayable`
        are compared in everything; of others what follows from the history.

        Args:
            session: Its id.
            run_id: One run of it, or the beginning of its id; all of them without it.
            ignore: What is not to be compared.
            deps: What tools and plugins depend on.
            options: Options that the runs had, where they matter.

        Raises:
            SessionError: there is no such session or run.
        """
        from ._replaying import replay_session

        given: dict[str, Any] = {**options, "deps": deps}
        return await replay_session(self._setup, self.store, session, run_id=run_id, ignore=ignore, options=given)

    # ---- while runs are active ---------------------------------------------------------------------------------------

    def active(self, session: str) -> RunStream[Any] | None:
        """The stream of the session's active run; its `stop`, `steer`, `follow_up` and `reply` work in any thread."""
        stream = self._streams.get(session)
        if stream is None or stream._core is None or stream._core.finished:
            return None
        return stream

    def reply(self, session: str, question_id: str, payload: JsonValue) -> Receipt:
        """Answer a question. From any thread; returns what became of the reply, and accepts at most one."""
        return self._desk.reply(session, question_id, payload)

    def questions(self, session: str) -> tuple[Question, ...]:
        """The questions of a session that are open now."""
        return self._desk.open_in(session)

    # ---- agents inside agents ----------------------------------------------------------------------------------------

    def as_tool(self, *, name: str = "", description: str, deps: Callable[[ToolContext[Any]], D] | None = None) -> Tool:
        """This agent as a tool of another: each call is a child run with a session of its own.

        The child shares the parent's budget, cancel and plugins; its events travel on the parent's stream as
        `ChildEvent`s, and its questions are answered through the parent's session.

        Args:
            name: Name of the tool; the agent's by default.
            description: What it does, for the model.
            deps: Makes the child's `deps` from the call's context.

        Raises:
            ToolDefinitionError: the name is not one that providers take.
        """
        from ._children import tool_of

        return tool_of(self, name or self.name, description, deps)

    # ---- ending ------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop active runs and close what models keep open. The agent can be used again afterwards."""
        for stream in list(self._streams.values()):
            if stream._core is not None and not stream._core.finished:
                await stream.close()
        models, self._models = [*self._retired_models, *self._models.values()], {}
        self._retired_models = []
        if not isinstance(self.model, str):
            models.append(self.model)
        for model in models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    # ---- making runs -------------------------------------------------------------------------------------------------

    def _register(self, session: str, stream: RunStream[Any]) -> None:
        self._streams[session] = stream

    def _make_stream(self, request: Request, options: dict[str, Any]) -> RunStream[Any]:
        return RunStream(self._setup(request, options), self._register)

    def _setup(self, request: Request, options: dict[str, Any]) -> RunSetup:
        if not options.keys() <= _OPTIONS:
            unknown = ", ".join(sorted(options.keys() - _OPTIONS))
            raise TypeError(f"run options: unknown {unknown}; known are {', '.join(sorted(_OPTIONS))}")
        hooks = self.plugins.compile()
        if hooks is not self._hooks:
            self._adopt_plugins(hooks)
        setup = RunSetup()
        get = options.get
        setup.agent_name = self.name
        setup.answer = get("answer") or self._answer
        setup.breaker = self._breaker
        setup.caller = None
        setup.core_type = _recording_core() if get("replayable", self._replayable) else Core
        setup.deps = get("deps")
        setup.desk = self._desk
        setup.grace_seconds = self._grace_seconds
        setup.history = get("history")
        setup.hook_timeout = self._hook_timeout
        setup.hooks = hooks
        setup.instructions = options["instructions"] if "instructions" in options else cast("Any", self._instructions)
        setup.limits = get("limits") or self._limits
        setup.metadata = get("metadata") or {}
        setup.model = self._resolve(get("model") or self.model)
        output_type = get("output_type")
        setup.output = self._output if output_type is None else Output(output_type)
        setup.parent = None
        setup.path = ()
        setup.plugins = self.plugins
        setup.queues = get("queues")
        setup.request = user_message(request)
        setup.resolve = self._resolve
        setup.mode = "run"
        setup.session_id = get("session") or new_id()
        if clean_text(setup.session_id) != setup.session_id:
            raise ConfigError(
                f"session={setup.session_id!r} has a NUL or half a surrogate pair in it, which no store can keep; "
                "use another id"
            )
        setup.settings = self._settings.merged(get("model_settings"))
        setup.store = self.store
        setup.tool_concurrency = self._tool_concurrency
        setup.trace_plugins = get("trace_plugins", self._trace_plugins)
        extra = get("tools")
        setup.tools = self._tools if not extra else check_tools([*self._tools.values(), *extra])
        if extra:
            self._check_deps(setup.tools)
        return setup

    def __reduce__(self) -> Any:
        raise TypeError(
            "an Agent has live parts (plugins, store, questions) and cannot be copied or pickled; make another one "
            "with the same arguments"
        )


def _recording_core() -> type[Core]:
    from ._tape import RecordingCore

    return RecordingCore


def _active_sessions(streams: Mapping[str, RunStream[Any]]) -> list[str]:
    return [
        session for session, stream in list(streams.items()) if stream._core is not None and not stream._core.finished
    ]


_RESUMED = UserMessage(id="resumed", parts=(TextPart(text="(resumed)"),))
_COMPACTION = UserMessage(id="compaction", parts=(TextPart(text="(compaction)"),))
_DEFAULT_LIMITS = Limits()
_DEFAULT_SETTINGS = ModelSettings()


def _refuse_running_loop(what: str, instead: str) -> None:
    from ._backend import current_backend

    try:
        backend = current_backend()
    except RuntimeError:
        return
    raise RunSyncError(f"agent.{what}() was called inside a running {backend} event loop; use `{instead}` there")
