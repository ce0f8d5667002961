"""How hooks are called: in order, one at a time, bounded, measured, with every failure traced to its plugin.

What each mode does with an error is decided here, once; which hook has which mode is in `hookspecs`. Who is active is
in `plugins`. Combining decisions about tool calls is in `_decide.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

from ._checking import checked, checked_delta, checked_request
from ._records import Record, error_words
from ._tasks import Clock, Ended, Frame
from .decisions import CompactedHistory
from .errors import HookTimeoutError, PluginError, RunLimitError
from .ledger import Ledger, LedgerRow, ValueChange, difference
from .messages import Delta
from .models import ModelRequest

if TYPE_CHECKING:
    from .plugins import CompiledHooks, HookImplementation

__all__ = [
    "IN_DEBUG",
    "Breaker",
    "Dispatcher",
    "HookError",
    "Reporter",
    "Withheld",
    "log_error",
    "place_of",
    "raise_unchanged",
]

Breaker: TypeAlias = "dict[HookImplementation, int]"
"""Failures in a row of observers, kept by the agent; at `BREAK_AFTER` they are switched off."""

BREAK_AFTER = 3

#: Ends what the log says of an error whose words may hold what a model has sent, such as a secret.
IN_DEBUG = ". What it says is logged at level DEBUG"


#: What each hook changes.
SUBJECTS = {
    "on_tool": "tools",
    "on_state": "history",
    "on_message": "message",
    "on_model_request": "request",
    "around_model": "response",
    "on_delta": "delta",
    "on_model_error": "decision",
    "after_model": "response",
    "decide_tool": "decision",
    "around_tool": "result",
    "after_tool": "result",
    "on_answer": "output",
    "on_reply": "reply",
    "on_compact": "history",
}


class Reporter(Protocol):
    """Who is told about failures that are contained."""

    turn: int
    path: tuple[str, ...]

    def report(self, plugin: str, hook: str, error: BaseException, *, strict: bool, disabled: bool) -> None: ...


class HookError(Exception):
    """A hook failed: `error` is what it raised, or what it did wrong. Internal; never reaches a caller."""

    def __init__(self, implementation: HookImplementation, error: Exception) -> None:
        super().__init__(error_words(error))
        self.implementation = implementation
        self.error = error

    def annotated(self) -> Exception:
        """The very exception the hook raised, with a note that says whose it is."""
        where = self.implementation
        note = f"raised in hook {where.hook} of plugin {where.plugin!r} ({where.location})"
        if note not in getattr(self.error, "__notes__", ()):
            self.error.add_note(note)
        return self.error

    def raise_again(self) -> NoReturn:
        """Raise the very exception the hook raised, `annotated`."""
        try:
            raise_unchanged(self.annotated())
        finally:
            del self  # this frame is in the traceback of the error, and would keep it alive


def raise_unchanged(error: Exception) -> NoReturn:
    """Raise `error` with the cause and the context it has: those of other hooks and of the model may be in them."""
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppressed
        del error, cause, context


class Dispatcher:
    """Calls the hooks of one run."""

    __slots__ = ("_breaker", "_reporter", "_rows", "_timeout", "hooks", "ledger", "shielded", "tracing")

    def __init__(
        self, hooks: CompiledHooks, reporter: Reporter, *, timeout: float, breaker: Breaker, trace: bool = False
    ) -> None:
        self.hooks = hooks
        self.ledger = Ledger()
        #: True to keep what plugins change, not only count it.
        self.tracing = trace
        #: Of the task that ends the run, once it does: a further cancel then ends the hook that runs, not the ending.
        self.shielded: Clock | None = None
        self._reporter = reporter
        self._timeout = timeout
        self._breaker = breaker
        self._rows: dict[HookImplementation, LedgerRow] = {}

    def row(self, implementation: HookImplementation) -> LedgerRow:
        """The ledger row of `implementation`."""
        row = self._rows.get(implementation)
        if row is None:
            row = self._rows[implementation] = self.ledger.row(implementation.plugin, implementation.hook)
        return row

    # ---- one call ----------------------------------------------------------------------------------------------------

    async def call(
        self, implementation: HookImplementation, clock: Clock, *args: Any, seconds: float | None = None
    ) -> Any:
        """Call one implementation.

        Raises:
            HookError: it failed, timed out, or faked a cancel.
            BaseException: a cancel the run was asked for, KeyboardInterrupt, SystemExit.
        """
        frame = clock.push(None)
        try:
            return await self._bounded(frame, implementation, clock, args, seconds)
        finally:
            clock.leave(frame)

    async def _bounded(
        self,
        frame: Frame,
        implementation: HookImplementation,
        clock: Clock,
        args: tuple[Any, ...],
        seconds: float | None = None,
    ) -> Any:
        """`call`, inside a frame that the calls of one hook point share: on trio a scope for each would be dear.

        After a failure the frame is as new; after anything that must go outwards it is left.
        """
        row = self._rows.get(implementation) or self.row(implementation)
        row.calls += 1
        outer = clock.plugin
        clock.plugin = implementation.plugin
        started = clock.now()
        try:
            if implementation.thread:
                from ._threads import call_in_thread

                value: Any = call_in_thread(implementation.call, *args, name=f"trilane {implementation.plugin}")
            else:
                value = implementation.call(*args)
            inline = value is None or not (implementation.is_async or hasattr(value, "__await__"))
            if not inline:
                limit = implementation.timeout or self._timeout
                deadline = started + (limit if seconds is None or limit < seconds else seconds)
                frame.deadline = deadline - clock.lost
                if deadline < clock.watchdog._next:
                    clock.watchdog.watch(deadline)
                value = await value
        except BaseException as error:
            row.seconds += clock.now() - started
            clock.plugin = outer
            ended = clock.pop(frame, error)
            if ended in (Ended.FATAL, Ended.ASKED) and clock is not self.shielded:
                raise
            clock.renew(frame)
            row.errors += 1
            raise HookError(implementation, self._failure(implementation, ended, error)) from None
        spent = clock.now() - started
        row.seconds += spent
        clock.plugin = outer
        if inline and spent > (implementation.timeout or self._timeout):
            self._blame(HookError(implementation, _blocked(implementation, spent)))
        if frame.fired:
            clock.pop(frame, None)
            clock.renew(frame)
            row.errors += 1
            raise HookError(implementation, self._failure(implementation, Ended.TIMED_OUT, None))
        return value

    def call_sync(self, implementation: HookImplementation, *args: Any) -> Any:
        """Call an implementation of a sync hook, in whatever thread this is. What it raises comes out as it is."""
        row = self._rows.get(implementation) or self.row(implementation)
        row.calls += 1
        started = perf_counter()
        try:
            return implementation.call(*args)
        finally:
            row.seconds += perf_counter() - started

    def changed(
        self, implementation: HookImplementation, before: object, after: object, *context: Any, subject: str = ""
    ) -> None:
        """Count that an implementation changed a value or decided something; keep it where the run is traced.

        Args:
            implementation: Whose.
            before: The value before.
            after: The value after.
            context: The other arguments of the hook; a tool call among them is named.
            subject: What was changed, if the hook does not say.
        """
        self.row(implementation).changes += 1
        if self.tracing:
            old, new = difference(before, after)
            subject = subject or SUBJECTS.get(implementation.hook, "value")
            if before is None and subject in ("decision", "output", "reply"):
                new = {type(after).__name__: new}  # what kind of decision it was is in no field
            self.ledger.changes.append(
                ValueChange(
                    plugin=implementation.plugin,
                    hook=implementation.hook,
                    subject=subject,
                    turn=self._reporter.turn,
                    before=old,
                    after=new,
                    about=_tool_of(context),
                    path=self._reporter.path,
                )
            )

    def count_error(self, implementation: HookImplementation) -> None:
        """Count a failure of `call_sync` in the ledger."""
        self.row(implementation).errors += 1

    def _failure(self, implementation: HookImplementation, ended: Ended, error: BaseException | None) -> Exception:
        """The exception that stands for the failure: the original wherever that is an ordinary exception."""
        if ended is Ended.ERROR and isinstance(error, Exception):
            return error
        name, hook = implementation.plugin, implementation.hook
        failure: PluginError
        if ended is Ended.TIMED_OUT:
            limit = implementation.timeout or self._timeout
            failure = HookTimeoutError(
                f"plugin {name!r}: {hook} ({implementation.location}) did not end within its {limit:g} s; "
                "make it faster, or give it @hookimpl(timeout=...)",
                plugin=name,
                hook=hook,
            )
        elif ended is Ended.FATAL:
            text = f"raised {type(error).__name__} while the run ended; the caller gets it when that is done"
            failure = PluginError(f"plugin {name!r}: {hook} ({implementation.location}) {text}", plugin=name, hook=hook)
        elif ended is Ended.ASKED:
            failure = PluginError(f"plugin {name!r}: {hook} was cut off by a second cancel", plugin=name, hook=hook)
        else:
            failure = PluginError(
                f"plugin {name!r}: {hook} ({implementation.location}) raised {type(error).__name__}, "
                "which nobody had asked for; hooks must not fake a cancel (run.stop(reason) stops the run)",
                plugin=name,
                hook=hook,
            )
        failure.__cause__ = error
        return failure

    def _blame(self, failure: HookError, *, disabled: bool = False) -> None:
        where = failure.implementation
        self._reporter.report(where.plugin, where.hook, failure.error, strict=where.strict, disabled=disabled)

    def usable(self, implementation: HookImplementation, value: Any, before: Any = None) -> Any:
        """What a hook returned, of the right type, with what is in it checked as well.

        Raises:
            HookError: something in it is not what it must be. What it is for would fail, and blame somebody else.
        """
        try:
            if isinstance(value, Delta):
                return checked_delta(value)
            if isinstance(value, Record):
                return checked(value)
            if isinstance(value, ModelRequest) and isinstance(before, ModelRequest):
                return checked_request(value, before)
        except (TypeError, ValueError) as error:
            raise self.unusable(implementation, value, error) from None
        return value

    def unusable(self, implementation: HookImplementation, value: Any, reason: Exception) -> HookError:
        """The failure of a hook that returned what nobody can use."""
        self.row(implementation).errors += 1
        name, hook, kind = implementation.plugin, implementation.hook, type(value).__name__
        article = "an" if kind[0] in "AEIO" else "a"
        text = f"plugin {name!r}: {hook} ({implementation.location}) returned {article} {kind} that cannot be used: "
        return HookError(implementation, PluginError(f"{text}{reason}", plugin=name, hook=hook))

    # ---- the modes ---------------------------------------------------------------------------------------------------

    async def each(self, implementations: Sequence[HookImplementation], clock: Clock, *args: Any) -> list[Any]:
        """All in order; the first error fails the run. Returns what was returned, with its implementation."""
        values = []
        frame = clock.push(None)
        try:
            for implementation in implementations:
                value = await self._bounded(frame, implementation, clock, args)
                values.append((implementation, value))
        except HookError as failure:
            failure.raise_again()
        finally:
            clock.leave(frame)
        return values

    async def chain(
        self,
        implementations: Sequence[HookImplementation],
        clock: Clock,
        before: tuple[Any, ...],
        value: Any,
        expect: type,
        *,
        contained: bool = False,
    ) -> Any:
        """Pass a value through; None keeps it. `contained`: an error is reported and the value so far stands."""
        frame = clock.push(None)
        try:
            for implementation in implementations:
                try:
                    changed = await self._bounded(frame, implementation, clock, (*before, value))
                    if changed is None:
                        continue
                    if not isinstance(changed, expect):
                        self.row(implementation).errors += 1
                        raise HookError(implementation, _wrong_type(implementation, changed, expect))
                    if changed is not value:
                        changed = self.usable(implementation, changed, value)
                except HookError as failure:
                    if implementation.required or not contained or isinstance(failure.error, RunLimitError):
                        if implementation.required:
                            raise Withheld(failure) from None
                        failure.raise_again()
                    self._blame(failure)
                    continue
                if changed is not value and changed != value:
                    self.changed(implementation, value, changed, before)
                value = changed
        finally:
            clock.leave(frame)
        return value

    async def first(self, implementations: Sequence[HookImplementation], clock: Clock, *args: Any) -> Any:
        """The first result that is not None.

        Raises:
            HookError: the one asked failed; what that means is the caller's to say.
        """
        for implementation in implementations:
            value = await self.call(implementation, clock, *args)
            if value is not None:
                if not isinstance(value, CompactedHistory):  # as long as the session: see whoever takes it
                    value = self.usable(implementation, value)
                self.changed(implementation, None, value)
                return value
        return None

    async def notify(
        self,
        implementations: Sequence[HookImplementation],
        clock: Clock,
        *args: Any,
        remaining: Callable[[], float] | None = None,
    ) -> None:
        """All in order; errors are reported and undo nothing. One that keeps failing is switched off."""
        breaker = self._breaker
        frame = clock.push(None)
        try:
            for implementation in implementations:
                if breaker and breaker.get(implementation, 0) >= BREAK_AFTER:
                    continue
                try:
                    seconds = None if remaining is None else max(0.0, remaining())
                    await self._bounded(frame, implementation, clock, args, seconds)
                except HookError as failure:
                    failures = breaker[implementation] = breaker.get(implementation, 0) + 1
                    self._blame(failure, disabled=failures >= BREAK_AFTER)
                else:
                    if breaker:
                        breaker.pop(implementation, None)
        finally:
            clock.leave(frame)

    async def teardown(
        self,
        implementations: Sequence[HookImplementation],
        clock: Clock,
        remaining: Callable[[], float],
        *args: Any,
    ) -> None:
        """All, within a common time of which each gets its part, so that a hanging one cannot starve the next."""
        left = len(implementations)
        for implementation in implementations:
            try:
                await self.call(implementation, clock, *args, seconds=max(0.0, remaining()) / left)
            except HookError as failure:
                self._blame(failure)
            left -= 1

    def blame(self, implementation: HookImplementation, error: Exception) -> None:
        """Report a failure that the caller found."""
        self.row(implementation).errors += 1
        self._blame(HookError(implementation, error))

    def report(self, failure: HookError) -> None:
        """Report a failure that the caller contained."""
        self._blame(failure)

    async def around(
        self,
        implementation: HookImplementation,
        clock: Clock,
        args: tuple[Any, ...],
        call_next: Callable[..., Awaitable[Any]],
    ) -> Any:
        """One layer of an onion. The implementation's clock stands still inside `call_next`.

        Raises:
            HookError: the hook itself failed; what `call_next` raised comes out as it is.
        """
        inner: list[BaseException] = []
        depth = len(clock.frames)  # where `call` will push this hook's frame

        async def timed_next(*value: Any) -> Any:
            frame = clock.frames[depth] if len(clock.frames) > depth else None
            left = clock.exclude(frame) if frame is not None else 0.0
            outer, clock.plugin = clock.plugin, ""
            try:
                return await call_next(*value)
            except BaseException as error:
                inner.append(error)
                raise
            finally:
                clock.plugin = outer
                if frame is not None:
                    clock.include(frame, left)

        try:
            return await self.call(implementation, clock, *args, timed_next)
        except HookError as failure:
            if any(failure.error is error for error in inner):
                self.row(implementation).errors -= 1
                raise_unchanged(failure.error)
            raise


class Withheld(Exception):
    """A required hook failed: the value must not reach anybody."""

    def __init__(self, failure: HookError) -> None:
        super().__init__(f"withheld: plugin {failure.implementation.plugin} failed")
        self.failure = failure


def _blocked(implementation: HookImplementation, seconds: float) -> HookTimeoutError:
    name, hook = implementation.plugin, implementation.hook
    return HookTimeoutError(
        f"plugin {name!r}: {hook} ({implementation.location}) blocked the event loop for {seconds:.3g} s, and nothing "
        "could interrupt it; make it async, or give it @hookimpl(thread=True)",
        plugin=name,
        hook=hook,
    )


def place_of(error: BaseException) -> str:
    """Where it was raised, ` (file:line)`; empty if that is in Trilane itself, or not known."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or str(last.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "trilane":
        return ""
    return f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})"


def _wrong_type(implementation: HookImplementation, value: object, expect: type) -> PluginError:
    name, hook = implementation.plugin, implementation.hook
    return PluginError(
        f"plugin {name!r}: {hook} ({implementation.location}) returned {type(value).__name__}; "
        f"return {expect.__name__} or None",
        plugin=name,
        hook=hook,
    )


def _tool_of(context: tuple[Any, ...]) -> str:
    from .messages import ToolCall

    parts = [part for item in context for part in (item if isinstance(item, tuple) else (item,))]
    return next((part.name for part in parts if isinstance(part, ToolCall)), "")


def log_error(what: str, error: BaseException, where: str, *, is_warning: bool = True) -> None:
    """Log that `what` happened, with the type of the error and its place.

    What it says may hold what a model has sent, and so a secret: that is logged at level DEBUG, for those who ask.
    """
    from logging import INFO, WARNING, getLogger

    logger = getLogger("trilane")
    text = f"{what}: {type(error).__name__}{place_of(error)}; {where}"
    logger.log(WARNING if is_warning else INFO, "%s%s", text, IN_DEBUG)
    logger.debug("%s", text, exc_info=error)
