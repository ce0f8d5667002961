"""Frozen keyword-only records, for messages and events: what a frozen slotted dataclass is, at a fifth of its import cost.

`@dataclass(frozen=True, slots=True)` compiles five functions for each class; with some eighty record types that alone
was a third of the import of the package. Here a class costs a dictionary walk when it is defined, its constructor is
compiled when the first instance is made, and the dataclass protocol (`dataclasses.fields`, `replace`, pydantic) is
answered when somebody asks. Type checkers see ordinary frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, dataclass_transform

__all__ = ["Record"]

_MISSING: Any = object()


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=True)
class RecordMeta(type):
    """Turns annotations into slots, and remembers defaults for the constructor."""

    _record_fields: dict[str, str]
    _record_defaults: dict[str, Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RecordMeta:
        fields: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        for base in reversed(bases):
            fields.update(getattr(base, "_record_fields", {}))
            defaults.update(getattr(base, "_record_defaults", {}))
        own = [
            key
            for key, hint in namespace.get("__annotations__", {}).items()
            if not str(hint).startswith(("ClassVar", "typing.ClassVar"))
        ]
        annotations = namespace.get("__annotations__", {})
        slots = [key for key in own if key not in fields]
        for key in own:
            fields[key] = annotations[key]
            if key in namespace:
                defaults[key] = namespace.pop(key)
        namespace["__slots__"] = tuple(slots)
        namespace["_record_fields"] = fields
        namespace["_record_defaults"] = defaults
        return super().__new__(mcs, name, bases, namespace)

    def __getattr__(cls, name: str) -> Any:
        # Reached only for names the class does not have: the dataclass protocol, made on demand.
        if name in ("__dataclass_fields__", "__dataclass_params__") and "_record_fields" in cls.__dict__:
            _become_dataclass(cls)
            return cls.__dict__[name]
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


def _become_dataclass(cls: RecordMeta) -> None:
    """Answer the dataclass protocol, through a twin that the real decorator was applied to."""
    import dataclasses
    import sys

    module = sys.modules[cls.__module__]
    namespace: dict[str, Any] = {"__annotations__": dict(cls._record_fields), "__module__": cls.__module__}
    for key, value in cls._record_defaults.items():
        namespace[key] = value if getattr(type(value), "__hash__", None) else dataclasses.field(default_factory=value.copy)
    twin: Any = dataclasses.dataclass(frozen=True, kw_only=True, init=False, eq=False, repr=False)(
        type(cls.__name__, (), namespace)
    )
    assert module is not None
    type.__setattr__(cls, "__dataclass_params__", twin.__dataclass_params__)
    type.__setattr__(cls, "__dataclass_fields__", twin.__dataclass_fields__)


def _compile_init(cls: RecordMeta) -> Callable[..., None]:
    """The constructor: keyword-only, straight into the slots."""
    scope: dict[str, Any] = {}
    params: list[str] = []
    body: list[str] = []
    for key in cls._record_fields:
        scope[f"_set_{key}"] = getattr(cls, key).__set__
        if key in cls._record_defaults:
            scope[f"_default_{key}"] = cls._record_defaults[key]
            params.append(f"{key}=_default_{key}")
        else:
            params.append(key)
        body.append(f"    _set_{key}(self, {key})")
    signature = f"self, *, {', '.join(params)}" if params else "self"
    if "__post_init__" in dir(cls):
        body.append("    self.__post_init__()")
    exec(f"def __init__({signature}):\n" + ("\n".join(body) or "    return"), scope)  # noqa: S102
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _first_init(self: Record, **values: Any) -> None:
    """Stands in until the first instance is made, then is replaced by the compiled constructor."""
    cls = type(self)
    init = _compile_init(cls)
    type.__setattr__(cls, "__init__", init)
    init(self, **values)


class Record(metaclass=RecordMeta):
    """Base of frozen, keyword-only, slotted records. Compare by value; copy with `replace`; pickle as usual."""

    _record_fields: ClassVar[dict[str, str]]
    _record_defaults: ClassVar[dict[str, Any]]

    if not __import__("typing").TYPE_CHECKING:
        __init__ = _first_init

    def __init_subclass__(cls) -> None:
        if "__init__" not in cls.__dict__:
            type.__setattr__(cls, "__init__", _first_init)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make a changed copy with .replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        Raises:
            TypeError: a name that is not a field.
        """
        values = {key: getattr(self, key) for key in self._record_fields}
        values.update(changes)
        return type(self)(**values)

    def _items(self) -> Iterator[tuple[str, Any]]:
        return ((key, getattr(self, key)) for key in self._record_fields)

    def __repr__(self) -> str:
        shown = (f"{key}={value!r}" for key, value in self._items() if value is not self._record_defaults.get(key, _MISSING))
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(value == getattr(other, key) for key, value in self._items())

    def __hash__(self) -> int:
        return hash((type(self), *(value for _, value in self._items())))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self._items()))


def _rebuild(cls: type[Record], values: dict[str, Any]) -> Record:
    return cls(**values)
