"""GENERATING: one model call with its hooks, its retries, and its time limit.

How deltas become events and parts is in `_assembly.py`; what is done with the answer is in `_phases.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ._assembly import Assembly
from ._backend import new_waiter
from ._checking import checked_answer, checked_request, uncallable_model
from ._conversation import has_steering, take_steering
from ._dispatch import HookError
from ._records import maker
from ._tasks import Ended
from .decisions import RetryModel
from .errors import ModelError, PluginError, RunLimitError, RunTimeoutError
from .events import ModelStarted
from .models import ModelRequest, ModelResponse
from .state import AgentPhase
from .stores import MessageStored

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ._core import Core
    from .models import ModelRequest

__all__ = ["generating"]


async def generating(core: Core) -> AgentPhase:
    """Call the model until it has answered or nobody wants to try again.

    Its message is in the history before anything else happens.
    """
    call = _ModelCall(core)
    while True:
        request = core.model_request
        assert request is not None
        try:
            response = await call.run(request)
            if call.last is None:  # a hook answered: the model was not called, or failed
                _supersede(core)
                core.assembly = Assembly(core)
        except Exception as error:
            core.check()
            if core.lane_error is not None:
                raise core.lane_error from core.lane_error.__cause__
            _check_deltas(core)
            again = await _ask_plugins(core, request, error)
            if again is None:
                raise
            if isinstance(again, ModelResponse):
                _supersede(core)
                core.assembly = Assembly(core)
                response = again
            else:
                _supersede(core)
                await _pause(core, again.after_seconds)
                continue
        core.check()
        _check_deltas(core)
        assembly = core.assembly
        assert assembly is not None
        message = assembly.finish(response)
        core.last_message = message
        core.assembly = None
        core.step = "respond"  # until it is shown as completed, which the end of the run does where that is not reached
        core.record(maker(MessageStored)(core.run_id, message), tell=False)
        return AgentPhase.READY


def _check_deltas(core: Core) -> None:
    """A failed `on_delta` is no failure of the model, even where the model, or a hook around it, swallowed it."""
    if core.assembly is not None and core.assembly.failure is not None:
        raise core.assembly.failure


class _ModelCall:
    """The model inside its `around_model` hooks. `attempt` counts calls of the model itself."""

    __slots__ = ("attempt", "core", "last")

    def __init__(self, core: Core) -> None:
        self.core = core
        self.attempt = 0
        self.last: ModelResponse | None = None

    def run(self, request: ModelRequest) -> Awaitable[ModelResponse]:
        return self._layer(0, request) if self.core.hooks.around_model else self._call(request)

    async def _layer(self, depth: int, request: ModelRequest) -> ModelResponse:
        core = self.core
        implementations = core.hooks.around_model
        if depth == len(implementations):
            return await self._call(request)
        implementation = implementations[depth]
        answered: list[ModelResponse] = []

        async def call_next(changed: ModelRequest | None = None) -> ModelResponse:
            if changed is not None and changed is not request:
                changed = _checked_request(implementation, changed, request)
            if changed is not None and changed is not request and changed != request:
                core.dispatcher.changed(implementation, request, changed, subject="request")
            response = await self._layer(depth + 1, changed if changed is not None else request)
            answered.append(response)
            return response

        try:
            response = await core.dispatcher.around(implementation, core.clock, (core.context, request), call_next)
            if not isinstance(response, ModelResponse):
                raise HookError(implementation, _not_a_response(implementation, response))
            if not answered or response is not answered[-1]:
                response = cast("ModelResponse", core.dispatcher.usable(implementation, response))
        except HookError as failure:
            if answered and not isinstance(failure.error, RunLimitError):
                core.dispatcher.report(failure)  # an answer is never thrown away
                return answered[-1]
            failure.raise_again()
        inner = answered[-1] if answered else None
        if response is not inner and response != inner:
            core.dispatcher.changed(implementation, inner, response)
        return response

    async def _call(self, request: ModelRequest) -> ModelResponse:
        core = self.core
        if core.assembly is not None:
            _supersede(core)
        self.attempt += 1
        self.last = None
        core.produce(ModelStarted, model=core.setup.model.name, attempt=self.attempt)
        if core.notes:
            await core.deliver()
        await core.put()
        core.check()
        hooks = core.hooks
        if not (hooks.on_model_request or hooks.around_model or hooks.on_message) and has_steering(core):
            request = await _hear(core, request)
        assembly = core.assembly = Assembly(core)
        # Not in a function of its own: each coroutine between the run's task and the model costs every delta a step,
        # and every run that waits for one its frame.
        frame = core.clock.push(core.limits.model_seconds)
        try:
            response = await core.setup.model.call(request, assembly.emit)
        except BaseException as error:
            assembly.close()
            failure = _model_failure(core, core.clock.pop(frame, error), error)
            if failure is None:
                raise
            raise failure from error
        name = core.setup.model.name
        if core.clock.pop(frame, None) is not Ended.OK:
            raise _too_slow(core, name)
        self.last = response = checked_answer(response, name)
        core.add_usage(response.usage)
        return response


async def _hear(core: Core, request: ModelRequest) -> ModelRequest:
    """Add what was said while the caller looked at the events before the call. No hook has seen the request."""
    while await take_steering(core):
        log = core.view.log
        request = core.model_request = request.replace(messages=log, count=len(log))
        await core.show()
    return request


def _model_failure(core: Core, ended: Ended, error: BaseException) -> Exception | None:
    """What stands for an error of the model that is not to be raised as it is."""
    name = core.setup.model.name
    if ended is Ended.TIMED_OUT:
        return _too_slow(core, name)
    if ended is Ended.FAKED or (ended is Ended.ERROR and not isinstance(error, Exception)):
        return ModelError(f"model {name}: raised {type(error).__name__}, which nobody had asked for", model=name)
    return uncallable_model(error, name)


def _too_slow(core: Core, name: str) -> RunTimeoutError:
    return RunTimeoutError(
        f"model {name} did not answer within {core.limits.model_seconds:g} s of its own time; "
        "raise Limits.model_seconds, or use a faster model"
    )


def _supersede(core: Core) -> None:
    if core.assembly is not None:
        core.assembly.supersede()
        core.assembly = None


async def _ask_plugins(core: Core, request: ModelRequest, error: Exception) -> RetryModel | ModelResponse | None:
    """What `on_model_error` hooks make of an error; None to let it fail the run."""
    implementations = core.hooks.on_model_error
    if not implementations or isinstance(error, RunLimitError):
        return None
    await core.before_hook()
    try:
        decision: Any = await core.dispatcher.first(implementations, core.clock, core.context, request, error)
    except HookError as failure:
        core.dispatcher.report(failure)
        return None
    if decision is None or isinstance(decision, (RetryModel, ModelResponse)):
        return decision
    core.dispatcher.blame(
        implementations[0],
        PluginError(
            f"on_model_error returned {type(decision).__name__}; return RetryModel, a ModelResponse, or None",
            plugin=implementations[0].plugin,
            hook="on_model_error",
        ),
    )
    return None


async def _pause(core: Core, seconds: float) -> None:
    """Wait before another attempt, for one turn of the event loop at least; a stop ends the wait."""
    until = core.timers.now() + max(0.0, seconds)
    await core.show()
    while True:
        core.check()
        waiter = new_waiter()
        core.waiters.append(waiter)
        timer = core.timers.call_at(until, waiter.wake)
        try:
            await waiter.wait()
        finally:
            timer.cancel()
            if waiter in core.waiters:
                core.waiters.remove(waiter)
        if core.timers.now() >= until:
            return


def _checked_request(implementation: Any, changed: object, request: ModelRequest) -> ModelRequest:
    """What a hook gives its `call_next`. Raises in the hook if that is no request, or something in it is wrong."""
    try:
        if not isinstance(changed, ModelRequest):
            raise TypeError(f"it takes a ModelRequest, not {type(changed).__name__}")
        return checked_request(changed, request)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"plugin {implementation.plugin!r}: around_model ({implementation.location}) gave call_next a request that "
            f"cannot be used: {error}",
            plugin=implementation.plugin,
            hook="around_model",
        ) from None


def _not_a_response(implementation: Any, value: object) -> PluginError:
    return PluginError(
        f"plugin {implementation.plugin!r}: around_model ({implementation.location}) returned "
        f"{type(value).__name__}; return the ModelResponse that call_next gave, or another one",
        plugin=implementation.plugin,
        hook="around_model",
    )
