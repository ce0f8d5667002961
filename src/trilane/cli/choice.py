"""Which model a run uses when the command line does not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

__all__ = ["ModelChoice", "choose_model"]

#: Environment variable that holds a key, the provider plugin that can use it, and the model that is then taken; the
#: first that fits. Without a model one has to be named, and what to write is said.
_KEYS = (
    ("OPENAI_API_KEY", "openai", "openai"),
    ("ANTHROPIC_API_KEY", "anthropic", "anthropic"),
    ("DEEPSEEK_API_KEY", "openai", "openai:deepseek"),
    ("MISTRAL_API_KEY", "openai", "openai:mistral"),
    ("GROQ_API_KEY", "openai", ""),
    ("OPENROUTER_API_KEY", "openai", ""),
    ("AZURE_OPENAI_API_KEY", "openai", ""),
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model string and the reason for taking it.

    Attributes:
        model: `provider` or `provider:name`.
        reason: Why, for a person.
        is_default: True if nothing pointed at another model.
    """

    model: str
    reason: str
    is_default: bool = False


def choose_model(option: str, environ: Mapping[str, str], plugins: Collection[str]) -> ModelChoice:
    """The option, then `TRILANE_MODEL`, then a provider whose key is set and whose plugin is installed, else `offline`.

    Args:
        option: What `--model` said, empty if nothing.
        environ: The environment.
        plugins: Names of the installed plugins.
    """
    if option:
        return ModelChoice(option, "--model says so")
    if environ.get("TRILANE_MODEL"):
        return ModelChoice(environ["TRILANE_MODEL"], "TRILANE_MODEL says so")
    remarks = []
    for variable, provider, model in _KEYS:
        if not environ.get(variable):
            continue
        if provider not in plugins:
            cure = f"no plugin {provider!r} is installed (pip install trilane-{provider})"
            remarks.append(f"{variable} is set, but {cure}")
        elif model:
            return ModelChoice(model, f"{variable} is set and the plugin {provider!r} is installed")
        else:
            preset = variable.partition("_")[0].lower()
            remarks.append(f"{variable} is set, but a model must be named (--model {provider}:{preset}/NAME)")
    if remarks:
        return ModelChoice("offline", "; ".join(remarks))
    return ModelChoice("offline", "no model was named and no provider's key is set", is_default=True)
