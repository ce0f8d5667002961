"""Every public module says what is public, sorted and complete; the package offers what the design fixes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trilane

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((*(ROOT / "src").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")))
PUBLIC = [
    path
    for path in SOURCES
    if all(part in ("__init__.py",) or not part.startswith("_") for part in path.relative_to(ROOT).parts)
]

#: Names that other people's code relies on; removing one breaks them.
FIXED = [
    "Agent",
    "AgentEvent",
    "AgentEventQueue",
    "AgentPhase",
    "AgentProtocolError",
    "AgentState",
    "EventSink",
    "EventSinkClosed",
    "PhaseError",
    "RunCancelledEvent",
    "RunCompleted",
    "RunContext",
    "RunResult",
    "RunStream",
    "RuntimeQueues",
    "Tool",
    "ToolContext",
    "hookimpl",
    "tool",
]


def _declared(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        target = (
            node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else 0
        )
        if isinstance(target, ast.Name) and target.id == "__all__" and isinstance(node, ast.Assign | ast.AnnAssign):
            names: list[str] = ast.literal_eval(node.value)  # type: ignore[arg-type]
            return names
    return None


def _is_type_variable(value: ast.expr | None) -> bool:
    name = value.func if isinstance(value, ast.Call) else None
    return isinstance(name, ast.Name) and name.id in ("TypeVar", "ParamSpec", "TypeVarTuple", "getLogger")


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not _is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _imported_from_own_package(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from (alias.asname or alias.name for alias in node.names)


def _order(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _is_public(name: str) -> bool:
    # Constants that sibling modules share are not an offer to the world; functions, classes and aliases are.
    return not name.startswith("_") and not name.isupper() and name != "log"


def test_the_tree_was_found() -> None:
    assert len(PUBLIC) > 20
    assert ROOT / "src/trilane/__init__.py" in PUBLIC


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_is_sorted_and_complete(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    declared = _declared(tree)
    defined = {name for name in _defined(tree) if _is_public(name)}
    if path.name == "__init__.py":
        defined |= {name for name in _imported_from_own_package(tree) if _is_public(name)}
    if not defined and declared is None:
        return  # a package whose __init__ only has a docstring
    assert declared is not None, "add __all__"
    assert declared == sorted(declared, key=_order), "constants, then classes, then functions, each in order"
    assert len(declared) == len(set(declared))
    assert defined - set(declared) == set(), "public, but not in __all__"


def test_every_public_name_is_there() -> None:
    missing = [name for name in trilane.__all__ if getattr(trilane, name, None) is None]
    assert missing == []
    assert len(trilane.__all__) > 60


def test_names_that_others_rely_on_are_public() -> None:
    assert [name for name in FIXED if name not in trilane.__all__] == []
