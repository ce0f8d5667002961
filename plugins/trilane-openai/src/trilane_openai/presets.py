"""What is known of servers that speak Chat Completions, as data. A server that is not here works with a `base_url`.

What the differences mean is in `conversion.py` and `parameters.py`; which server a model uses in `target.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COMPATIBLE", "PRESETS", "Preset"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of server.

    Attributes:
        name: What stands before the slash in `openai:PRESET/NAME`.
        base_url: Where it is, up to and including the version; empty if everybody's is elsewhere.
        url_variables: Environment variables that say where it is.
        key_variables: Environment variables that hold its key, the first that is set counts.
        needs_key: Whether it refuses requests without a key.
        default_model: The model of a bare `openai:PRESET`.
        max_tokens: What it calls the limit of the answer.
        seed: What it calls the seed.
        effort: How it is told how hard to think: in its own field, or as OpenRouter does.
        system: Where it takes system messages: anywhere, or only at the beginning.
        schema: How it is told the form of the answer: any JSON Schema, one whose root is an object, only that it is to
            be JSON, or nothing.
        usage: Whether usage in the stream has to be asked for.
        reasoning: The field in which it wants its reasoning back; empty for none.
        media: Kinds of media that it takes.
        ids: Form of the ids of tool calls: at most 40 characters, or Mistral's nine.
        unreachable: What to do if nobody answers there.
        unknown_model: What to do if it does not have the model.
    """

    name: str
    base_url: str = ""
    url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    default_model: str = ""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    seed: Literal["seed", "random_seed"] = "seed"
    effort: Literal["reasoning_effort", "reasoning"] = "reasoning_effort"
    system: Literal["anywhere", "first"] = "anywhere"
    schema: Literal["any", "object", "json", "none"] = "object"
    usage: bool = True
    reasoning: Literal["", "reasoning_content", "reasoning_details"] = ""
    media: frozenset[str] = frozenset({"image"})
    ids: Literal["short", "nine"] = "short"
    unreachable: str = "check base_url and the network"
    unknown_model: str = "check the name, and that this account may use it"


_ALL_MEDIA = frozenset({"image", "audio", "file"})


def _local(name: str, port: int, start: str, unknown_model: str) -> Preset:
    return Preset(
        name=name,
        base_url=f"http://127.0.0.1:{port}/v1",
        needs_key=False,
        system="first",
        schema="any",
        unreachable=start,
        unknown_model=unknown_model,
    )


_KNOWN = (
    Preset(
        name="openai",
        base_url="https://api.openai.com/v1",
        url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
        default_model="gpt-5.4-mini",
        max_tokens="max_completion_tokens",
        media=_ALL_MEDIA,
    ),
    Preset(
        name="azure",
        url_variables=("AZURE_OPENAI_ENDPOINT",),
        key_variables=("AZURE_OPENAI_API_KEY",),
        max_tokens="max_completion_tokens",
        unknown_model="use the name of the deployment, not that of the model",
    ),
    _local(
        "ollama",
        11434,
        "start it with `ollama serve`",
        "fetch it with `ollama pull NAME`; `ollama list` shows what is here",
    ),
    _local("llamacpp", 8080, "start it with `llama-server -m FILE.gguf --jinja`", "see which it was started with"),
    _local("vllm", 8000, "start it with `vllm serve NAME`", "use the name it was started with"),
    _local("lmstudio", 1234, "start its server with `lms server start`", "load it; `lms ls` shows what is here"),
    Preset(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        effort="reasoning",
        reasoning="reasoning_details",
        media=_ALL_MEDIA,
        unknown_model="names there have their maker before a slash: openai:openrouter/MAKER/NAME",
    ),
    Preset(
        name="deepseek",
        base_url="https://api.deepseek.com/v1",
        key_variables=("DEEPSEEK_API_KEY",),
        default_model="deepseek-chat",
        schema="json",
        reasoning="reasoning_content",
        media=frozenset(),
    ),
    Preset(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        max_tokens="max_completion_tokens",
    ),
    Preset(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        default_model="mistral-small-latest",
        seed="random_seed",
        system="first",
        usage=False,
        ids="nine",
    ),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _KNOWN}
"""The known kinds of servers, by name."""

COMPATIBLE = Preset(name="compatible", needs_key=False, system="first", schema="any", media=_ALL_MEDIA)
"""What is assumed of a server of which only the `base_url` is known."""
