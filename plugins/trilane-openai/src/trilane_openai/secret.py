"""A key that shows itself nowhere but in the request it is for."""

from __future__ import annotations

import re

__all__ = ["Secret"]

_SHOWN = "[key removed]"
_KEY_SHAPE = re.compile(r"\b(?:sk|pk|gsk|xai|nvapi)-?[-_A-Za-z0-9*]{12,}")


class Secret:
    """Wraps a key; `reveal` is the only way to it. Copies share it, and it cannot be pickled by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(...)" if self._value else "Secret('')"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Secret cannot be pickled: the key would be written out; make the model anew from its name")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def reveal(self) -> str:
        """The key itself."""
        return self._value

    def removed_from(self, text: str) -> str:
        """`text` without this key, and without what looks like one, such as a key that a server repeats with stars."""
        if self._value:
            text = text.replace(self._value, _SHOWN)
        return _KEY_SHAPE.sub(_SHOWN, text)
