"""Settings of plugins: where they come from, which wins, and what an error says."""

from __future__ import annotations

import textwrap
import types
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trilane.errors import ConfigError, PluginLoadError
from trilane.hookspecs import hookimpl
from trilane.plugins import PluginManager, SettingsRegistry, installed


class Search(BaseModel):
    limit: int = Field(default=1, gt=0)
    sites: list[str] = []
    key: str = ""


class Needed(BaseModel):
    token: str


def manager(
    model: type[BaseModel] = Search,
    *,
    name: str = "search",
    by_plugin: Mapping[str, object] | None = None,
    by_host: Mapping[str, object] | None = None,
) -> PluginManager:
    def register_settings(registry: SettingsRegistry) -> None:
        registry.add(name, model, values=by_plugin)

    plugin = types.SimpleNamespace(name="plugin", register_settings=hookimpl(register_settings))
    return PluginManager([plugin], settings={name: by_host or {}})


def failure(found: PluginManager, name: str = "search") -> str:
    with pytest.raises(ConfigError) as caught:
        found.settings(name)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_defaults_hold_where_nothing_is_set() -> None:
    assert manager().settings("search") == Search()


def test_code_beats_environment_beats_trilane_toml_beats_pyproject(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pyproject.toml").write_text("[tool.trilane.search]\nlimit = 2\nkey = 'p'\nsites = ['p']\n")
    assert manager().settings("search") == Search(limit=2, key="p", sites=["p"])
    Path("trilane.toml").write_text("[search]\nlimit = 3\nkey = 't'\n")
    assert manager().settings("search") == Search(limit=3, key="t", sites=["p"])
    monkeypatch.setenv("TRILANE_SEARCH_LIMIT", "4")
    assert manager().settings("search") == Search(limit=4, key="t", sites=["p"])
    assert manager(by_plugin={"limit": 5}).settings("search") == Search(limit=5, key="t", sites=["p"])
    assert manager(by_plugin={"limit": 5}, by_host={"limit": 6}).settings("search") == Search(
        limit=6, key="t", sites=["p"]
    )


def test_lists_in_the_environment_are_json_and_text_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_SEARCH_SITES", '["a", "b"]')
    monkeypatch.setenv("TRILANE_SEARCH_KEY", "[1]")

    assert manager().settings("search") == Search(sites=["a", "b"], key="[1]")


def test_names_with_dashes_and_aliases_have_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Aliased(BaseModel):
        base: str = Field(default="", alias="base-url")

    monkeypatch.setenv("TRILANE_WEB_SEARCH_BASE_URL", "x")

    assert manager(Aliased, name="web-search").settings("web-search") == Aliased(**{"base-url": "x"})


def test_a_plugin_reads_its_own_settings_with_their_type() -> None:
    kept: list[SettingsRegistry] = []

    def register_settings(registry: SettingsRegistry) -> None:
        registry.add("search", Search)
        kept.append(registry)

    PluginManager([types.SimpleNamespace(register_settings=hookimpl(register_settings))])

    (registry,) = kept
    assert registry.get("search", Search).limit == 1
    assert registry.get("search") is registry.get("search", Search)
    assert registry.names() == ("search",)
    with pytest.raises(PluginLoadError, match="the settings 'search' are declared as Search, not Needed"):
        registry.get("search", Needed)


def test_a_wrong_value_in_a_file_names_file_section_and_key_and_not_the_value() -> None:
    Path("trilane.toml").write_text("[search]\nlimit = 'secret'\n")

    text = failure(manager())

    assert text.startswith("the settings of 'search' cannot be used: trilane.toml [search]: 'limit': ")
    assert "secret" not in text


def test_a_wrong_value_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_SEARCH_LIMIT", "0")
    assert "TRILANE_SEARCH_LIMIT: Input should be greater than 0" in failure(manager())
    monkeypatch.setenv("TRILANE_SEARCH_LIMIT", "many")
    assert "TRILANE_SEARCH_LIMIT: Input should be a valid integer" in failure(manager())


def test_a_wrong_value_in_code_says_so() -> None:
    assert "code: 'limit': Input should be a valid integer" in failure(manager(by_host={"limit": "x"}))
    assert "the plugin 'plugin': 'limit': Input" in failure(manager(by_plugin={"limit": "x"}))


def test_a_missing_value_says_where_it_can_be_set() -> None:
    assert failure(manager(Needed)) == (
        "the settings of 'search' cannot be used: 'token' is missing: set TRILANE_SEARCH_TOKEN, or token under "
        "[search] in trilane.toml or [tool.trilane.search] in pyproject.toml"
    )


def test_a_finding_about_the_whole_is_told_too() -> None:
    class Paired(BaseModel):
        @model_validator(mode="after")
        def check(self) -> Paired:
            raise ValueError("choose one")

    assert "the settings together: Value error, choose one" in failure(manager(Paired))


def test_an_unknown_key_names_the_nearest() -> None:
    Path("pyproject.toml").write_text("[tool.trilane.search]\nlimt = 2\n")

    assert failure(manager()) == (
        "pyproject.toml [tool.trilane.search]: 'limt' is not a setting of 'search'; did you mean 'limit'?"
    )


def test_a_misspelt_variable_is_said_once_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRILANE_SEARCH_LIMTI", "2")
    monkeypatch.setenv("TRILANE_SEARCH_ENGINE_URL", "of the plugin search-engine")
    monkeypatch.setenv("TRILANE_SEARCH_KEY", "right")
    for _ in range(2):
        assert manager().settings("search") == Search(key="right")
    assert [record.getMessage() for record in caplog.records] == [
        "environment: TRILANE_SEARCH_LIMTI is no setting of 'search'; did you mean 'TRILANE_SEARCH_LIMIT'?"
    ]


def test_a_misspelt_section_is_said_where_every_installed_plugin_is_loaded(
    ship: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    source = """
        from pydantic import BaseModel
        from trilane import hookimpl

        class Search(BaseModel):
            limit: int = 1

        @hookimpl
        def register_settings(registry):
            registry.add("search", Search)
    """
    ship("trilane-search", {"search": "fake_search"}, {"fake_search": textwrap.dedent(source)})
    Path("trilane.toml").write_text("[serch]\nlimit = 2\n[elsewhere]\nlimit = 2\n")
    PluginManager(["search"])
    assert caplog.records == []
    PluginManager(installed())
    assert [record.getMessage() for record in caplog.records] == [
        "trilane.toml [serch] is read by no plugin; did you mean 'search'?"
    ]


def test_a_model_may_take_unknown_keys() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    Path("trilane.toml").write_text("[search]\nanything = 2\n")

    assert manager(Open).settings("search").model_extra == {"anything": 2}


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("trilane.toml", "search = 3", "trilane.toml: 'search' is not a table; write [search] and its keys below it"),
        (
            "pyproject.toml",
            "[tool]\ntrilane = 3",
            "pyproject.toml: 'tool.trilane' is not a table; write [tool.trilane]",
        ),
        ("trilane.toml", "[search", "trilane.toml is not valid TOML: "),
    ],
)
def test_a_file_that_cannot_be_used_is_named(path: str, text: str, says: str) -> None:
    Path(path).write_text(text)

    with pytest.raises(ConfigError) as caught:
        manager().settings("search")
    assert str(caught.value).startswith(says)


def test_a_file_that_cannot_be_read_is_named() -> None:
    Path("trilane.toml").mkdir()

    with pytest.raises(ConfigError, match=r"trilane\.toml cannot be read: Is a directory"):
        manager().settings("search")


def test_settings_that_nobody_declared_name_the_nearest() -> None:
    with pytest.raises(PluginLoadError, match="no active plugin has settings 'serch'; did you mean 'search'"):
        manager().settings("serch")
    with pytest.raises(PluginLoadError, match="plugin 'p' has declared no settings 'x'"):
        SettingsRegistry("p").get("x")


def test_declarations_are_checked() -> None:
    registry = SettingsRegistry("p")
    registry.add("search", Search)
    with pytest.raises(PluginLoadError, match="plugin 'p' declares the settings 'search' twice; remove one"):
        registry.add("search", Search)
    with pytest.raises(PluginLoadError, match="plugin 'p': the settings 'other' need a pydantic model class, not"):
        registry.add("other", dict)  # type: ignore[type-var]
