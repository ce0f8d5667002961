"""Every public name says what it means and what it raises, and has an example on the site."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import trilane
import trilane.testing
from trilane import errors

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((*(ROOT / "src").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")))
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("plugins/*/README.md")]
#: Raised to say that something of ours, or of a subclass, is not finished, and the ends of iterators.
_OWN = {"NotImplementedError", "AssertionError", "StopAsyncIteration", "StopIteration"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Named(NamedTuple):
    """A public class or function, and whether it stands in a class."""

    name: str
    node: ast.ClassDef | _Function
    owner: ast.ClassDef | None = None


def _offered(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _public(path: Path) -> Iterator[Named]:
    """What a module offers, with the public methods of its classes; no overloads, and no checks of suites."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    offered = _offered(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | _Function) and node.name in offered and not _is_overload(node):
            yield Named(node.name, node)
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, _Function) and not _is_overload(item) and _is_open(item.name):
                        yield Named(f"{node.name}.{item.name}", item, node)


def _is_open(name: str) -> bool:
    return not name.startswith(("_", "test_")) or name == "__init__"


def _is_overload(node: ast.ClassDef | _Function) -> bool:
    return any(ast.unparse(mark).endswith("overload") for mark in node.decorator_list)


def _raised(node: ast.AST) -> Iterator[str]:
    """Exceptions that a function makes and raises itself, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | _Function | ast.Lambda):
            continue
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            yield ast.unparse(child.exc.func).rpartition(".")[2]
        yield from _raised(child)


MODULES = [
    path
    for path in SOURCES
    if "cli" not in path.parts
    and all(part == "__init__.py" or not part.startswith("_") for part in path.relative_to(ROOT).parts)
]


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 40
    assert "Agent.run" in {named.name for named in _public(ROOT / "src" / "trilane" / "agent.py")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_public_name_says_what_it_means_and_what_it_raises(path: Path) -> None:
    silent, unsaid = [], []
    for name, node, owner in _public(path):
        said = ast.get_docstring(node) or ""
        if name.endswith(".__init__"):
            said += ast.get_docstring(owner) or "" if owner else ""
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases):
            said = said or "a protocol"
        if not said and not _inherits(node):
            silent.append(name)
        raised = set() if isinstance(node, ast.ClassDef) else {*_raised(node)} - _OWN
        if raised and "Raises:" not in said:
            unsaid.append(f"{name}: {', '.join(sorted(raised))}")
    assert silent == [], "say in one sentence what it means"
    assert unsaid == [], "add `Raises:` to the docstring"


def _inherits(node: ast.AST) -> bool:
    """What overrides a method of a public protocol need not say again what it means."""
    return isinstance(node, _Function) and node.name in {
        "after_task_step", "aclose", "append", "call", "exec_module", "lease", "load", "parse_hookimpl_opts",
        "parse_hookspec_opts", "name",
    }  # fmt: skip


def _words_of_examples() -> set[str]:
    """Every word in a program of a page; these run."""
    blocks = re.compile(r"^ *```python[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    return {
        word
        for page in PAGES
        for block in blocks.findall(page.read_text(encoding="utf-8"))
        for word in re.findall(r"\b[A-Za-z_]\w*\b", block)
    }


def test_every_public_name_has_an_example() -> None:
    words = _words_of_examples() | {event.__name__ for event in typing.get_args(trilane.Event)}
    names = {*trilane.__all__, *trilane.testing.__all__}
    assert {name for name in names if not name.startswith("__")} - words == set(), (
        "show it in docs/reference/examples.md"
    )


def test_every_error_has_a_cause_and_a_cure() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]{10,}) \| ([^|]{3,}) \|$", page, re.MULTILINE)
    assert sorted(row[0] for row in rows) == sorted(errors.__all__)
