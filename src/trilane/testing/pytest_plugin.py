"""Fixtures for tests of plugins, known to pytest wherever `trilane` is installed. A test that names none is left alone.

| fixture | what it is |
| --- | --- |
| `trilane_model` | makes scripted models; after the test each must have been played to its end |
| `trilane_recorder` | a plugin that writes down every hook |
| `trilane_clock` | runs an async function in virtual time: `run_virtual` |
| `trilane_record` | runs a request in virtual time and returns a `RunRecord`, which compares with a text |
| `trilane_alone` | installed plugins and `TRILANE_...` variables are not there; the other fixtures use it |

With `@pytest.mark.trilane_plugins("files")` the installed plugins of these names are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trilane.testing import Recorder, ScriptedModel
    from trilane.testing.run_record import RunRecord

__all__ = [
    "pytest_assertrepr_compare",
    "pytest_configure",
    "trilane_alone",
    "trilane_clock",
    "trilane_model",
    "trilane_record",
    "trilane_recorder",
]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "trilane_plugins(*names): installed plugins that are there in tests with trilane_ fixtures"
    )


@pytest.fixture
def trilane_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No installed plugins but those of the marker `trilane_plugins`, and no settings from the environment."""
    import os

    from trilane.plugins import discovery

    wanted = {name for marker in request.node.iter_markers("trilane_plugins") for name in marker.args}
    found = [item for item in discovery.entries() if item[0].name in wanted]
    missing = wanted - {info.name for info, _ in found}
    if missing:
        pytest.fail(f"@pytest.mark.trilane_plugins: no plugin {min(missing)!r} is installed", pytrace=False)
    monkeypatch.setattr(discovery, "_scan", lambda: found)
    monkeypatch.setattr(discovery, "_cached", None)
    for name in os.environ:
        if name.startswith("TRILANE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def trilane_model(request: pytest.FixtureRequest, trilane_alone: None) -> Iterator[Callable[..., ScriptedModel]]:
    """`trilane_model("Hello", call("look"), ...)` makes a `ScriptedModel`, which must be played to its end."""
    from trilane.testing import ScriptedModel

    made: list[ScriptedModel] = []

    def make(*steps: Any, **options: Any) -> ScriptedModel:
        made.append(ScriptedModel(*steps, **options))
        return made[-1]

    failed = request.session.testsfailed
    yield make
    if request.session.testsfailed == failed:
        for model in made:
            model.assert_finished()


@pytest.fixture
def trilane_recorder(trilane_alone: None) -> Recorder:
    """A plugin that writes down every hook: `Agent(model, plugins=[trilane_recorder])`."""
    from trilane.testing import Recorder

    return Recorder()


@pytest.fixture
def trilane_clock(trilane_alone: None) -> Callable[..., Any]:
    """`trilane_clock(function, *args, backend="asyncio")` runs an async function in virtual time."""
    from trilane.testing import run_virtual

    return run_virtual


@pytest.fixture
def trilane_record(trilane_alone: None) -> Callable[..., RunRecord]:
    """`trilane_record(agent, "Hello")` runs the request and returns a `RunRecord`: `assert record == '''...'''`."""
    from trilane.testing.run_record import record_run

    return record_run


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> list[str] | None:
    """Show how a run differs from the text it is compared with."""
    import sys

    module = sys.modules.get("trilane.testing.run_record")
    if module is None or op != "==":
        return None
    record, text = (left, right) if isinstance(left, module.RunRecord) else (right, left)
    if not isinstance(record, module.RunRecord) or not isinstance(text, str):
        return None
    return ["the run is not as expected (- expected, + what happened):", *record.difference(text)]
