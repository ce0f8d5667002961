"""What the dispatcher gets: one `HookImplementation` per function, in calling order, per hook.

Made from pluggy's lists by `PluginManager.compile`. How they are put in order is in `ordering.py`; how they are called
is in `_dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from trilane.hookspecs import HOOKS, Marks

if TYPE_CHECKING:
    from pluggy import HookImpl

__all__ = [
    "Calls",
    "CompiledHooks",
    "HookImplementation",
    "implementation",
    "location",
    "marks_of",
    "positional",
]


class HookImplementation:
    """One plugin's function for one hook, ready to be called.

    Attributes:
        plugin: Name of the plugin.
        hook: Name of the hook.
        call: Takes all of the hook's arguments, positionally and in the specification's order, whatever the function
            itself takes.
        is_async: True for an `async def`; a `def` may still return an awaitable.
        timeout: Seconds one call may take; None for the agent's `hook_timeout`.
        thread: True to call it in a worker thread.
        required: True if its failure withholds the value.
        strict: True if the plugin declares `strict = True`.
        location: `file:line` of the function.
    """

    __slots__ = ("call", "hook", "is_async", "location", "plugin", "required", "strict", "thread", "timeout")

    def __init__(
        self,
        *,
        plugin: str,
        hook: str,
        call: Callable[..., Any],
        is_async: bool,
        timeout: float | None,
        thread: bool,
        required: bool,
        strict: bool,
        location: str,
    ) -> None:
        self.plugin = plugin
        self.hook = hook
        self.call = call
        self.is_async = is_async
        self.timeout = timeout
        self.thread = thread
        self.required = required
        self.strict = strict
        self.location = location

    def __repr__(self) -> str:
        return f"<HookImplementation {self.plugin}.{self.hook} at {self.location}>"


Calls: TypeAlias = tuple[HookImplementation, ...]
"""The implementations of one hook in calling order."""


class CompiledHooks:
    """The implementations of every hook, one attribute for each; empty tuples where nobody implements it."""

    __slots__ = tuple(HOOKS)

    on_tool: Calls
    on_state: Calls
    on_message: Calls
    before_run: Calls
    before_turn: Calls
    on_model_request: Calls
    around_model: Calls
    on_delta: Calls
    on_model_error: Calls
    after_model: Calls
    decide_tool: Calls
    before_tool: Calls
    around_tool: Calls
    after_tool: Calls
    after_turn: Calls
    on_answer: Calls
    after_run: Calls
    on_success: Calls
    on_error: Calls
    on_cancel: Calls
    close_run: Calls
    on_event: Calls
    on_reply: Calls
    on_compact: Calls
    register_models: Calls
    register_stores: Calls
    register_settings: Calls

    def __init__(self, calls: Mapping[str, Calls]) -> None:
        for hook in HOOKS:
            setattr(self, hook, calls.get(hook, ()))

    def __repr__(self) -> str:
        counts = {hook: len(getattr(self, hook)) for hook in HOOKS if getattr(self, hook)}
        return f"<CompiledHooks {counts}>"


def marks_of(impl: HookImpl) -> Marks:
    """Our options of an implementation; the defaults where it was marked with pluggy's own marker."""
    options: Mapping[str, object] = {**impl.opts}
    marks = options.get("marks")
    return marks if isinstance(marks, Marks) else _PLAIN


def implementation(hook: str, impl: HookImpl) -> HookImplementation:
    """What the dispatcher needs to know of a registered implementation, which the checks have passed."""
    from inspect import iscoroutinefunction, signature

    marks = marks_of(impl)
    function: Callable[..., Any] = impl.function
    return HookImplementation(
        plugin=impl.plugin_name,
        hook=hook,
        call=positional(function, HOOKS[hook].arguments, tuple(signature(function).parameters)),
        is_async=iscoroutinefunction(function),
        timeout=None if marks.timeout is None else float(marks.timeout),
        thread=marks.thread,
        required=marks.required,
        strict=getattr(impl.plugin, "strict", False) is True,
        location=location(function),
    )


def positional(function: Callable[..., Any], arguments: tuple[str, ...], wanted: Sequence[str]) -> Callable[..., Any]:
    """A callable that takes `arguments` and passes `wanted` on; the function itself where they are the same.

    Examples:
        >>> positional(lambda result, run: (result, run), ("run", "call", "result"), ("result", "run"))(1, 2, 3)
        (3, 1)
    """
    if tuple(wanted) == arguments:
        return function
    passing: Callable[..., Any] = _adapter(arguments, tuple(wanted))(function)
    return passing


@cache
def _adapter(arguments: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[..., Any]:
    # A compiled lambda costs one frame; a closure that picks by index costs a tuple and a loop as well. The names come
    # from our own specifications.
    made: Callable[..., Any] = eval(f"lambda _f: lambda {', '.join(arguments)}: _f({', '.join(wanted)})", {})
    return made


def location(function: Callable[..., object]) -> str:
    """`file:line` where a function is defined, through whatever decorators wrap it."""
    from inspect import unwrap

    code = getattr(unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "(unknown place)"


_PLAIN = Marks()
