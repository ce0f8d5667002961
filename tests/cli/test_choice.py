"""Which model is taken, and that the reason is told."""

from __future__ import annotations

import pytest

from trilane.cli.choice import choose_model


@pytest.mark.parametrize(
    ("option", "environ", "plugins", "model", "reason"),
    [
        ("a:b", {"TRILANE_MODEL": "c"}, {"openai"}, "a:b", "--model"),
        ("", {"TRILANE_MODEL": "c:d", "OPENAI_API_KEY": "k"}, {"openai"}, "c:d", "TRILANE_MODEL"),
        ("", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, {"openai", "anthropic"}, "openai", "OPENAI_API_KEY"),
        ("", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, {"anthropic"}, "anthropic", "ANTHROPIC_API_KEY"),
        ("", {"OPENAI_API_KEY": "k"}, set(), "offline", "no plugin 'openai' is installed"),
    ],
)
def test_the_first_that_applies_is_taken(
    option: str, environ: dict[str, str], plugins: set[str], model: str, reason: str
) -> None:
    choice = choose_model(option, environ, plugins)
    assert choice.model == model
    assert reason in choice.reason
    assert not choice.is_default


def test_without_any_hint_it_is_the_offline_planner() -> None:
    choice = choose_model("", {"OPENAI_API_KEY": ""}, {"openai"})
    assert (choice.model, choice.is_default) == ("offline", True)


def test_a_key_is_never_part_of_the_reason() -> None:
    for plugins in (set[str](), {"openai"}):
        assert "sekret" not in choose_model("", {"OPENAI_API_KEY": "sekret"}, plugins).reason


@pytest.mark.parametrize(
    ("variable", "model"), [("DEEPSEEK_API_KEY", "openai:deepseek"), ("MISTRAL_API_KEY", "openai:mistral")]
)
def test_a_key_of_a_server_with_a_default_model(variable: str, model: str) -> None:
    choice = choose_model("", {variable: "k"}, ["openai"])
    assert (choice.model, choice.is_default) == (model, False)
    assert choice.reason.startswith(f"{variable} is set")


def test_a_key_of_a_server_without_a_default_model_says_what_to_write() -> None:
    choice = choose_model("", {"GROQ_API_KEY": "k"}, ["openai"])
    assert choice.model == "offline"
    assert choice.reason == "GROQ_API_KEY is set, but a model must be named (--model openai:groq/NAME)"
    assert choose_model("", {"GROQ_API_KEY": "k", "MISTRAL_API_KEY": "k"}, ["openai"]).model == "openai:mistral"
