"""The two markers: `hookimpl` for a plugin's functions, `hookspec` for the catalogue's own.

They only write down what was asked for. Whether it makes sense is checked when the plugin is registered
(`plugins/checks.py`), because only then the plugin's name is known. pluggy is not imported here: marking is done while
modules are imported, and an agent without plugins never needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, overload

from trilane._records import Record

if TYPE_CHECKING:
    from pluggy import HookspecOpts

__all__ = ["Marks", "hookimpl", "hookspec"]

F = TypeVar("F", bound=Callable[..., object])

# Where pluggy's own markers for the project "trilane" put their options, so that both kinds of marker are understood.
IMPL_ATTRIBUTE = "trilane_impl"
SPEC_ATTRIBUTE = "trilane_spec"


class Marks(Record):
    """What `hookimpl` knows beyond pluggy's options.

    Attributes:
        before: Plugins that come later in the order.
        after: Plugins that come earlier in the order.
        timeout: Seconds one call may take; None for the agent's `hook_timeout`.
        thread: True to call a plain function in a worker thread.
        required: True if its failure withholds the value it was called for.
    """

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    timeout: float | None = None
    thread: bool = False
    required: bool = False


@overload
def hookimpl(function: F, /) -> F: ...


@overload
def hookimpl(
    *,
    tryfirst: bool = False,
    trylast: bool = False,
    before: str | tuple[str, ...] = (),
    after: str | tuple[str, ...] = (),
    timeout: float | None = None,
    thread: bool = False,
    required: bool = False,
    optionalhook: bool = False,
    wrapper: bool = False,
    hookwrapper: bool = False,
) -> Callable[[F], F]: ...


def hookimpl(
    function: F | None = None,
    /,
    *,
    tryfirst: bool = False,
    trylast: bool = False,
    before: str | tuple[str, ...] = (),
    after: str | tuple[str, ...] = (),
    timeout: float | None = None,
    thread: bool = False,
    required: bool = False,
    optionalhook: bool = False,
    wrapper: bool = False,
    hookwrapper: bool = False,
) -> F | Callable[[F], F]:
    """Mark a function as a plugin's implementation of the hook of the same name.

    Plain, or with options::

        @hookimpl
        def before_run(self, run): ...

        @hookimpl(tryfirst=True, after="audit", timeout=5)
        async def decide_tool(self, run, call): ...

    An implementation names the arguments it wants, in any order; it may leave out the others. `def` and `async def`
    both work, except where the hook says that it is sync.

    The order options place a plugin among the others on the way *in*. Hooks that run in reverse (`after_*`,
    `on_success`, `on_error`, `on_cancel`, `close_run`) run the same order backwards, so that plugins nest like layers:
    with `before="audit"` the plugin is the outer layer, called before `audit` going in and after it coming out.

    Args:
        function: Given by `@hookimpl` without parentheses.
        tryfirst: Come before the plugins that do not ask for it.
        trylast: Come after the plugins that do not ask for it.
        before: Plugin names to come before. A name that ends in `?` may be missing.
        after: Plugin names to come after. A name that ends in `?` may be missing.
        timeout: Seconds that one call may take, instead of the agent's `hook_timeout`.
        thread: Call this plain function in a worker thread, so that it may block.
        required: On `after_model`, `after_tool` and `on_delta`: if it fails, withhold the value and fail the run.
        optionalhook: Do not complain if this version of Trilane has no such hook.
        wrapper: Refused at registration: wrap with `around_model` or `around_tool` instead.
        hookwrapper: Refused at registration, like `wrapper`.

    Returns:
        The function itself.
    """
    options: dict[str, object] = {
        "wrapper": wrapper,
        "hookwrapper": hookwrapper,
        "optionalhook": optionalhook,
        "tryfirst": tryfirst,
        "trylast": trylast,
        "specname": None,
        "marks": Marks(
            before=(before,) if isinstance(before, str) else tuple(before),
            after=(after,) if isinstance(after, str) else tuple(after),
            timeout=timeout,
            thread=thread,
            required=required,
        ),
    }

    def mark(target: F) -> F:
        setattr(target, IMPL_ATTRIBUTE, options)
        return target

    return mark if function is None else mark(function)


@overload
def hookspec(function: F, /) -> F: ...


@overload
def hookspec(
    *, warn_on_impl: Warning | None = None, warn_on_impl_args: Mapping[str, Warning] | None = None
) -> Callable[[F], F]: ...


def hookspec(
    function: F | None = None,
    /,
    *,
    warn_on_impl: Warning | None = None,
    warn_on_impl_args: Mapping[str, Warning] | None = None,
) -> F | Callable[[F], F]:
    """Mark a function as the specification of a hook.

    Args:
        function: Given by `@hookspec` without parentheses.
        warn_on_impl: Warning for everybody who implements the hook: it is deprecated.
        warn_on_impl_args: Warning for everybody who takes one of these arguments.

    Returns:
        The function itself.
    """

    def mark(target: F) -> F:
        options: HookspecOpts = {
            "firstresult": False,
            "historic": False,
            "warn_on_impl": warn_on_impl,
            "warn_on_impl_args": warn_on_impl_args,
        }
        setattr(target, SPEC_ATTRIBUTE, options)
        return target

    return mark if function is None else mark(function)
