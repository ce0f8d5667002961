"""`trilane plugins`: installed distributions are made by hand, each in a folder of its own on the path."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from trilane.cli.app import run_app
from trilane.cli.doctor import satisfies
from trilane.plugins import DISABLED_VARIABLE, discover

Install = Callable[..., None]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a distribution with one plugin; its module gets a name of its own in every test."""

    def make(name: str, code: str, *, distribution: str = "", version: str = "1.0", requires: str = "trilane") -> None:
        distribution = distribution or f"acme-{name}"
        place = tmp_path / distribution
        module = f"{distribution}_{abs(hash(tmp_path))}".replace("-", "_")
        metadata = place / f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (place / f"{module}.py").write_text(textwrap.dedent(code))
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
            f"Summary: A plugin for a test\nRequires-Dist: {requires}\n"
        )
        (metadata / "entry_points.txt").write_text(f"[trilane]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(str(place))

    return make


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `trilane plugins` with what the test installs and two of our own; others in the environment are blocked."""
    others = {info.name for info in discover()} - {"files", "offline"}
    monkeypatch.setenv(DISABLED_VARIABLE, ",".join(sorted(others)))
    for name in ("TRILANE_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str) -> tuple[int, str, str]:
        status = run_app(["plugins", *args])
        output, errors = capsys.readouterr()
        return status, output, errors

    return run


GOOD = """
    from trilane.hookspecs import hookimpl

    @hookimpl
    async def before_tool(run: object, call: object) -> None: ...

    @hookimpl(tryfirst=True)
    def after_run(run: object, result: object) -> None: ...
"""


def _line(output: str, name: str) -> str:
    (line,) = [line for line in output.splitlines() if line.split()[0] == name]
    return line


def test_list_has_one_line_a_plugin(install: Install, command: Command) -> None:
    install("aa-good", GOOD)
    install("aa-broken", "import no_such_module_anywhere")
    status, output, errors = command("list", "-p", "no:files")
    assert status == 0
    assert output.splitlines()[0].split() == ["NAME", "DISTRIBUTION", "VERSION", "STATUS", "HOOKS"]
    assert _line(output, "aa-good").split(maxsplit=4) == [
        *("aa-good", "acme-aa-good", "1.0", "loaded"),
        "before_tool, after_run",
    ]
    assert "failed   ModuleNotFoundError: No module named 'no_such_module_anywhere'" in _line(output, "aa-broken")
    assert _line(output, "files").split()[:4] == ["files", "trilane-files", "0.1.0", "blocked"]
    assert errors == ""


def test_info_tells_what_is_known(install: Install, command: Command) -> None:
    install("aa-good", GOOD)
    status, output, _ = command("info", "aa-good")
    assert status == 0
    assert "distribution  acme-aa-good 1.0" in output
    assert "summary       A plugin for a test" in output
    assert "before_tool  notify  async" in output
    assert ".py:4" in output
    assert command("info", "acme-aa-good")[1] == output


def test_info_of_an_unknown_plugin_names_the_nearest(install: Install, command: Command) -> None:
    install("aa-good", GOOD)
    status, output, errors = command("info", "aa-god")
    assert (status, output) == (2, "")
    assert "did you mean 'aa-good'?" in errors


def test_order_gives_the_reason_for_each_place(install: Install, command: Command) -> None:
    install("aa-good", GOOD)
    install("aa-late", GOOD.replace("@hookimpl\n", "@hookimpl(after='aa-good')\n"))
    status, output, _ = command("order", "before_tool", "-p", "no:files")
    assert status == 0
    lines = [line.split(maxsplit=2) for line in output.splitlines()]
    assert output.startswith("before_tool(run, call): notify\n")
    assert [line[:2] for line in lines[1:]] == [["1.", "aa-good"], ["2.", "aa-late"]]
    assert lines[2][2].endswith("after aa-good")
    everything = command("order", "-p", "no:files")[1]
    assert output.strip() in everything
    assert "after_run(run, result): notify" in everything


def test_order_of_an_unknown_hook_names_the_nearest(command: Command) -> None:
    status, output, errors = command("order", "before_tol")
    assert (status, output) == (2, "")
    assert "did you mean 'before_tool'" in errors


def test_order_of_a_hook_that_nobody_has(command: Command) -> None:
    status, output, _ = command("order", "on_compact")
    assert status == 0
    assert "no installed plugin implements it" in output


@pytest.mark.parametrize(
    ("code", "requires", "fault"),
    [
        ("1 / 0", "trilane", "ZeroDivisionError"),
        ("def broken(:", "trilane", "SyntaxError"),
        ("raise SystemExit(3)", "trilane", "SystemExit"),
        (GOOD.replace("before_tool", "before_tol"), "trilane", "did you mean 'before_tool'"),
        (GOOD.replace("call: object", "cal: object"), "trilane", "did you mean 'call'"),
        ("def before_tool(run, call): ...", "trilane", "@hookimpl"),
        ("print('hello from import')\n" + textwrap.dedent(GOOD), "trilane", "prints while it is imported"),
        ("x = 1", "trilane", "implements no hook"),
        (GOOD, "trilane<0.1", "asks for trilane<0.1"),
        (GOOD, "pluggy>=99", "asks for pluggy>=99"),
        (GOOD, "trilane[cli]<0.1", "asks for trilane<0.1"),
        (GOOD, "trilane<0.1 ; python_version >= '3.11'", "asks for trilane<0.1"),
        (GOOD.replace("@hookimpl\n", "@hookimpl(before='nobody-has-this')\n"), "trilane", "nobody-has-this"),
    ],
    ids=lambda value: value if len(value) < 40 and "\n" not in value else "code",
)
def test_doctor_names_a_bad_plugin_with_its_fault(
    install: Install, command: Command, code: str, requires: str, fault: str
) -> None:
    install("aa-bad", code, requires=requires)
    status, output, _ = command("doctor")
    assert status == 1
    faults = [line for line in output.splitlines() if line.startswith("fault") and "aa-bad" in line]
    assert any(fault in line for line in faults), output
    assert output.splitlines()[-1] == f"{len(faults)} fault{'' if len(faults) == 1 else 's'} found"


def test_doctor_shows_what_is_shadowed(install: Install, command: Command) -> None:
    install("aa-good", GOOD, distribution="acme-first")
    install("aa-good", GOOD, distribution="acme-second")
    status, output, _ = command("doctor")
    assert status == 1
    assert "acme-first 1.0 is used" in output
    assert "acme-second 1.0" in output


def test_doctor_asks_nothing_of_extras(install: Install, command: Command) -> None:
    install("aa-good", GOOD, requires="trilane<0.1 ; extra == 'old'")
    assert command("doctor")[0] == 0


def test_doctor_is_content_with_a_good_plugin(install: Install, command: Command) -> None:
    install("aa-good", GOOD)
    status, output, errors = command("doctor")
    assert (status, errors) == (0, "")
    assert output.splitlines()[-1] == "all is well"
    assert "loaded  aa-good (acme-aa-good 1.0)" in output


def test_doctor_notes_missing_annotations_and_hooks_that_cannot_fire(install: Install, command: Command) -> None:
    install("aa-good", GOOD.replace("call: object", "call"))
    status, output, _ = command("doctor", "-p", "no:files")
    assert status == 0
    assert "before_tool has no annotation for call" in output
    assert "before_tool can never be called" in output


def test_doctor_says_which_model_a_run_would_take(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "model: offline" in command("doctor")[1]
    monkeypatch.setenv("TRILANE_MODEL", "oflin")
    status, output, _ = command("doctor")
    assert status == 1
    assert "the model cannot be used" in output
    assert "did you mean 'offline'" in output


def test_a_wrong_p_option_is_explained(command: Command) -> None:
    status, _, errors = command("list", "-p", "files")
    assert status == 2
    assert "write -p no:NAME" in errors


@pytest.mark.parametrize(
    ("got", "conditions", "met"),
    [
        ("1.10.0", ">=1.2,<2", True),
        ("2.0", ">=1.2,<2", False),
        ("0.9", "~=1.0", False),
        ("1.9", "~=1.0", True),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("1.0", "==1.0.0", True),
        ("1.0", "!=1.0", False),
        ("1.0rc1", ">0.9,<=1.0", True),
        ("1.0", "==1.*", True),
        ("1.0", "", True),
    ],
)
def test_version_conditions(got: str, conditions: str, met: bool) -> None:
    assert satisfies(got, conditions) is met
