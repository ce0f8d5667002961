"""Frozen keyword-only records, for messages and events: frozen slotted dataclasses that cost little to define.

`@dataclass(frozen=True, slots=True)` compiles five functions for each class; with some eighty record types that alone
was a third of the import of the package. Here a class costs a dictionary walk when it is defined, its constructor is
compiled when the first instance is made, and the dataclass protocol (`dataclasses.fields`, `replace`, pydantic) is
answered when somebody asks. Type checkers see ordinary frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

__all__ = [
    "ErrorAsJson",
    "ListsOnDemand",
    "Record",
    "adapter",
    "error_line",
    "error_text",
    "error_words",
    "made_before",
    "maker",
    "stamped",
    "stamped_from",
]

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

    # The dataclass protocol, made on demand. Properties of the metaclass, because a class attribute would be inherited
    # by subclasses that have more fields.
    @property
    def __dataclass_fields__(cls) -> Any:
        return _twin(cls).__dataclass_fields__

    @property
    def __dataclass_params__(cls) -> Any:
        return _twin(cls).__dataclass_params__


_twins: dict[RecordMeta, Any] = {}


def _twin(cls: RecordMeta) -> Any:
    """A real dataclass with the same fields, whose description of them is given as that of `cls`."""
    found = _twins.get(cls)
    if found is None:
        import dataclasses

        namespace: dict[str, Any] = {"__annotations__": dict(cls._record_fields), "__module__": cls.__module__}
        for key, value in cls._record_defaults.items():
            hashable = getattr(type(value), "__hash__", None)
            namespace[key] = value if hashable else dataclasses.field(default_factory=value.copy)
        make = dataclasses.dataclass(frozen=True, kw_only=True, init=False, eq=False, repr=False)
        found = _twins[cls] = make(type(cls.__name__, (), namespace))
    return found


def _draft(cls: RecordMeta) -> type:
    """A twin with the same layout whose attributes can be set."""
    # Setting nine slots of a frozen instance through their descriptors takes twice the time of all the rest of its
    # constructor. So the constructor lets the instance be of this class while it fills it.
    namespace = {
        "__slots__": cls.__dict__["__slots__"],
        "__module__": cls.__module__,
        "__init__": object.__init__,
        # Both: only then the interpreter sees that plain stores will do.
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
    }
    found = _drafts.get(cls)
    if found is None:
        found = _drafts[cls] = type.__new__(RecordMeta, cls.__name__, cls.__bases__, namespace)
    return found


_drafts: dict[RecordMeta, type] = {}


_set_class = object.__dict__["__class__"].__set__


def stamped(event: Any) -> Callable[..., Any]:
    """A function that makes an event of that class, stamped with where a run is now.

    It is given the run and, in their order, the other fields. It takes half the time of calling the class: it is no
    class, so nothing is dispatched.
    """
    found = _stamped.get(event)
    if found is None:
        names = [key for key in event._record_fields if key not in _STAMP and key not in _CONSTANT]
        found = _stamped[event] = _maker(event, ", ".join(["run", *names]), {key: key for key in names})
    return found


def stamped_from(event: Any) -> Callable[..., Any]:
    """The same, given the run and a dictionary of the other fields: whoever has one need not take it apart."""
    found = made_before.get(event)
    if found is None:
        values = {}
        for key in event._record_fields:
            if key not in _STAMP and key not in _CONSTANT:
                known = key in event._record_defaults
                values[key] = f"fields.get({key!r}, _default_{key})" if known else f"fields[{key!r}]"
        found = made_before[event] = _maker(event, "run, fields", values)
    return found


def maker(record: Any) -> Callable[..., Any]:
    """A function that makes a record from its fields, in their order without `kind` and `version`.

    It takes less than half the time of calling the class: for the few places that every turn passes.
    """
    found = _makers.get(record)
    if found is None:
        names = [key for key in record._record_fields if key not in _CONSTANT]
        params = [f"{key}=_default_{key}" if key in record._record_defaults else key for key in names]
        found = _makers[record] = _maker(record, ", ".join(params), {key: key for key in names})
    return found


def _maker(cls: Any, params: str, values: Mapping[str, str]) -> Callable[..., Any]:
    scope: dict[str, Any] = {f"_default_{key}": value for key, value in cls._record_defaults.items()}
    scope |= {"_draft": _draft(cls), "_final": cls}
    code = [f"def make({params}):", "    made = _draft()"]
    for key in cls._record_fields:
        value = values.get(key) or _STAMP.get(key) or f"_default_{key}"
        code.append(f"    made.{key} = {value}")
    exec("\n".join([*code, "    made.__class__ = _final", "    return made"]), scope)
    make: Callable[..., Any] = scope["make"]
    return make


_stamped: dict[Any, Callable[..., Any]] = {}
_makers: dict[Any, Callable[..., Any]] = {}

#: What `stamped_from` has given, by event, for whoever is in a hurry.
made_before: dict[Any, Callable[..., Any]] = {}

#: Fields of every event, and where they come from; and those that are the same in all records of a class.
_STAMP = {"seq": "run.seq", "run_id": "run.run_id", "session_id": "run.session_id", "phase": "run.state._phase"}
_CONSTANT = ("type", "milestone", "kind", "version")


def _compile_init(cls: RecordMeta) -> Callable[..., None]:
    """The constructor: keyword-only, straight into the slots."""
    params, body, scope = _assignments(cls, "self", {})
    signature = f"self, {params}" if params else "self"
    exec(f"def __init__({signature}):\n    _set_class(self, _draft)\n" + "\n".join(body), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _assignments(cls: RecordMeta, name: str, known: Mapping[str, str]) -> tuple[str, list[str], dict[str, Any]]:
    """Source of a constructor: its parameters, the statements that fill `name`, and the names they need.

    Fields that are `known` are no parameters, but expressions.
    """
    scope: dict[str, Any] = {"_set_class": _set_class, "_new": object.__new__, "_draft": _draft(cls), "_final": cls}
    params: list[str] = []
    body: list[str] = []
    for key in cls._record_fields:
        if key in known:
            body.append(f"    {name}.{key} = {known[key]}")
            continue
        if key not in cls._record_defaults:
            params.append(key)
        else:
            default = cls._record_defaults[key]
            params.append(f"{key}=_default_{key}")
            scope[f"_default_{key}"] = default
            if not getattr(type(default), "__hash__", None):  # a dict or list must not be shared between instances
                body.append(f"    if {key} is _default_{key}: {key} = {key}.copy()")
        body.append(f"    {name}.{key} = {key}")
    body.append(f"    {name}.__class__ = _final")
    if "__post_init__" in dir(cls):
        body.append(f"    {name}.__post_init__()")
    return (f"*, {', '.join(params)}" if params else ""), body, scope


def _first_init(self: Record, *given: Any, **values: Any) -> None:
    """Stands in until the first instance is made, then is replaced by the compiled constructor."""
    cls = type(self)
    init = _compile_init(cls)
    type.__setattr__(cls, "__init__", init)
    init(self, *given, **values)  # which refuses `given`, and says so by the record's own name


class Record(metaclass=RecordMeta):
    """Base of frozen, keyword-only, slotted records. Compare by value; copy with `replace`; pickle as usual."""

    _record_fields: ClassVar[dict[str, str]]
    _record_defaults: ClassVar[dict[str, Any]]

    if not TYPE_CHECKING:
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

    def to_json(self) -> str:
        """This record as one line of JSON."""
        text: str = adapter(type(self)).dump_json(self).decode()
        return text

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """The record that `to_json` wrote.

        Raises:
            pydantic.ValidationError: `data` is not such a record.
        """
        value: Self = adapter(cls).validate_json(data)
        return value

    if not TYPE_CHECKING:

        @property
        def __dataclass_fields__(self) -> Any:
            return _twin(type(self)).__dataclass_fields__

    def _items(self) -> Iterator[tuple[str, Any]]:
        return ((key, getattr(self, key)) for key in self._record_fields)

    def __repr__(self) -> str:
        defaults = self._record_defaults
        shown = [f"{key}={value!r}" for key, value in self._items() if value is not defaults.get(key, _MISSING)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(value == getattr(other, key) for key, value in self._items())

    def __hash__(self) -> int:
        return hash((type(self), *(value for _, value in self._items())))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self._items()))


class ListsOnDemand:
    """Base of classes with slots of which many instances live: the lists that are only annotated are made when needed.

    An empty list takes 56 bytes, and most of a run's are never used.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # Not with `__getattr__`: a class that has it pays for it with every attribute of every instance.
        for name, hint in getattr(cls, "__annotations__", {}).items():
            if name in cls.__dict__.get("__slots__", ()) and str(hint).startswith("list["):
                setattr(cls, name, _list_on_demand(cls.__dict__[name]))


def _list_on_demand(slot: Any) -> property:
    read, write = slot.__get__, slot.__set__

    def get(self: Any) -> list[Any]:
        try:
            found: list[Any] = read(self)
        except AttributeError:
            found = []
            write(self, found)
        return found

    return property(get, write)


_adapters: dict[Any, Any] = {}


def adapter(of: Any) -> Any:
    """The one pydantic `TypeAdapter` of a type, built at its first use."""
    found = _adapters.get(of)
    if found is None:
        import sys

        from pydantic import JsonValue, TypeAdapter

        for name, module in list(sys.modules.items()):
            if name.startswith("trilane.") and module.__dict__.get("JsonValue") == "JsonValue":
                module.__dict__["JsonValue"] = JsonValue
        found = _adapters[of] = TypeAdapter(of)
    return found


class ErrorAsJson:
    """Annotation that writes an exception as `{type, message}` and reads it back as a `RecordedError`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def read(value: Any) -> BaseException:
            if isinstance(value, BaseException):
                return value
            from .errors import RecordedError

            return RecordedError(str(value["type"]), str(value["message"]))

        return core_schema.no_info_plain_validator_function(
            read,
            json_schema_input_schema=core_schema.typed_dict_schema(
                {
                    "type": core_schema.typed_dict_field(core_schema.str_schema()),
                    "message": core_schema.typed_dict_field(core_schema.str_schema()),
                }
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda error: {
                    "type": getattr(error, "type", None) or type(error).__name__,
                    "message": error_text(error),
                },
                return_schema=core_schema.dict_schema(core_schema.str_schema(), core_schema.str_schema()),
            ),
        )


def error_text(error: BaseException) -> str:
    """What an error of anybody's says to users, as text that can be written in UTF-8."""
    text = getattr(error, "message", None)
    return (text if isinstance(text, str) else error_words(error)).encode("utf-8", "replace").decode()


def error_words(error: BaseException) -> str:
    """`str(error)` of an error of anybody's: one whose `__str__` raises must not break what reports it."""
    try:
        return str(error)
    except Exception:
        return "(no readable message)"


def error_line(error: BaseException) -> str:
    """The type of an error of anybody's, and what it says."""
    return f"{type(error).__name__}: {error_words(error)}"


def _rebuild(cls: type[Record], values: dict[str, Any]) -> Record:
    return cls(**values)
