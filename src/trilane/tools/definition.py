"""A tool: a function with a name, a description, the schema of its arguments, and how it may be run.

Running it (tasks, threads, timeouts, attempts) is in `_batch.py`; what it may see of the run is in `context.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from trilane.errors import AgentProtocolError, ToolDefinitionError
from trilane.messages import Effect, clean_text
from trilane.models import ToolSpec

from .callables import Kind, kind_of, local_names, name_of, origin_of, place_of, signature_of
from .hints import SchemaArguments
from .options import ToolOptions, checked, mark_of
from .schema import Arguments, SignatureArguments

if TYPE_CHECKING:
    from typing import Unpack

    from pydantic import JsonValue

__all__ = ["Tool", "as_tool", "check_tools"]

_BUILT = "__trilane_built_tool__"

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_LONGEST_NAME = 64


class Tool:
    """A tool, ready to be offered. Immutable; made by `as_tool`, `Tool.from_function` or `Tool.external`.

    Attributes:
        name: Name for the model, at most 64 of the characters a-z, A-Z, 0-9, _ and -.
        description: What it does, for the model.
        function: What is called; None if it is answered from outside.
        is_external: True if it is answered from outside, see `Tool.external`.
        kind: What calling the function gives. "sync" ones may still return an awaitable.
        deps_type: X where the context parameter is annotated `ToolContext[X]`, else None.
        context_parameter: Name of the parameter that gets the context, or "".
        timeout: Seconds for one attempt, or None.
        attempts: How often it may be tried.
        parallel: Whether it may run beside other tools.
        approval: Whether each call needs an approval.
        effect: What running it twice does.
        on_error: Whether an exception becomes a result or fails the run.
        max_result_chars: Length from which results are cut, or None.
        run_on: Where a function that is not async runs.
        reconcile: Called for an interrupted call on resume, or None.
        origin: Where the function was written, for messages.

    Raises:
        ToolDefinitionError: it cannot be offered; the message names the function, the parameter and the cure.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_given",
        "_positional",
        "_spec",
        "approval",
        "attempts",
        "context_parameter",
        "deps_type",
        "description",
        "effect",
        "function",
        "is_external",
        "kind",
        "max_result_chars",
        "name",
        "on_error",
        "origin",
        "parallel",
        "reconcile",
        "run_on",
        "timeout",
    )
    name: str
    description: str
    function: Callable[..., object] | None
    is_external: bool
    kind: Kind
    deps_type: Any
    context_parameter: str
    timeout: float | None
    attempts: int
    parallel: bool
    approval: bool
    effect: Effect
    on_error: Literal["result", "raise"]
    max_result_chars: int | None
    run_on: Literal["thread", "loop"]
    reconcile: Callable[..., object] | None
    origin: str

    def __init__(self) -> None:
        raise ToolDefinitionError("Make tools with `@tool`, `Tool.from_function(...)` or `Tool.external(...)`.")

    @classmethod
    def from_function(
        cls,
        function: Callable[..., object],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, object] | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """A tool that calls `function`. Options given here win over those of `@tool`.

        Args:
            function: Any callable but a class: functions, methods, partials, instances with `__call__`.
            name: Name for the model; the function's own by default. A lambda needs one.
            description: For the model; from the docstring by default.
            parameters: JSON Schema of the arguments, in place of the signature; they are then passed by keyword.
            options: As for `tool`.

        Raises:
            ToolDefinitionError: it cannot be a tool; the message says why and what to do.
        """
        if not callable(function) or isinstance(function, type):
            what = "is a class; pass an instance or a function" if isinstance(function, type) else "cannot be called"
            if not isinstance(function, type) and callable(getattr(function, "as_tool", None)):
                agent = getattr(function, "name", "agent")
                raise ToolDefinitionError(
                    f"The agent {agent!r} is not a tool by itself: pass what its `as_tool(description=...)` returns."
                )
            raise ToolDefinitionError(f"{function!r} is not a tool: it {what}.")
        given = {"name": name, "description": description, "parameters": parameters, **options}
        mark = mark_of(function)
        origin = place_of(function)
        found = name or (mark and mark.given.get("name")) or name_of(function)
        if not found:
            raise ToolDefinitionError(f"{origin} has no name; give one: `Tool.from_function(f, name=...)`.")
        merged = {**(mark.given if mark else {}), **options}
        label = f"Tool {found!r} ({origin})"
        text = description if description is not None else mark.given.get("description") if mark else None
        made = _start(cls, found, checked(merged, label), label)
        _attach(made, function, parameters, text, mark.names if mark else local_names(function), label)
        made._set(function=function, is_external=False, origin=origin, _given=("from_function", function, given))
        return made

    @classmethod
    def external(
        cls,
        *,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, object] | Callable[..., object],
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """A tool without a function: its calls are answered from outside, by `reply` or through `RuntimeQueues`.

        Args:
            name: Name for the model.
            description: For the model; from the docstring if `parameters` is a function.
            parameters: JSON Schema of the arguments, or a function with their signature. It is never called.
            options: As for `tool`.

        Raises:
            ToolDefinitionError: the name, the schema or an option cannot be used.
        """
        label = f"Tool {name!r} (external)"
        made = _start(cls, name, checked(dict(options), label), label)
        given = {"name": name, "description": description, "parameters": parameters, **options}
        if callable(parameters):
            _attach(made, parameters, None, description, local_names(parameters), label)
        else:
            _attach_schema(made, parameters, description, label)
        made._set(function=None, is_external=True, kind="async", origin="external", _given=("external", None, given))
        return made

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """The JSON Schema of the arguments: a copy. Made at the first use.

        Raises:
            ToolDefinitionError: a type has no schema; tools with types that may fail find out when they are made.
        """
        import copy

        return copy.deepcopy(self._arguments.parameters)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        if self._spec is None:
            spec = ToolSpec(name=self.name, description=self.description, parameters=self._arguments.parameters)
            self._set(_spec=spec)
        assert self._spec is not None
        return self._spec

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The keyword arguments for `call`, from what the model sent.

        Safe conversions are made (text to a number, a whole float to an int, JSON text to a list or an object); text
        parameters take text only. What was left out stays out, so that the function's own default is used.

        Raises:
            ToolArgumentsError: they cannot be used; the text tells the model about every problem.
        """
        return self._arguments.bind(arguments)

    def call(self, kwargs: Mapping[str, object], context: object = None) -> object:
        """Call the function with bound arguments, and with `context` where its signature wants it.

        Returns whatever the function returns, be it a coroutine, a generator or another awaitable; raises what it
        raises.

        Raises:
            AgentProtocolError: the tool is external.
        """
        if self.function is None:
            raise AgentProtocolError(f"Tool {self.name!r} is external; its calls are answered from outside.")
        if not self._positional:
            if self.context_parameter:
                return self.function(**kwargs, **{self.context_parameter: context})
            return self.function(**kwargs)
        named = dict(kwargs)
        if self.context_parameter:
            named[self.context_parameter] = context
        wanted = [name for name, _ in self._positional if name in named]
        args: list[object] = []
        for name, default in self._positional:
            if len(wanted) == 0:
                break  # the rest keeps its defaults
            if name in named:
                wanted.remove(name)
            args.append(named.pop(name, default))
        return self.function(*args, **named)

    def reconciling(self) -> Tool:
        """The tool that is called instead for an interrupted call, where this one has a `reconcile` function.

        Raises:
            ToolDefinitionError: it has none.
        """
        if self.reconcile is None:
            raise ToolDefinitionError(f"Tool {self.name!r} has no reconcile function.")
        return Tool.from_function(
            self.reconcile,
            name=self.name,
            effect="idempotent",
            timeout=self.timeout,
            max_result_chars=self.max_result_chars,
        )

    _arguments: Arguments
    _given: tuple[str, Any, dict[str, Any]]
    _positional: tuple[tuple[str, Any], ...]
    _spec: ToolSpec | None

    def _set(self, **values: object) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Tool is frozen; make another one with `Tool.from_function(..., {name}=...)`")

    def __copy__(self) -> Tool:
        return self

    def __deepcopy__(self, memo: object) -> Tool:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._given

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, {self.origin})"


def as_tool(tool: Tool | Callable[..., object]) -> Tool:
    """The tool for a function, with the options `@tool` gave it. The same function gives the same `Tool`.

    Raises:
        ToolDefinitionError: it cannot be a tool.
    """
    if isinstance(tool, Tool):
        return tool
    # Kept on the function, not in a table: the tool refers to its function, and a table would keep both for ever.
    # Decorators copy attributes to other functions, and `@tool` may come late, so both are compared.
    mark = mark_of(tool)
    found = getattr(tool, "__dict__", {}).get(_BUILT)
    if found is not None and found[0] is mark and found[1].function is tool:
        built: Tool = found[1]
        return built
    made = Tool.from_function(tool)
    if type(tool) is type(as_tool):
        setattr(tool, _BUILT, (mark, made))
    return made


def check_tools(tools: Iterable[Tool | Callable[..., object]]) -> dict[str, Tool]:
    """Tools by name, in the order given.

    Raises:
        ToolDefinitionError: one cannot be a tool, or two have the same name.
    """
    found: dict[str, Tool] = {}
    for item in tools:
        made = as_tool(item)
        other = found.setdefault(made.name, made)
        if other is not made:
            raise ToolDefinitionError(
                f"Two tools are named {made.name!r}: {other.origin} and {made.origin}. Give one of them another name "
                "with `@tool(name=...)` or `Tool.from_function(..., name=...)`."
            )
    return found


def _start(cls: type[Tool], name: str, options: dict[str, Any], label: str) -> Tool:
    if len(name) > _LONGEST_NAME or not name or not _LEGAL.issuperset(name):
        raise ToolDefinitionError(
            f"{label}: the name is not one that providers take. Use 1 to {_LONGEST_NAME} of the characters a-z, A-Z, "
            "0-9, _ and -, with `name=`."
        )
    made = object.__new__(cls)
    made._set(name=name, _spec=None, _positional=(), context_parameter="", deps_type=None, **options)
    return made


def _attach(
    made: Tool,
    function: Callable[..., object],
    parameters: Mapping[str, object] | None,
    description: str | None,
    names: dict[str, Any],
    label: str,
) -> None:
    """Read signature and docstring of `function` into `made`."""
    from .docstrings import parse_docstring

    doc = parse_docstring(_docstring(function))
    made._set(kind=kind_of(function))
    if parameters is not None:
        _attach_schema(made, parameters, doc.description if description is None else description, label)
        if not hasattr(origin_of(function), "__code__"):
            return
    signature = signature_of(function, label, names)
    made._set(context_parameter=signature.context_parameter, deps_type=signature.deps_type)
    made._set(_positional=signature.positional)
    if parameters is None:
        made._set(
            _arguments=SignatureArguments(signature, doc.parameters, label, names),
            description=clean_text(doc.description if description is None else description),
        )


def _attach_schema(made: Tool, parameters: Mapping[str, object], description: str | None, label: str) -> None:
    if not isinstance(parameters, Mapping):
        raise ToolDefinitionError(f"{label}: `parameters` must be a JSON Schema or a function, got {parameters!r}.")
    made._set(_arguments=SchemaArguments(parameters, label), description=clean_text(description or ""))


def _docstring(function: Callable[..., object]) -> str | None:
    """The docstring a user wrote for `function`; not the one of `partial` or of a class's base."""
    import inspect

    text = inspect.getdoc(origin_of(function))
    if text is None and not hasattr(function, "__code__"):
        owner = getattr(function, "__self__", None)
        if owner is not None:  # a method that overrides one with a docstring
            return inspect.getdoc(function)
        text = type(function).__doc__ if type(function).__module__ not in ("builtins", "functools") else None
    return text


def _rebuild(how: str, function: Any, given: dict[str, Any]) -> Tool:
    made: Tool = Tool.from_function(function, **given) if how == "from_function" else Tool.external(**given)
    return made
