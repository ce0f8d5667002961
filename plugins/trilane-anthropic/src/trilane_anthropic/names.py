"""Names: what is known of models by theirs, and ids and tool names in a form that the API takes, and back again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["KNOWN_MODELS", "CallIds", "ModelTraits", "ToolNames", "traits_of"]

#: The first is the one that a bare `anthropic` means. Others work too: names are passed on as they are.
KNOWN_MODELS = ("claude-sonnet-5", "claude-opus-5", "claude-haiku-4-5", "claude-sonnet-4-6", "claude-opus-4-8")

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_BAD = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a model can do that others cannot.

    Attributes:
        max_output_tokens: Where to cut its answer off if nobody says.
        is_adaptive: Whether it decides by itself how much to think.
        has_structured_output: Whether it can be held to a JSON schema.
    """

    max_output_tokens: int = 32_000
    is_adaptive: bool = True
    has_structured_output: bool = True


#: By the beginning of the name, the longest that fits. What is not here is taken for newer than all that is.
_OLDER = {
    "claude-3-5": ModelTraits(8_192, False, False),
    "claude-3-7": ModelTraits(32_000, False, False),
    "claude-3": ModelTraits(4_096, False, False),
    "claude-haiku-4-5": ModelTraits(32_000, False, True),
    "claude-opus-4-1": ModelTraits(32_000, False, True),
    "claude-opus-4-5": ModelTraits(32_000, False, True),
    "claude-opus-4-2025": ModelTraits(32_000, False, False),
    "claude-opus-4-0": ModelTraits(32_000, False, False),
    "claude-sonnet-4-0": ModelTraits(32_000, False, False),
    "claude-sonnet-4-2025": ModelTraits(32_000, False, False),
    "claude-sonnet-4-5": ModelTraits(32_000, False, True),
}


def traits_of(model: str) -> ModelTraits:
    """What is known of a model by its name."""
    name = model.rpartition("/")[2].rpartition("anthropic.")[2]  # gateways and clouds put their own names before it
    fitting = [prefix for prefix in _OLDER if name.startswith(prefix)]
    return _OLDER[max(fitting, key=len)] if fitting else ModelTraits()


class ToolNames:
    """Names of tools as the API sees them. Most are the same; the others are the same in every request.

    Args:
        offered: The tools of the request.
    """

    __slots__ = ("_back", "_there")

    def __init__(self, offered: Iterable[str] = ()) -> None:
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        # Names that fit come first, so that they are never the ones that have to give way.
        for name in sorted(offered, key=lambda name: (not _TOOL_NAME.fullmatch(name), name)):
            self.sent(name)

    def sent(self, name: str) -> str:
        """The name on the wire."""
        if name not in self._there:
            chosen = name if _TOOL_NAME.fullmatch(name) else _BAD.sub("_", name)[:128] or "unnamed"
            if chosen in self._back:
                chosen = f"{chosen[:100]}_{_digest(name)}"
            self._there[name] = chosen
            self._back[chosen] = name
        return self._there[name]

    def received(self, name: str) -> str:
        """The name of the tool that the model means."""
        return self._back.get(name, name)

    def fresh(self, name: str) -> str:
        """A name that no tool has, as near to `name` as can be."""
        while name in self._back:
            name += "_"
        return name


class CallIds:
    """Ids of calls as the API sees them: each only once in a request, the same in every request of a session."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: set[str] = set()

    def sent(self, call_id: str, message_id: str) -> str:
        """A fresh id for a call of that message. Ask once for each call, in order."""
        chosen = call_id if _CALL_ID.fullmatch(call_id) else ""
        attempt = 0
        while not chosen or chosen in self._used:
            chosen = f"call_{_digest(f'{message_id}/{call_id}/{attempt}')}"
            attempt += 1
        self._used.add(chosen)
        return chosen


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
