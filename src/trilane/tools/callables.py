"""What a callable is, seen as a tool: its name, its kind, and its signature with annotations resolved.

What the annotations mean to a model is in `schema.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from trilane.errors import ToolDefinitionError

if TYPE_CHECKING:
    import inspect
    from types import CodeType, FrameType

__all__ = [
    "REQUIRED",
    "Kind",
    "Parameter",
    "Signature",
    "kind_of",
    "local_names",
    "name_of",
    "origin_of",
    "place_of",
    "signature_of",
    "unwrapped",
    "written_at",
]

_PLACE = "__trilane_place__"

Kind: TypeAlias = Literal["sync", "async", "generator", "async_generator"]
"""What calling the function gives: a value (perhaps an awaitable), a coroutine, a generator, an async generator."""

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()
"""In place of a default: the parameter has none. Compare by identity, defaults may have any `__eq__`."""


class Parameter(NamedTuple):
    """A parameter the model fills in. `annotation` is resolved; `typing.Any` where there is none."""

    name: str
    annotation: Any
    default: Any


class Signature(NamedTuple):
    """The signature of a tool.

    Attributes:
        parameters: What the model fills in, in order.
        extras: Name and annotation of `**kwargs`, or None.
        positional: Names passed by position, in order, with their defaults; the context may be among them.
        context_parameter: Name of the parameter that gets the `ToolContext`, or "".
        deps_type: X of `ToolContext[X]`, or None.
        reserved: Names that `**kwargs` may not carry, because they are filled in otherwise.
    """

    parameters: tuple[Parameter, ...]
    extras: tuple[str, Any] | None
    positional: tuple[tuple[str, Any], ...]
    context_parameter: str
    deps_type: Any
    reserved: frozenset[str]


def unwrapped(function: Callable[..., object]) -> Any:
    """What is behind partials and bound methods: a function, a builtin or a callable instance."""
    found: Any = function
    while True:
        if type(found).__name__ == "partial" and hasattr(found, "func"):
            found = found.func
        elif hasattr(found, "__func__"):  # bound methods, classmethods, staticmethods
            found = found.__func__
        else:
            return found


def origin_of(function: Callable[..., object]) -> Any:
    """The function whose source the user wrote: also behind decorators, and `__call__` of an instance."""
    found = unwrapped(function)
    if not hasattr(found, "__name__") and not isinstance(found, type):
        found = unwrapped(type(found).__call__)
    while hasattr(found, "__wrapped__"):
        found = unwrapped(found.__wrapped__)
    return found


def name_of(function: Callable[..., object]) -> str:
    """The name a function gives to its tool: "" where there is none to be proud of (a lambda)."""
    found = unwrapped(function)
    name: str = getattr(found, "__name__", "") or type(found).__name__
    return "" if name == "<lambda>" else name


def place_of(function: Callable[..., object]) -> str:
    """Where a function was written, for messages: `package.module.function, line 12`."""
    found = origin_of(function)
    known = getattr(found, "__dict__", {}).get(_PLACE)
    if known:
        return str(known)
    name = f"{getattr(found, '__module__', None) or '?'}.{getattr(found, '__qualname__', None) or type(found).__name__}"
    code = getattr(found, "__code__", None)
    return f"{name}, line {code.co_firstlineno}" if code is not None else name


def written_at(place: str, function: Callable[..., object]) -> Callable[..., object]:
    """`function`, which was made here for somebody: `place` is where, in the code that `place_of` should name."""
    setattr(function, _PLACE, place)
    return function


def kind_of(function: Callable[..., object]) -> Kind:
    """What calling `function` gives, as far as that can be known without calling it."""
    import inspect

    found = unwrapped(function)
    if not hasattr(found, "__code__") and not isinstance(found, type):
        found = unwrapped(type(found).__call__)
    if inspect.isasyncgenfunction(found):
        return "async_generator"
    if inspect.iscoroutinefunction(found):
        return "async"
    return "generator" if inspect.isgeneratorfunction(found) else "sync"


def signature_of(function: Callable[..., object], label: str, names: Mapping[str, Any]) -> Signature:
    """The signature of `function`, without what `partial` has already filled in.

    Args:
        function: Any callable.
        label: How messages call it.
        names: Local names its annotations may use, see `local_names`.

    Raises:
        ToolDefinitionError: it has no signature, or an annotation cannot be resolved.
    """
    import inspect

    try:
        raw = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise ToolDefinitionError(
            f"{label} has no signature that Python can read ({error}); wrap it in a function with annotated "
            "parameters, or give `parameters=` (a JSON Schema) to `Tool.from_function`."
        ) from error
    _refuse_unbound(function, raw, label)
    bound = _bound_keywords(function)
    resolve = _Resolver(function, label, names)
    parameters: list[Parameter] = []
    positional: list[tuple[str, Any]] = []
    extras: tuple[str, Any] | None = None
    context, deps_type = "", None
    for parameter in raw.parameters.values():
        if parameter.name in bound or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        annotation = Any if parameter.annotation is parameter.empty else resolve(parameter.name, parameter.annotation)
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_KEYWORD:
            extras = (parameter.name, annotation)
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append((parameter.name, default))
        found = _context_type(annotation)
        if found is None:
            parameters.append(Parameter(parameter.name, annotation, default))
        elif context:
            raise ToolDefinitionError(f"{label} has two context parameters, {context!r} and {parameter.name!r}.")
        else:
            context, deps_type = parameter.name, _deps_of(found)
    reserved = frozenset({context, *bound} - {""})
    return Signature(tuple(parameters), extras, tuple(positional), context, deps_type, reserved)


def local_names(function: Callable[..., object]) -> dict[str, Any]:
    """The local names that annotations of a function inside a function use, found while that function is running.

    With `from __future__ import annotations` the annotation of a local class is only a word; its meaning is gone when
    the defining function has returned. The frame is recognised by having the function's code among its constants.
    """
    found = origin_of(function)
    code = getattr(found, "__code__", None)
    if code is None or "<locals>" not in getattr(found, "__qualname__", ""):
        return {}
    import builtins
    import sys

    hints = [hint for name, hint in found.__annotations__.items() if name != "return"]
    wanted = {word for hint in hints if not _is_class(hint) for word in _words(hint)}
    if all(hasattr(builtins, word) for word in wanted) and all(
        hint.__module__ == "builtins" for hint in hints if _is_class(hint)
    ):
        return {}  # looking at the locals of a running frame keeps them alive until it returns
    names: dict[str, Any] = {}
    for frame in _defining_frames(code, sys._getframe(1)):
        # Classes too: those the annotations name may name others.
        local = frame.f_locals.items()
        names = {key: value for key, value in local if key in wanted or isinstance(value, type)} | names
    return names


def _is_class(annotation: object) -> bool:
    return isinstance(annotation, type) and not hasattr(annotation, "__origin__")


def _words(hint: object) -> Iterator[str]:
    """Identifiers in an annotation; in `list["Model"]` too, whose text is only in its `repr`."""
    word = ""
    for char in (hint if isinstance(hint, str) else repr(hint)) + " ":
        if char.isidentifier() or (word and char.isalnum()):
            word += char
        elif word:
            yield word
            word = ""


def _defining_frames(code: CodeType, frame: FrameType | None) -> Iterator[FrameType]:
    """Running frames that enclose `code` in the source, innermost first."""
    while frame is not None:
        if code in frame.f_code.co_consts:
            yield frame
            code = frame.f_code
        frame = frame.f_back


class _Resolver:
    """Turns the annotation of one parameter into a type."""

    def __init__(self, function: Callable[..., object], label: str, names: Mapping[str, Any]) -> None:
        self.function, self.label, self.names = function, label, names
        self.scopes: tuple[dict[str, Any], dict[str, Any]] | None = None

    def __call__(self, parameter: str, annotation: Any) -> Any:
        if _is_class(annotation):
            return annotation
        import typing

        holder = type("Holder", (), {})()
        holder.__annotations__ = {parameter: annotation}
        scope, local = self._scopes()
        try:
            return typing.get_type_hints(holder, scope, local, include_extras=True)[parameter]
        except NameError as error:
            cure = "Import it at run time, not only under TYPE_CHECKING"
            if "<locals>" in getattr(origin_of(self.function), "__qualname__", ""):
                cure += "; a class defined inside a function is found if the tool is decorated with @tool there"
            problem = f"cannot be resolved: {error}. {cure}."
        except Exception as error:  # annotations are arbitrary expressions and may raise anything
            problem = f"is not a type: {type(error).__name__}: {error}"
        shown = annotation if isinstance(annotation, str) else repr(annotation)
        raise ToolDefinitionError(f"{self.label}: the annotation {shown!s} of parameter {parameter!r} {problem}")

    def _scopes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.scopes is None:
            found = origin_of(self.function)
            local = dict(self.names)
            free = getattr(getattr(found, "__code__", None), "co_freevars", ())
            for name, cell in zip(free, getattr(found, "__closure__", None) or (), strict=False):
                try:
                    local.setdefault(name, cell.cell_contents)
                except ValueError:  # an empty cell: the name is assigned later
                    continue
            self.scopes = (getattr(found, "__globals__", {}), local)
        return self.scopes


def _refuse_unbound(function: Callable[..., object], raw: inspect.Signature, label: str) -> None:
    first = next(iter(raw.parameters.values()), None)
    if first is None or first.name not in ("self", "cls") or first.annotation is not first.empty:
        return
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    if owner and not owner.endswith("<locals>"):
        owner = owner.rpartition(".")[2]
        raise ToolDefinitionError(
            f"{label} is a method without its object: pass the method of an instance, `{owner.lower()}.{name}`, "
            f"not `{owner}.{name}`."
        )


def _bound_keywords(function: Any) -> frozenset[str]:
    """Names that partials have filled in by keyword; those filled in by position are not in the signature."""
    bound: set[str] = set()
    while True:
        if type(function).__name__ == "partial" and hasattr(function, "func"):
            bound.update(function.keywords)
            function = function.func
        elif hasattr(function, "__func__"):
            function = function.__func__
        else:
            return frozenset(bound)


def _context_type(annotation: Any) -> Any:
    """The `ToolContext` class or alias in an annotation, or None."""
    import typing

    candidates = (annotation, *typing.get_args(annotation)) if typing.get_origin(annotation) else (annotation,)
    for candidate in candidates:
        base = typing.get_origin(candidate) or candidate
        if isinstance(base, type) and getattr(base, "__trilane_tool_context__", False):
            return candidate
    return None


def _deps_of(context: Any) -> Any:
    """X of `ToolContext[X]`, or of a subclass of it; None if it is not said."""
    import typing

    arguments = typing.get_args(context)
    if not arguments:
        for base in getattr(context, "__orig_bases__", ()):
            origin = typing.get_origin(base)
            if origin is not None and getattr(origin, "__trilane_tool_context__", False):
                arguments = typing.get_args(base)
    return None if not arguments or isinstance(arguments[0], typing.TypeVar) else arguments[0]
