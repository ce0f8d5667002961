"""Which model a run uses when the command line does not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

__all__ = ["ModelChoice", "choose_model"]

#: Environment variable that holds a key, and the provider plugin that can use it; the first that fits is taken.
_KEYS = (("OPENAI_API_KEY", "openai"), ("ANTHROPIC_API_KEY", "anthropic"))


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
    """The option, then `TRILANE_MODEL`, then a provider whose key is set and whose plugin is installed, then `offline`.

    Args:
        option: What `--model` said, empty if nothing.
        environ: The environment.
        plugins: Names of the installed plugins.
    """
    if option:
        return ModelChoice(option, "--model says so")
    if environ.get("TRILANE_MODEL"):
        return ModelChoice(environ["TRILANE_MODEL"], "TRILANE_MODEL says so")
    missing = []
    for variable, provider in _KEYS:
        if not environ.get(variable):
            continue
        if provider in plugins:
            return ModelChoice(provider, f"{variable} is set and the plugin {provider!r} is installed")
        missing.append(f"{variable} is set, but no plugin {provider!r} is installed (pip install trilane-{provider})")
    if missing:
        return ModelChoice("offline", "; ".join(missing))
    return ModelChoice("offline", "no model was named and no provider's key is set", is_default=True)
