"""The arguments of a Python signature: their JSON Schema, and validation of what a model sent, both through pydantic.

Arguments described by a JSON Schema that somebody else wrote are in `hints.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trilane.errors import ToolDefinitionError
from trilane.messages import clean_text

from .arguments import ToolArgumentsError, expectation
from .callables import REQUIRED, Parameter, Signature
from .hints import Hint, copied

if TYPE_CHECKING:
    from pydantic import JsonValue, TypeAdapter

__all__ = ["Arguments", "SignatureArguments"]

_PLAIN_TYPES: frozenset[Any] = frozenset({str, int, float, bool, type(None), None, list, dict, object, Any})


class Arguments(Protocol):
    """What a tool takes."""

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """JSON Schema of the arguments: always an object. Shared, not to be changed."""
        ...

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The validated keyword arguments.

        Raises:
            ToolArgumentsError: they cannot be used.
        """
        ...


class SignatureArguments:
    """The arguments of a Python signature.

    Signatures of plain types are not given to pydantic before the first use: most processes that define tools start
    long before they call one, and importing pydantic costs more than the rest of Trilane.
    """

    __slots__ = ("_adapter", "_descriptions", "_hints", "_label", "_local", "_schema", "signature")

    def __init__(
        self, signature: Signature, descriptions: Mapping[str, str], label: str, names: Mapping[str, Any]
    ) -> None:
        self.signature = signature
        self._descriptions = descriptions
        self._label = label
        self._local = names
        self._adapter: TypeAdapter[dict[str, object]] | None = None
        self._schema: dict[str, JsonValue] | None = None
        self._hints: dict[str, Hint] = {}
        annotations = [parameter.annotation for parameter in signature.parameters]
        if signature.extras:
            annotations.append(signature.extras[1])
        if not all(map(_is_plain, annotations)) or any(map(_has_field_default, signature.parameters)):
            self._build()

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """JSON Schema of the arguments."""
        if self._schema is None:
            self._build()
        assert self._schema is not None
        return self._schema

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The validated keyword arguments, converted to the annotated types where nothing is lost by that.

        Parameters that were left out stay out, so that the function's own defaults are used.

        Raises:
            ToolArgumentsError: one is missing, unknown or of another type.
        """
        if self._adapter is None:
            self._build()
        assert self._adapter is not None
        problems: dict[str, str] = {}
        values = self._prepare(arguments, problems)
        hidden = f"**{self.signature.extras[0]}" if self.signature.extras else ""
        bound: dict[str, object] = {}
        try:
            bound = self._validate(values)
        except Exception as error:  # also whatever a validator of somebody's type raises
            from pydantic import ValidationError

            if not isinstance(error, ValidationError):
                raise ToolArgumentsError([self._unchecked(values, error)]) from error
            choices = {name: hint.choices for name, hint in self._hints.items() if hint.choices is not None}
            problems = expectation(error, values, choices, hidden) | problems
        if problems:
            raise ToolArgumentsError(list(problems.values()))
        bound.update(bound.pop(hidden, ()))  # type: ignore[call-overload]
        return bound

    def _validate(self, values: dict[str, object]) -> dict[str, object]:
        assert self._adapter is not None
        try:
            return self._adapter.validate_python(values)
        except ValueError:
            import json

            # Types that are strict about Python values take the text form in JSON; what is really wrong fails again.
            try:
                return self._adapter.validate_json(json.dumps(values))
            except Exception:  # of the two failures the first is about what was sent
                pass
            raise

    def _unchecked(self, values: Mapping[str, object], error: Exception) -> str:
        """What a model is told of a validator that failed: no more than of a tool that does, and of which parameter."""
        where = "they"
        for parameter in self.signature.parameters:
            name = parameter.name
            try:
                _compile([parameter], self._local)[0].validate_python({name: values[name]} if name in values else {})
            except ValueError:  # pydantic's own among them
                continue
            except Exception as reason:
                where, error = name, reason
                break
        return f"{where} could not be checked: a validator failed with {type(error).__name__}; try another value"

    def _prepare(self, arguments: Mapping[str, object], problems: dict[str, str]) -> dict[str, object]:
        """Own copies of the values, sorted into named and extra ones, JSON text opened where a container is wanted."""
        values: dict[str, object] = {}
        extra: dict[str, object] = {}
        for name, value in arguments.items():
            hint = self._hints.get(name)
            if hint is not None:
                values[name] = hint.prepare(name, copied(value), problems)
            elif self.signature.extras is None:
                problems[name] = f"{name} is not known; {self._accepted()}"
            elif name in self.signature.reserved:
                problems[name] = f"{name} may not be given"
            elif isinstance(value, dict) and name in ("kwargs", self.signature.extras[0]):
                problems[name] = f"{name} is not known; give its members as arguments of their own"
            else:
                extra[name] = copied(value)
        if self.signature.extras is not None and extra:
            values[f"**{self.signature.extras[0]}"] = extra
        return values

    def _accepted(self) -> str:
        return f"accepted are {', '.join(self._hints)}" if self._hints else "no arguments are accepted"

    def _build(self) -> None:
        """Make the validator and the JSON Schema.

        Raises:
            ToolDefinitionError: a type cannot be validated, or cannot be described to a model.
        """
        parameters = list(self.signature.parameters)
        if self.signature.extras is not None:
            name, annotation = self.signature.extras
            parameters.append(Parameter(f"**{name}", dict[str, annotation], {}))  # type: ignore[valid-type]
        try:
            adapter, schema = _compile(parameters, self._local)
        except Exception as error:  # pydantic and the types' own hooks raise whatever they like here
            raise self._culprit(parameters, error) from error
        self._describe(schema)
        self._hints = {name: Hint(item, schema) for name, item in schema["properties"].items()}
        self._schema = schema
        self._adapter = adapter

    def _culprit(self, parameters: list[Parameter], error: Exception) -> ToolDefinitionError:
        """The error that names the parameter whose type is not usable."""
        for parameter in parameters:
            try:
                _compile([parameter], self._local)
            except Exception as reason:
                where, error = f" of parameter {parameter.name!r}", reason
                shown_type = getattr(parameter.annotation, "__name__", None) or repr(parameter.annotation)
                break
        else:
            where, shown_type = "", "signature"
        text = str(error).split("\n\nFor further information", 1)[0].strip().partition("\n")[0]
        return ToolDefinitionError(
            f"{self._label}: the type {shown_type}{where} cannot be described to a model: {text} "
            "Use types that JSON can express: text, numbers, lists, dicts, enums, dataclasses, pydantic models."
        )

    def _describe(self, schema: dict[str, Any]) -> None:
        """Add descriptions and defaults, move `**kwargs` to `additionalProperties`, take out pydantic's titles."""
        properties = schema["properties"]
        for parameter in self.signature.parameters:
            item = properties.get(parameter.name)
            if item is None:  # an alias of the user's; he describes it himself
                continue
            text = _annotated_text(parameter.annotation) or self._descriptions.get(parameter.name)
            if text:
                item.setdefault("description", clean_text(text))
            if parameter.default is not REQUIRED and not _has_field_default(parameter):
                _write_default(item, parameter.default)
        if self.signature.extras is not None:
            name = self.signature.extras[0]
            extras = properties.pop(f"**{name}")["additionalProperties"]
            if name in self._descriptions:
                extras = {**(extras if isinstance(extras, dict) else {}), "description": self._descriptions[name]}
            schema["additionalProperties"] = extras


def _compile(
    parameters: list[Parameter], names: Mapping[str, Any]
) -> tuple[TypeAdapter[dict[str, object]], dict[str, Any]]:
    from typing import Annotated, NotRequired, Required

    from pydantic import ConfigDict, TypeAdapter, with_config
    from typing_extensions import TypedDict

    fields: dict[str, Any] = {}
    for parameter in parameters:
        annotation = parameter.annotation
        required = parameter.default is REQUIRED
        if _has_field_default(parameter):
            annotation = Annotated[annotation, parameter.default]
            required = parameter.default.is_required()
        fields[parameter.name] = Required[annotation] if required else NotRequired[annotation]
    # A TypedDict, because it takes any name and leaves out what was left out; a model does neither.
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    arguments = with_config(config)(TypedDict("Arguments", fields))  # type: ignore[operator]
    adapter: TypeAdapter[dict[str, object]] = TypeAdapter(arguments)
    if not adapter.pydantic_complete:  # local classes that refer to each other
        adapter.rebuild(_types_namespace=dict(names))
    return adapter, _finished(adapter.json_schema())


def _finished(schema: dict[str, Any]) -> dict[str, Any]:
    """The members in a fixed order, without titles: they repeat the names and cost tokens in every request."""
    finished: dict[str, Any] = {"type": "object", "properties": _untitled_map(schema.get("properties", {}))}
    if schema.get("required"):
        finished["required"] = schema["required"]
    finished["additionalProperties"] = False
    if "$defs" in schema:
        finished["$defs"] = _untitled_map(schema["$defs"])
    return finished


def _untitled_map(schemas: dict[str, Any]) -> dict[str, Any]:
    return {name: _untitled(item) for name, item in schemas.items()}


def _untitled(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key in ("properties", "$defs", "patternProperties", "dependentSchemas") and isinstance(value, dict):
            result[key] = _untitled_map(value)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            result[key] = [_untitled(item) for item in value]
        elif key in ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"):
            result[key] = _untitled(value)
        else:  # default, const, enum, examples: values, where "title" is a member like others
            result[key] = value
    return result


def _is_plain(annotation: Any) -> bool:
    """True for types that surely have a schema, so that building it can wait."""
    import types
    import typing

    try:
        if annotation in _PLAIN_TYPES:
            return True
    except TypeError:  # unhashable metadata
        return False
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Literal:
        return all(type(value) in (str, int, bool, type(None)) for value in arguments)
    if origin is typing.Annotated:
        return _is_plain(arguments[0]) and all(isinstance(item, str) for item in arguments[1:])
    if origin is dict:
        return arguments[0] is str and _is_plain(arguments[1])
    return origin in (list, typing.Union, types.UnionType) and all(map(_is_plain, arguments))


def _has_field_default(parameter: Parameter) -> bool:
    """True for `x: int = Field(3, ge=1)`, where the default is pydantic's description of a default."""
    kind = type(parameter.default)
    return kind.__module__ == "pydantic.fields" and kind.__name__ == "FieldInfo"


def _annotated_text(annotation: Any) -> str:
    """The description in `Annotated[int, "how many"]`, or in a `Doc`."""
    for item in getattr(annotation, "__metadata__", ()):
        text = item if isinstance(item, str) else getattr(item, "documentation", None)
        if isinstance(text, str):
            return text
    return ""


def _write_default(item: dict[str, Any], default: object) -> None:
    """Add a default to a schema if JSON can express it. The function's own object is never handed out."""
    import json

    from pydantic_core import to_jsonable_python

    try:
        value = to_jsonable_python(default)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except Exception:  # any object can be a default, and may raise anything when it is looked at
        return
    item["default"] = value
