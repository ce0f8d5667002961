"""The answer as a value: plain text, or whatever type the caller asked for, validated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._records import adapter
from .errors import ConfigError

if TYPE_CHECKING:
    from .messages import AssistantMessage

__all__ = ["InvalidAnswer", "Output"]


class InvalidAnswer(Exception):
    """The answer is not what was asked for; the text says what is wrong with it."""

    #: What the model that wrote it is told to do; nobody else is.
    order = "\nAnswer again with JSON that fits the schema, and nothing else."


class Output:
    """What a run must answer with.

    Args:
        output_type: `str` or None for the plain text; any other type pydantic knows is validated from JSON.

    Raises:
        ConfigError: pydantic cannot make a schema of the type.
    """

    __slots__ = ("_adapter", "output_type", "schema")

    def __init__(self, output_type: Any = None) -> None:
        self.output_type = output_type
        self.schema: dict[str, Any] | None = None
        self._adapter: Any = None
        if output_type is None or output_type is str:
            return
        try:
            self._adapter = adapter(output_type)
            self.schema = self._adapter.json_schema()
        except Exception as error:
            raise ConfigError(f"output_type={output_type!r} cannot be turned into a JSON Schema: {error}") from error

    @property
    def is_text(self) -> bool:
        """True if the answer is the message's text as it is."""
        return self._adapter is None

    def read(self, message: AssistantMessage) -> Any:
        """The value in a message.

        Raises:
            InvalidAnswer: it does not validate; the text says what is wrong.
        """
        if self._adapter is None:
            return message.text
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(_unfenced(message.text))
        except ValidationError as error:
            problems = []
            for found in error.errors(include_url=False, include_input=False)[:10]:
                where = ".".join(str(step) for step in found["loc"]) or "the whole answer"
                problems.append(f"- {where}: {found['msg']}")
            raise InvalidAnswer("The answer does not fit the required JSON schema:\n" + "\n".join(problems)) from None
        except Exception as error:  # whatever a validator of somebody's type raises
            raise InvalidAnswer(
                f"The answer could not be checked: a validator failed with {type(error).__name__}."
            ) from error


def _unfenced(text: str) -> str:
    """The JSON inside a Markdown code fence, which many models put around it."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -3].strip()
    return stripped
