"""Every exception Trilane raises. For what an error does to a run, see `_ending.py`.

TrilaneError
├── AgentProtocolError        a channel or stream was used against its rules
│   └── RunSyncError          run_sync inside a running event loop
├── PhaseError                an illegal phase transition
├── ConfigError               settings, arguments or requests that cannot be used
│   ├── UnknownModelError     no provider or model of that name
│   ├── ToolDefinitionError   a function that cannot be a tool, duplicate tool names
│   └── PluginLoadError       a plugin that cannot be loaded or registered
│       └── HookSpecError     a hook implementation that does not fit its specification
├── SessionError              the session cannot be used
│   ├── SessionBusyError      another run is active on it
│   ├── SessionConflictError  the stored version is not the expected one, or the lease was lost
│   └── StoreError            the store failed or was too slow
├── RunError                  how a run ended; has `.result`
│   ├── RunCancelledError     the run was stopped
│   ├── RunLimitError         a limit was reached
│   │   └── RunTimeoutError   a limit in seconds was reached
│   ├── RunNotCompletedError  the output of a run that did not complete was read
│   └── EmptyReplyError       the model kept answering with nothing
│       └── RefusalError      the model declined to answer
├── ModelError                a model call failed
│   └── ModelTimeoutError     a provider was too slow
├── PluginError               a plugin failed where that fails the run, or a strict one failed
│   └── HookTimeoutError      a hook did not end in time
├── ToolError                 raised by tools: the text is for the model
│   └── ToolTimeoutError      a tool did not end in time
├── ReplyError                a question got no usable reply
│   ├── NoAnswererError       nobody can answer
│   └── ReplyTimeoutError     nobody answered in time
├── EventSinkClosed           published to a closed sink
└── RecordedError             an error read back from JSON
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import RunResult

__all__ = [
    "AgentProtocolError",
    "ConfigError",
    "EmptyReplyError",
    "EventSinkClosed",
    "HookSpecError",
    "HookTimeoutError",
    "ModelError",
    "ModelTimeoutError",
    "NoAnswererError",
    "PhaseError",
    "PluginError",
    "PluginLoadError",
    "RecordedError",
    "RefusalError",
    "ReplyError",
    "ReplyTimeoutError",
    "RunCancelledError",
    "RunError",
    "RunLimitError",
    "RunNotCompletedError",
    "RunSyncError",
    "RunTimeoutError",
    "SessionBusyError",
    "SessionConflictError",
    "SessionError",
    "StoreError",
    "ToolDefinitionError",
    "ToolError",
    "ToolTimeoutError",
    "TrilaneError",
    "UnknownModelError",
]


class TrilaneError(Exception):
    """Base of every error that Trilane itself raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are made again from `args` alone, which fails where a keyword is required.
        return _made_again, (type(self), self.args), self.__dict__


class AgentProtocolError(TrilaneError):
    """A channel or a stream was used against its rules; the message says which rule and what to do."""


class RunSyncError(AgentProtocolError):
    """`run_sync` was called inside a running event loop; `await agent.run(...)` there instead."""


class PhaseError(TrilaneError):
    """A transition that the phase table does not allow. The state is unchanged."""


class ConfigError(TrilaneError, ValueError):
    """Settings, arguments or a request that cannot be used. Nothing was started."""


class UnknownModelError(ConfigError):
    """No provider or model of that name; the message names the nearest ones."""


class ToolDefinitionError(ConfigError):
    """A function cannot be offered as a tool; the message names the function, the parameter and the cure."""


class PluginLoadError(ConfigError):
    """A plugin cannot be loaded or registered.

    Attributes:
        plugin: Name of the plugin, where one is known.
    """

    def __init__(self, message: str, *, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class HookSpecError(PluginLoadError):
    """A hook implementation does not fit its specification; the message names plugin, function and line."""


class SessionError(TrilaneError):
    """The session cannot be used as asked."""


class SessionBusyError(SessionError):
    """Another run is active on the session. Wait for it, or stop it through `agent.active(session)`."""


class SessionConflictError(SessionError):
    """The stored version is not the one this run knows, or its lease was lost. Nothing was written."""


class StoreError(SessionError):
    """The session store failed, or did not answer within `Limits.store_seconds`."""


class RunError(TrilaneError):
    """A run did not complete.

    Attributes:
        result: The `RunResult` with everything the run had reached; None until the run has ended.
    """

    def __init__(self, message: str = "", *, result: RunResult[Any] | None = None) -> None:
        super().__init__(message)
        self.result = result


class RunCancelledError(RunError):
    """The run was stopped, closed or suspended. `str(error)` is the reason."""


class RunLimitError(RunError):
    """A limit of the run was reached. Plugins may raise it too."""


class RunTimeoutError(RunLimitError):
    """A limit in seconds was reached; the status of the run is `timed_out`."""


class RunNotCompletedError(RunError, AttributeError):
    """`result.output` was read, but the run did not complete."""


class EmptyReplyError(RunError):
    """The model answered with nothing more often than `Limits.empty_replies` allows."""


class RefusalError(EmptyReplyError):
    """The model declined to answer; `str(error)` has its words."""


class ModelError(TrilaneError):
    """A model call failed.

    Attributes:
        model: Name of the model.
        retryable: True if the same request may work later.
        retry_after_seconds: Seconds the provider asked to wait, if it did.
        request_id: The provider's id for the failed call, if there is one.
    """

    def __init__(
        self,
        message: str,
        *,
        model: str = "",
        retryable: bool = False,
        retry_after_seconds: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.model = model
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.request_id = request_id


class ModelTimeoutError(ModelError, TimeoutError):
    """A provider was too slow: to take the connection, to begin its answer, to go on with it, or altogether.

    Attributes:
        limit: Which limit was reached: `connect`, `first_byte`, `idle` or `total`.
    """

    def __init__(
        self, message: str, *, limit: str, model: str = "", retryable: bool = False, request_id: str = ""
    ) -> None:
        super().__init__(message, model=model, retryable=retryable, request_id=request_id)
        self.limit = limit


class PluginError(TrilaneError):
    """A plugin failed where a failure fails the run, or a `strict` plugin failed anywhere.

    Attributes:
        plugin: Name of the plugin.
        hook: Name of the hook.
        result: The run's result where the run had completed nevertheless (a strict plugin), else None.
    """

    def __init__(self, message: str, *, plugin: str, hook: str, result: RunResult[Any] | None = None) -> None:
        super().__init__(message)
        self.plugin = plugin
        self.hook = hook
        self.result = result


class HookTimeoutError(PluginError):
    """A hook did not end within its deadline."""


class ToolError(TrilaneError):
    """Raise it in a tool: the text reaches the model as it is, and the run goes on."""


class ToolTimeoutError(ToolError):
    """A tool did not end within its timeout."""


class ReplyError(TrilaneError):
    """A question got no usable reply."""


class NoAnswererError(ReplyError):
    """Nobody can answer: the run is not streamed and has no `answer=` function."""


class ReplyTimeoutError(ReplyError, TimeoutError):
    """Nobody answered within the question's timeout."""


class EventSinkClosed(TrilaneError):
    """The sink is closed. Where a write failed, that error is the `__cause__`."""


class RecordedError(TrilaneError):
    """An error that was read back from JSON: the original object is gone, its type name and message are kept.

    Attributes:
        type: Name of the original exception class.
        message: Its message.
    """

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}" if message else type)
        self.type = type
        self.message = message


def _made_again(kind: type[TrilaneError], args: tuple[Any, ...]) -> TrilaneError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error
