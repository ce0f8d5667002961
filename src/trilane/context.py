"""What hooks and tools may see and do: `RunContext`, and `ToolContext` for tools.

Both are thin views of a run; what they do is done by `_core.py`, `_questions.py` and `_process.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, cast, overload

from typing_extensions import TypeVar

from ._checking import checked_messages
from ._plain import plain_json
from ._records import Record
from .errors import AgentProtocolError
from .messages import Message, ToolCall, Usage, UserMessage
from .state import AgentPhase, AgentState

if TYPE_CHECKING:
    from pydantic import JsonValue
    from typing_extensions import TypeForm

    from .config import Limits
    from .events import ExtensionEvent
    from .models import Emit, Model, ModelRequest, ModelResponse

__all__ = ["BlockingContext", "History", "ProcessResult", "RunContext", "Stash", "ToolContext"]

Dc = TypeVar("Dc", default=object, covariant=True)
T = TypeVar("T", default=str)
R = TypeVar("R")


class Stash(dict[object, Any]):
    """Per-run data of plugins. Use something of your own as the key: the plugin's name, or the plugin itself."""


class ProcessResult(Record):
    """How a process ended.

    Attributes:
        returncode: Exit status; negative for a signal.
        stdout: What it wrote, decoded as UTF-8 with replacement, at most `max_output_bytes`.
        stderr: The same for its standard error.
        timed_out: It was killed because it took too long.
        cut_bytes: How many bytes of output were left out.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    cut_bytes: int = 0


class _RunCore(Protocol):
    """What a context needs of the run behind it."""

    deps: Any
    run_id: str
    session_id: str
    path: tuple[str, ...]
    state: AgentState
    turn: int
    request: UserMessage
    limits: Limits
    metadata: Mapping[str, JsonValue]
    agent_name: str
    setup: Any

    @property
    def stash(self) -> Stash: ...
    @property
    def history(self) -> History: ...
    @property
    def own_usage(self) -> Usage: ...
    @property
    def open_calls(self) -> tuple[ToolCall, ...]: ...
    async def publish(self, notification: ExtensionEvent, to: str | None = None) -> None: ...
    async def emit_custom(self, name: str, data: JsonValue) -> None: ...
    def request_stop(self, reason: str) -> None: ...
    async def progress(self, call: ToolCall, text: str, data: JsonValue, fraction: float | None) -> None: ...
    async def ask_from_tool(
        self, context: ToolContext[Any], prompt: str, schema: Any, timeout: float | None
    ) -> Any: ...
    def from_thread(self, call: ToolCall, function: Callable[..., Awaitable[Any]], *args: Any) -> Any: ...


class History(MutableSequence[Message]):
    """The conversation as models will see it in this run.

    Plugins may edit it in `on_state`; the stored history is not touched. After LOADING_CONTEXT it is read-only, and
    changing it raises `AgentProtocolError`. What is put into it is checked: `TypeError` and `ValueError` say what is
    no message, and what in one is wrong.
    """

    __slots__ = ("_core", "_known", "edited", "log")

    def __init__(self, core: _RunCore, log: list[Message]) -> None:
        self._core = core
        self.log = log
        self.edited = False
        self._known: set[int] = set()  # ids of the messages that were there before, which need no check

    def _writable(self) -> list[Message]:
        if self._core.state.phase is not AgentPhase.LOADING_CONTEXT:
            raise AgentProtocolError(
                f"run.history can be changed in on_state only (phase LOADING_CONTEXT); now it is "
                f"{self._core.state.phase.name}. To change one request, return a ModelRequest from on_model_request."
            )
        if not self.edited:
            self.edited = True
            self._known = {id(message) for message in self.log}  # they stay: the log of the session has them
            self.log = list(self.log)
        return self.log

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self.log[index]

    @overload
    def __setitem__(self, index: int, value: Message) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Message]) -> None: ...
    def __setitem__(self, index: int | slice, value: Message | Iterable[Message]) -> None:
        log = self._writable()
        if isinstance(index, slice):
            log[index] = checked_messages(cast("Iterable[Message]", value), self._known)
        else:
            log[index] = checked_messages([value], self._known)[0]

    def __delitem__(self, index: int | slice) -> None:
        del self._writable()[index]

    def __len__(self) -> int:
        return len(self.log)

    def __iter__(self) -> Iterator[Message]:
        return iter(tuple(self.log))

    def insert(self, index: int, value: Message) -> None:
        """Insert a message before `index`.

        Raises:
            TypeError: it is no message.
            ValueError: something in it is not what it must be.
        """
        log = self._writable()
        log.insert(index, checked_messages([value], self._known)[0])

    def __repr__(self) -> str:
        return f"History({len(self.log)} messages)"


class RunContext(Generic[Dc]):
    """A run, as hooks and `instructions` functions see it."""

    __slots__ = ("_core",)

    def __init__(self, core: _RunCore) -> None:
        self._core = core

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} is a view of a run in progress and cannot be copied or pickled; "
            "take what you need out of it"
        )

    @property
    def deps(self) -> Dc:
        """Whatever the caller passed as `deps`."""
        return cast("Dc", self._core.deps)

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._core.run_id

    @property
    def session_id(self) -> str:
        """Id of its session."""
        return self._core.session_id

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the tools that lead from the root run to this one; empty for the root."""
        return self._core.path

    @property
    def state(self) -> AgentState:
        """The run's phase; read-only."""
        return self._core.state.read_only()

    @property
    def turn(self) -> int:
        """Number of the current turn, from 1; 0 before the first."""
        return self._core.turn

    @property
    def request(self) -> UserMessage:
        """The request as it was submitted."""
        return self._core.request

    @property
    def usage(self) -> Usage:
        """Tokens and money so far, child runs included."""
        return self._core.own_usage

    @property
    def limits(self) -> Limits:
        """What the run may use."""
        return self._core.limits

    @property
    def metadata(self) -> Mapping[str, JsonValue]:
        """Whatever the caller passed as `metadata`."""
        return self._core.metadata

    @property
    def history(self) -> History:
        """The conversation; see `History` for when it may be changed."""
        return self._core.history

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the current batch that have no result yet."""
        return self._core.open_calls

    @property
    def agent_name(self) -> str:
        """Name of the agent."""
        return self._core.agent_name

    @property
    def stash(self) -> Stash:
        """Per-run data of plugins."""
        return self._core.stash

    @property
    def model(self) -> Model:
        """The model that answers in this run. To call it, use `call_model`."""
        return cast("Model", self._core.setup.model)

    async def call_model(
        self,
        request: ModelRequest,
        *,
        model: str | Model | None = None,
        emit: Emit | None = None,
        timeout: float | None = None,
    ) -> ModelResponse:
        """Call a model beside the conversation, to summarise or to judge: no hook sees it, nothing of it is kept.

        What it uses is counted in `run.usage` and against the limits of the run.

        Args:
            request: What it is asked.
            model: Another model than the run's, or `PROVIDER:NAME`.
            emit: Is given each delta. The clock of the call stands still while it waits for the caller of the run.
            timeout: Seconds for the call, beside `Limits.model_seconds` and the time the hook has.

        Raises:
            RunCancelledError: a stop was asked for: let it through.
            ModelError: the model did not answer in time, or what it returned is no response.
            ConfigError: there is no such model.
            Exception: what the model raised.
        """
        from ._model_calls import call_model

        return await call_model(cast("Any", self._core), request, model, emit, timeout)

    async def progress(self, text: str = "") -> None:
        """In `on_compact`: show the caller how far it is, as a `CompactionProgress`. Returns when it was seen.

        Raises:
            TypeError: `text` is no text.
            AgentProtocolError: no compaction is going on.
        """
        from ._model_calls import show_progress

        await show_progress(cast("Any", self._core), text)

    async def publish(self, notification: ExtensionEvent, to: str | None = None) -> None:
        """Call the `on_event` of every plugin, or of the plugin named `to`, with `notification`.

        Raises:
            AgentProtocolError: called from inside `on_event`, or `to` is no active plugin.
        """
        await self._core.publish(notification, to)

    async def emit(self, name: str, data: JsonValue = None) -> None:
        """Show the caller a `CustomEvent` of yours; returns when it was seen.

        Raises:
            TypeError: `name` is no text, or `data` nothing that JSON can express, or nested too deeply.
        """
        if not isinstance(name, str):
            raise TypeError(f"emit() takes the name of the event as a str, not {type(name).__name__}")
        await self._core.emit_custom(name, _plain(data, f"emit({name!r})"))

    def stop(self, reason: str) -> None:
        """Stop the run at its next boundary. Does not wait."""
        self._core.request_stop(reason)

    def close(self) -> None:
        """Not possible from inside a run, which would wait for itself.

        Raises:
            AgentProtocolError: always; it names `run.stop`.
        """
        raise AgentProtocolError("close() inside a run would wait for itself; use run.stop(reason)")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(run={self.run_id}, phase={self.state.phase.name}, turn={self.turn})"


class ToolContext(RunContext[Dc]):
    """A run, as one tool call sees it. Annotate a parameter with it and it is passed in; models do not see it.

    Attributes:
        call: The call.
        key: Stable idempotency key: the same whenever this very call is run again.
        attempt: 1 for the first time, more when the call is run again.
    """

    __slots__ = ("attempt", "call", "key", "question_count")
    __trilane_tool_context__: ClassVar[bool] = True

    def __init__(self, core: _RunCore, call: ToolCall, key: str, attempt: int) -> None:
        super().__init__(core)
        self.call = call
        self.key = key
        self.attempt = attempt
        self.question_count = 0

    async def progress(self, text: str = "", *, data: JsonValue = None, fraction: float | None = None) -> None:
        """Show the caller how far the tool is; `fraction` from 0 to 1. Returns when it was seen.

        Raises:
            TypeError: `text` is no text, or `data` nothing that JSON can express.
            ValueError: `fraction` is not from 0 to 1.
        """
        if not isinstance(text, str):
            raise TypeError(f"progress() takes text as a str, not {type(text).__name__}")
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress() takes a fraction from 0 to 1, not {fraction}")
        await self._core.progress(self.call, text, _plain(data, "progress()"), fraction)

    async def ask(self, prompt: str, schema: TypeForm[T] = cast("Any", str), *, timeout: float | None = None) -> T:
        """Ask outside and wait for the reply, validated as `schema`.

        Raises:
            ReplyTimeoutError: nobody answered within `timeout` seconds (or `Limits.reply_seconds`).
            NoAnswererError: nobody can answer: the run is not streamed and has no `answer=`.
            TypeError: `prompt` is no text, or `schema` neither a type that pydantic knows nor a JSON Schema.
        """
        return cast("T", await self._core.ask_from_tool(self, prompt, schema, timeout))

    async def run_process(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_line: Callable[[str], Awaitable[None]] | None = None,
        max_output_bytes: int = 1_000_000,
    ) -> ProcessResult:
        """Run a program in a process group of its own, which is killed as a tree on timeout and cancel.

        Raises:
            OSError: the program cannot be started.
        """
        from ._process import run_process

        return await run_process(
            argv, input=input, cwd=cwd, env=env, timeout=timeout, on_line=on_line, max_output_bytes=max_output_bytes
        )

    @property
    def blocking(self) -> BlockingContext:
        """The same for tools that run in a thread."""
        return BlockingContext(self)


def _plain(data: JsonValue, where: str) -> JsonValue:
    """`data` as plain JSON. Checked here, so that whoever passes something else hears of it, and not the caller."""
    try:
        return plain_json(data)
    except TypeError as error:
        raise TypeError(f"{where}: data {error}") from None


class BlockingContext:
    """`progress`, `ask` and the rest for code in a thread: each call waits, and raises if the run is cancelled."""

    __slots__ = ("_context",)

    def __init__(self, context: ToolContext[Any]) -> None:
        self._context = context

    def progress(self, text: str = "", *, data: JsonValue = None, fraction: float | None = None) -> None:
        """See `ToolContext.progress`."""
        context = self._context
        context._core.from_thread(context.call, lambda: context.progress(text, data=data, fraction=fraction))

    def ask(self, prompt: str, schema: TypeForm[T] = cast("Any", str), *, timeout: float | None = None) -> T:
        """See `ToolContext.ask`."""
        core = self._context._core
        return cast(
            "T", core.from_thread(self._context.call, core.ask_from_tool, self._context, prompt, schema, timeout)
        )

    def emit(self, name: str, data: JsonValue = None) -> None:
        """See `RunContext.emit`."""
        self._context._core.from_thread(self._context.call, self._context.emit, name, data)

    def run(self, function: Callable[..., Awaitable[R]], *args: object) -> R:
        """Await `function(*args)` in the run's event loop and return what it returns."""
        return cast("R", self._context._core.from_thread(self._context.call, function, *args))
