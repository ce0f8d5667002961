"""What is checked before anything of a plugin is registered, so that a misspelt hook is an error and not silence.

pluggy checks part of this; here every finding names the plugin, the function, its place and the nearest right name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from trilane.errors import HookSpecError
from trilane.hookspecs import HOOKS, HookInfo, Marks
from trilane.hookspecs.markers import IMPL_ATTRIBUTE

from .implementations import location

__all__ = ["and_more", "check_object", "check_plugin", "nearest"]


def check_object(plugin: object, name: str) -> None:
    """Refuse what cannot be a plugin at all.

    Raises:
        HookSpecError: a class, a function, a container or a plain value.
    """
    if isinstance(plugin, type):
        raise HookSpecError(
            f"plugin {name!r} is the class {plugin.__name__}, not an instance; "
            f"write {plugin.__name__}() with the parentheses",
            plugin=name,
        )
    if inspect.isroutine(plugin):
        called = getattr(plugin, "__name__", "it")
        raise HookSpecError(
            f"plugin {name!r} is the function {called}, not a plugin; call it ({called}()) if it makes one, "
            "or give the module or object that holds the hook",
            plugin=name,
        )
    if type(plugin).__module__ == "builtins" and not isinstance(plugin, ModuleType):
        raise HookSpecError(
            f"{plugin!r} is not a plugin; give an instance, a module, the name of an installed plugin, or installed()",
            plugin=name,
        )


def check_plugin(plugin: object, name: str) -> dict[str, list[Callable[..., Any]]]:
    """Check everything in a plugin that is, or looks like, a hook implementation.

    Returns:
        Its functions for each hook.

    Raises:
        HookSpecError: the first finding.
    """
    found: dict[str, list[Callable[..., Any]]] = {}
    for attribute in dir(plugin):
        if attribute.startswith("__"):
            continue
        holder, function = _static_function(plugin, attribute)
        if holder is None:
            continue
        options = _options(holder)
        if options is None:
            if attribute in HOOKS:
                _refuse_unmarked(name, attribute, function or holder)
            continue
        if function is None:
            raise _finding(
                name,
                attribute,
                holder,
                f"is marked with @hookimpl but is a {type(holder).__name__}, not a function; "
                "make it a plain def or async def that calls what you have",
            )
        hook = str(options.get("specname") or attribute)
        info = HOOKS.get(hook)
        if info is not None:
            _check_function(name, hook, info, function, options)
            found.setdefault(hook, []).append(function)
        elif not options.get("optionalhook"):
            missing = f"is marked with @hookimpl, but there is no such hook{nearest(hook, HOOKS)}"
            raise _finding(name, hook, function, missing)
    return found


def _static_function(plugin: object, attribute: str) -> tuple[object | None, Callable[..., Any] | None]:
    """What carries the marker and the bound function, without running properties.

    The function is None for things that can be called but are not functions; both are None for everything else.
    """
    static = inspect.getattr_static(plugin, attribute, None)
    if isinstance(static, MemberDescriptorType):  # a slot: reading it runs no code of the plugin
        static = getattr(plugin, attribute, None)
    if static is None or isinstance(static, type):
        return None, None
    if isinstance(static, (FunctionType, MethodType, staticmethod, classmethod)):
        return static, getattr(plugin, attribute)
    if callable(static) or hasattr(static, "__wrapped__"):
        return static, None
    return None, None


def nearest(name: str, names: Collection[str]) -> str:
    """`; did you mean 'x'?`, or the names there are if none is near and they are few, or nothing.

    Capitals make no name another one.
    """
    from difflib import get_close_matches

    written = {one.lower(): one for one in sorted(names)}
    close = get_close_matches(name.lower(), written, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {written[close[0]]!r}?"
    return f"; there are: {', '.join(sorted(names))}" if 0 < len(names) <= 8 else ""


def and_more(hint: str, text: str) -> str:
    """`hint`, which `nearest` gave, and `text` after it: a part of the sentence, or another after a question."""
    return f"{hint} {text[0].upper()}{text[1:]}" if hint.endswith("?") else f"{hint}; {text}"


def _options(holder: object) -> dict[str, Any] | None:
    for carrier in (holder, getattr(holder, "__func__", None)):
        options = getattr(carrier, IMPL_ATTRIBUTE, None)
        if isinstance(options, dict):
            return options
    return None


def _refuse_unmarked(name: str, attribute: str, function: object) -> None:
    owner = getattr(function, "__qualname__", attribute).rpartition(".")[0].rpartition("<locals>.")[2]
    where = f" (defined in {owner})" if owner else ""
    raise _finding(
        name,
        attribute,
        function,
        f"has the name of a hook{where} but is not marked, so it would never be called; put @hookimpl above it, "
        "or rename it",
    )


def _check_function(
    name: str,
    hook: str,
    info: HookInfo,
    function: Callable[..., Any],
    options: Mapping[str, Any],
) -> None:
    for what in (*_shape(info, function), *_parameters(info, function), *_marks(info, function, options)):
        raise _finding(name, hook, function, what)


def _shape(info: HookInfo, function: Callable[..., Any]) -> Iterator[str]:
    inner = inspect.unwrap(function)
    for layer in (function, inner):
        if inspect.isgeneratorfunction(layer) or inspect.isasyncgenfunction(layer):
            what = "an async generator" if inspect.isasyncgenfunction(layer) else "a generator"
            cure = "return a list" if info.name in ("on_tool", "on_delta") else "use return instead of yield"
            yield f"is {what}, which nobody would iterate; {cure}"
        if info.sync and inspect.iscoroutinefunction(layer):
            yield "is async def, but this hook is sync: it is called where nothing can be awaited; make it a plain def"


def _parameters(info: HookInfo, function: Callable[..., Any]) -> Iterator[str]:
    takes = f"{info.name} has the arguments ({', '.join(info.arguments)})"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            yield f"takes {stars}{parameter.name}; name the arguments you want: {takes}"
        elif parameter.kind is parameter.KEYWORD_ONLY:
            yield f"has the keyword-only parameter {parameter.name!r}, but arguments are passed by position; {takes}"
        elif parameter.name not in info.arguments:
            right = nearest(parameter.name, info.arguments)
            yield f"takes {parameter.name!r}, which is not an argument of this hook{right}"
    bound_to = getattr(function, "__func__", None)
    if bound_to is not None and (first := next(iter(inspect.signature(bound_to).parameters), "")) in info.arguments:
        yield f"is a method whose first parameter is {first!r}: self is missing"


def _marks(info: HookInfo, function: Callable[..., Any], options: Mapping[str, Any]) -> Iterator[str]:
    if options.get("wrapper") or options.get("hookwrapper"):
        yield (
            "is marked wrapper=True, which cannot await what it wraps; implement around_model or around_tool, "
            "which get call_next"
        )
    if options.get("tryfirst") and options.get("trylast"):
        yield "is marked tryfirst and trylast; choose one"
    marks = options.get("marks")
    if not isinstance(marks, Marks):
        return
    if marks.required and not info.required_allowed:
        allowed = ", ".join(name for name, row in HOOKS.items() if row.required_allowed)
        yield f"is marked required=True, which only {allowed} can be"
    timeout = marks.timeout
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout < float("inf")):
        yield f"has timeout={timeout!r}; give a number of seconds above 0, or leave it out"
    if marks.thread:
        if inspect.iscoroutinefunction(function):
            yield "is async def and marked thread=True; threads are for plain functions that block, remove thread=True"
        elif info.sync or info.mode == "around":
            yield f"is marked thread=True, but {info.name} is always called where the run is; remove thread=True"


def _finding(name: str, hook: str, function: object, what: str) -> HookSpecError:
    where = location(function) if callable(function) else "(unknown place)"
    return HookSpecError(f"plugin {name!r}: {hook!r} at {where} {what}", plugin=name)
