"""Which server, which key, and what is said when one is missing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from trilane.errors import ConfigError
from trilane_openai import PRESETS, OpenAIModel, OpenAISettings
from trilane_openai.secret import Secret
from trilane_openai.target import Target, target_of

KEY = "sk-test-0123456789abcdef"
GROQ = {"GROQ_API_KEY": "gsk-groq"}
OPENAI = {"OPENAI_API_KEY": KEY}


def target(name: str, environ: dict[str, str] | None = None, **settings: Any) -> Target:
    return target_of(name, OpenAISettings(**settings), environ or {})


def test_openai_by_default() -> None:
    found = target("gpt-x", OPENAI)
    assert (found.name, found.base_url, found.key.reveal()) == ("gpt-x", "https://api.openai.com/v1", KEY)
    assert found.key_source == "OPENAI_API_KEY"
    assert target("", OPENAI).name == PRESETS["openai"].default_model
    assert target("", OPENAI, model="gpt-y").name == "gpt-y"


def test_a_preset_in_the_name() -> None:
    found = target("groq/maker/name", GROQ)
    assert (found.name, found.preset.name, found.key.reveal()) == ("maker/name", "groq", "gsk-groq")
    assert target("openai/gpt-x", OPENAI).name == "gpt-x"
    assert target("mistral", {"MISTRAL_API_KEY": "k"}).name == PRESETS["mistral"].default_model
    assert target("maker/name", OPENAI).name == "maker/name"


def test_names_are_whole_when_the_server_is_set() -> None:
    found = target("openai/gpt-x", {"OPENROUTER_API_KEY": "or"}, preset="openrouter")
    assert (found.name, found.preset.name) == ("openai/gpt-x", "openrouter")
    found = target("groq/x", base_url="http://10.0.0.7:8000/v1")
    assert (found.name, found.base_url, found.preset.name) == ("groq/x", "http://10.0.0.7:8000/v1", "compatible")


@pytest.mark.parametrize("name", ["ollama", "llamacpp", "vllm", "lmstudio"])
def test_servers_on_this_machine_need_no_key(name: str) -> None:
    found = target(f"{name}/some-model", OPENAI)
    assert found.base_url.startswith("http://127.0.0.1:")
    assert not found.key


def test_azure_by_its_endpoint() -> None:
    environ = {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/", "AZURE_OPENAI_API_KEY": "az"}
    assert target("azure/deployed", environ).base_url == "https://me.openai.azure.com/openai/v1"
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        target("azure/deployed", {"AZURE_OPENAI_API_KEY": "az"})


def test_a_key_goes_to_its_own_server_only() -> None:
    environ = {**OPENAI, "TOGETHER_API_KEY": "t"}
    assert not target("ollama/x", environ, api_key="sk-setting").key
    with pytest.raises(ConfigError, match="GROQ_API_KEY"):
        target("groq/x", environ, api_key="sk-setting")
    assert target("groq/x", environ, api_keys={"groq": "mine"}).key.reveal() == "mine"
    assert not target("x", environ, base_url="http://10.0.0.7/v1").key
    assert target("x", environ, base_url="http://10.0.0.7/v1", preset="openai").key.reveal() == KEY
    assert target("x", environ, base_url="http://10.0.0.7/v1", api_key="given").key.reveal() == "given"


def test_an_organization_is_told_to_openai_only() -> None:
    assert target("gpt-x", OPENAI, organization="org").organization == "org"
    assert target("groq/x", GROQ, organization="org").organization == ""


@pytest.mark.parametrize(
    ("name", "settings", "needs"),
    [
        ("gpt-x", {}, ["OPENAI_API_KEY", "TRILANE_OPENAI_API_KEY", "trilane.toml", "ollama", "offline"]),
        ("deepseek/x", {}, ["DEEPSEEK_API_KEY", "api_keys.deepseek", "trilane.toml"]),
        ("x", {"preset": "olama"}, ["olama", "ollama", "openrouter"]),
        ("ollama/", {}, ["openai:ollama/NAME"]),
    ],
)
def test_what_is_missing_is_one_paragraph(name: str, settings: dict[str, str], needs: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        target(name, **settings)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    for word in needs:
        assert word in text


def test_f122_keys_are_shown_nowhere() -> None:
    settings = OpenAISettings(api_key=KEY, api_keys={"groq": KEY})  # type: ignore[arg-type,dict-item]
    model = OpenAIModel.from_settings("gpt-x", settings)
    secret = model.target.key
    shown = [f"{one} {one!r} {one:}" for one in (settings, model, model.target, secret, vars(model))]
    shown += [settings.model_dump_json(), str(settings.model_dump()), f"{secret} {secret!r}"]
    assert KEY not in " ".join(shown)
    assert secret.reveal() == KEY
    assert copy.deepcopy(secret) == secret
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)


def test_what_looks_like_a_key_is_removed_from_texts() -> None:
    secret = Secret("verysecret")
    assert secret.removed_from("bad key verysecret") == "bad key [key removed]"
    assert secret.removed_from("provided: sk-proj-****************abcd.") == "provided: [key removed]."
    assert secret.removed_from("the task-force of skeletons") == "the task-force of skeletons"
