"""The `@tool` decorator and the options of tools. What is made of them is in `definition.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar, overload

from trilane.errors import ToolDefinitionError
from trilane.messages import Effect

from .callables import local_names, place_of

__all__ = ["Mark", "ToolOptions", "checked", "mark_of", "tool"]

F = TypeVar("F", bound=Callable[..., object])

_MARK = "__trilane_tool__"


class ToolOptions(TypedDict, total=False):
    """How a tool may be run; the defaults are those of `tool`."""

    timeout: float | None
    attempts: int
    parallel: bool
    approval: bool
    effect: Effect
    on_error: Literal["result", "raise"]
    max_result_chars: int | None
    run_on: Literal["thread", "loop"]
    reconcile: Callable[..., object] | None


_DEFAULTS: ToolOptions = {
    "timeout": None,
    "attempts": 1,
    "parallel": True,
    "approval": False,
    "effect": "unsafe",
    "on_error": "result",
    "max_result_chars": 20000,
    "run_on": "thread",
    "reconcile": None,
}


class Mark:
    """What `@tool` leaves on a function."""

    __slots__ = ("given", "names")

    def __init__(self, given: dict[str, Any], names: dict[str, Any]) -> None:
        self.given = given
        self.names = names


@overload
def tool(f: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    attempts: int = 1,
    parallel: bool = True,
    approval: bool = False,
    effect: Effect = "unsafe",
    on_error: Literal["result", "raise"] = "result",
    max_result_chars: int | None = 20000,
    run_on: Literal["thread", "loop"] = "thread",
    reconcile: Callable[..., object] | None = None,
) -> Callable[[F], F]: ...
def tool(f: Callable[..., object] | None = None, /, **options: Any) -> Any:
    """Mark a function as a tool. It stays the same function and can be called as before.

    The schema comes from the signature, the descriptions from the docstring. A parameter annotated `ToolContext` gets
    the context and is not shown to the model.

    Args:
        f: A function, method, or any callable that takes attributes.
        name: Name for the model; the function's own by default.
        description: For the model; the docstring without its sections by default.
        timeout: Seconds for one attempt; None is no limit.
        attempts: How often it may be tried; more than 1 needs an effect other than "unsafe".
        parallel: False keeps it from running beside other tools of the same run.
        approval: True asks before each call.
        effect: What running it twice does: "read" nothing, "idempotent" the same as once, "unsafe" harm.
        on_error: "result" tells the model about an exception, "raise" fails the run with it.
        max_result_chars: Longer results are cut in the middle; None is no limit.
        run_on: Where a function that is not async runs: in a "thread", or in the event "loop".
        reconcile: Called on resume for a call that was interrupted, to say what became of it.

    Raises:
        ToolDefinitionError: an option has no meaning, or the callable takes no attributes.
    """
    if f is None:
        return lambda function: _mark(function, options)
    if not callable(f) and not hasattr(f, "__func__"):
        raise ToolDefinitionError(f"@tool got {f!r}, which cannot be called. Options are given by keyword.")
    return _mark(f, options)


def _mark(function: Any, options: dict[str, Any]) -> Any:
    checked(options, f"The tool {place_of(function)}")
    target = getattr(function, "__func__", function)
    try:
        setattr(target, _MARK, Mark(options, local_names(function)))
    except (AttributeError, TypeError) as error:
        raise ToolDefinitionError(
            f"@tool cannot mark {place_of(function)}, it takes no attributes; use `Tool.from_function(...)` instead."
        ) from error
    return function


def mark_of(function: Any) -> Mark | None:
    """What `@tool` left on the function, also below other decorators; None if there is nothing."""
    while True:
        mark = getattr(function, _MARK, None)
        if isinstance(mark, Mark):
            return mark
        if type(function).__name__ != "partial" or not hasattr(function, "func"):
            return None
        function = function.func


def checked(options: dict[str, Any], label: str) -> dict[str, Any]:
    """All options with their values.

    Raises:
        ToolDefinitionError: one has no meaning.
    """
    unknown = options.keys() - _DEFAULTS.keys() - {"name", "description"}
    if unknown:
        raise ToolDefinitionError(
            f"{label}: there is no option {', '.join(sorted(unknown))}; options are name, description, "
            f"{', '.join(_DEFAULTS)}."
        )
    values: dict[str, Any] = {key: options.get(key, default) for key, default in _DEFAULTS.items()}
    for key, choices in (
        ("effect", ("read", "idempotent", "unsafe")),
        ("on_error", ("result", "raise")),
        ("run_on", ("thread", "loop")),
    ):
        if values[key] not in choices:
            raise ToolDefinitionError(f"{label}: {key} must be one of {', '.join(choices)}, not {values[key]!r}.")
    timeout, limit, attempts = values["timeout"], values["max_result_chars"], values["attempts"]
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < float("inf")):
        raise ToolDefinitionError(f"{label}: timeout must be a number of seconds above 0, or None, not {timeout!r}.")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise ToolDefinitionError(f"{label}: max_result_chars must be above 0, or None for no limit, not {limit!r}.")
    if not isinstance(attempts, int) or attempts < 1:
        raise ToolDefinitionError(f"{label}: attempts must be 1 or more, not {attempts!r}.")
    if attempts > 1 and values["effect"] == "unsafe":
        raise ToolDefinitionError(
            f"{label}: attempts={attempts} would repeat an unsafe effect. Say what repeating it does: "
            'effect="read" or effect="idempotent".'
        )
    if values["reconcile"] is not None and not callable(values["reconcile"]):
        raise ToolDefinitionError(f"{label}: reconcile must be a function, not {values['reconcile']!r}.")
    return values
