"""Writes the parts of the reference that code already says: phases, hooks, events, errors, settings; and `llms.txt`.

A page holds a part between `<!-- generated: NAME -->` and `<!-- end -->`; everything around it is written by hand. Run
it without arguments to rewrite the pages; `--check` only says which pages are out of date, and fails if there are any.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import _diagrams
import _events
import _measured
import _providers
import _settings

import trilane
from trilane import config, errors, events
from trilane.hookspecs import HOOKS, HookInfo, HookSpecs
from trilane.state import HOOKS_BY_PHASE, TRANSITIONS, AgentPhase

DOCS = Path(__file__).resolve().parent
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_SECTION = re.compile(r"^(When|Arguments|May return|If it raises|Order|Example|versionadded): ?", re.MULTILINE)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(names: Iterable[str], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


def _summary(thing: object) -> str:
    """First paragraph of the docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


# ---- phases ----------------------------------------------------------------------------------------------------------

_STOPPED = (AgentPhase.FAILED, AgentPhase.CANCELLED)


def _onward(phase: AgentPhase) -> list[AgentPhase]:
    return [target for target in AgentPhase if target in TRANSITIONS[phase] and target not in _STOPPED]


def phase_diagram() -> str:
    """The machine as text: one line for each transition, two-way ones once, the two ways out at the end."""
    lines: list[str] = []
    for phase in AgentPhase:
        for target in _onward(phase):
            both = phase in TRANSITIONS[target]
            if both and list(AgentPhase).index(target) < list(AgentPhase).index(phase):
                continue
            lines.append(f"{phase.name:<16} {'<──>' if both else '───>'} {target.name}\n")
    stoppable = [phase.name for phase in AgentPhase if set(_STOPPED) <= TRANSITIONS[phase]]
    lines.append("\n")
    lines += [f"{name:<16} ───> {' | '.join(phase.name for phase in _STOPPED)}\n" for name in stoppable]
    return f"```text\n{''.join(lines)}```\n"


def phase_table() -> str:
    """What may follow each phase, which hooks are called in it, and whether the session takes a new request."""
    return _table(
        ("phase", "may go to", "hooks called in it, in this order", "accepts a new request"),
        (
            (
                f"`{phase.name}`",
                _code(target.name for target in AgentPhase if target in TRANSITIONS[phase]) or "nowhere: terminal",
                _code(HOOKS_BY_PHASE[phase]) or "none",
                "yes" if phase.accepts_new_request else "no",
            )
            for phase in AgentPhase
        ),
    )


# ---- hooks -----------------------------------------------------------------------------------------------------------


def _hook_arguments() -> list[str]:
    return list(dict.fromkeys(argument for hook in HOOKS.values() for argument in hook.arguments))


def hook_table() -> str:
    """Which hook gets which argument."""
    arguments = _hook_arguments()
    return _table(
        ("hook", "mode", *(f"`{argument}`" for argument in arguments)),
        (
            (
                f"[`{hook.name}`](#{hook.name})",
                hook.mode,
                *("●" if name in hook.arguments else "" for name in arguments),
            )
            for hook in HOOKS.values()
        ),
    )


def hook_order() -> str:
    """The hooks in the order of a run, one line for each phase."""
    rows = ((f"`{phase.name}`", _code(HOOKS_BY_PHASE[phase], " → ")) for phase in AgentPhase if HOOKS_BY_PHASE[phase])
    anywhere = [hook.name for hook in HOOKS.values() if len(hook.phases) == len(AgentPhase)]
    loading = [hook.name for hook in HOOKS.values() if not hook.phases]
    return _table(
        ("phase", "hooks"),
        (*rows, ("any", _code(anywhere)), ("while a plugin is loaded", _code(loading, " → "))),
    )


def hook_parity() -> str:
    """Which hooks are called in which way to run, found by running; see `_parity.py`."""
    import logging

    import _parity

    logging.getLogger("trilane").setLevel(logging.CRITICAL)
    called = {mode: _parity.called_in(mode) for mode in _parity.MODES}
    hooks = [hook.name for hook in HOOKS.values() if hook.phases]
    return _table(
        ("hook", *called),
        ((f"`{hook}`", *("●" if hook in found else "" for found in called.values())) for hook in hooks),
    )


def _facts(hook: HookInfo) -> str:
    facts = [f"mode *{hook.mode}*"]
    facts += ["plain functions only"] if hook.sync else []
    facts += ["last plugin first"] if hook.reverse else []
    facts += ["`required=True` is allowed"] if hook.required_allowed else []
    if 0 < len(hook.phases) < len(AgentPhase):
        facts.append(f"called in {_code(phase.name for phase in AgentPhase if phase in hook.phases)}")
    return ", ".join(facts)


def _arguments(text: str) -> str:
    items = re.findall(r"^(\w+): (.*(?:\n[ ].*)*)", inspect.cleandoc(text), re.MULTILINE)
    return "\n" + "".join(f"\n- `{name}`: {' '.join(meaning.split())}" for name, meaning in items)


def _example(text: str) -> str:
    # Not `python`: these are fragments, which the tests of the pages cannot run.
    return f"\n\n```py\n{inspect.cleandoc(text)}\n```"


def _specification(hook: HookInfo) -> Iterator[str]:
    """Heading, signature and the docstring of the specification, section by section."""
    summary, *sections = _SECTION.split(inspect.getdoc(getattr(HookSpecs, hook.name)) or "")
    yield f"### `{hook.name}` {{ #{hook.name} }}\n\n{' '.join(summary.split())}\n\n"
    yield f"```text\n{hook.signature}\n```\n\n{_facts(hook)}\n\n"
    render = {"Arguments": _arguments, "Example": _example}
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        label = name.replace("versionadded", "Added in")
        yield f"**{label}:** {render.get(name, lambda plain: ' '.join(plain.split()))(text)}\n\n"


def hook_list() -> str:
    """Every hook with its specification."""
    return "".join(part for hook in HOOKS.values() for part in _specification(hook))


# ---- events ----------------------------------------------------------------------------------------------------------


def _subclasses(base: type) -> list[type]:
    found = [getattr(events, name) for name in events.__all__]
    found = [item for item in found if isinstance(item, type) and issubclass(item, base) and item is not base]
    order = list(vars(events))
    return sorted(found, key=lambda item: order.index(item.__name__))


def _fields(record: type, *, leave_out: Iterable[str]) -> str:
    names: dict[str, str] = getattr(record, "_record_fields", {})
    return _code(name for name in names if name not in set(leave_out)) or "none"


def _milestone(event: type) -> str:
    defaults: dict[str, object] = getattr(event, "_record_defaults", {})
    return "yes" if defaults["milestone"] else "no"


def event_table() -> str:
    """Every event of the UI stream."""
    common = list(getattr(events.AgentEvent, "_record_fields", {}))
    return _table(
        ("event", "own fields", "milestone", "meaning"),
        (
            (f"`{event.__name__}`", _fields(event, leave_out=common), _milestone(event), _summary(event))
            for event in _subclasses(events.AgentEvent)
        ),
    )


def notification_table() -> str:
    """Every notification the core publishes."""
    return _table(
        ("notification", "fields", "meaning"),
        (
            (f"`{event.__name__}`", _fields(event, leave_out=()), _summary(event))
            for event in _subclasses(events.ExtensionEvent)
        ),
    )


# ---- errors, settings ------------------------------------------------------------------------------------------------


def error_tree() -> str:
    """The tree of errors as the module draws it."""
    _, _, tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")
    return f"```text\n{tree.strip()}\n```\n"


def limits_table() -> str:
    """Every limit with its default."""
    defaults: dict[str, object] = getattr(config.Limits, "_record_defaults", {})
    hints: dict[str, str] = getattr(config.Limits, "_record_fields", {})
    return _table(
        ("limit", "type", "default"),
        ((f"`{name}`", f"`{hint}`".replace("|", "\\|"), f"`{defaults.get(name)}`") for name, hint in hints.items()),
    )


def _aliases(path: Path) -> Iterator[tuple[str, str]]:
    """Names of the module that stand for a combination of types, and the combination."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None):
            continue
        if ast.unparse(node.annotation) == "TypeAlias" and node.target.id in trilane.__all__:
            yield (
                node.target.id,
                re.sub(r"Union\[(.*)\]", lambda found: found[1].replace(", ", " | "), _unquoted(node.value)),
            )


def _unquoted(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value).replace("'", '"')


def alias_table() -> str:
    """Every public name that stands for a combination of types."""
    package = Path(trilane.__file__).parent
    elsewhere = (package / "cli", package / "testing")  # have names of their own
    modules = [path for path in package.rglob("*.py") if not any(path.is_relative_to(other) for other in elsewhere)]
    found = sorted(alias for module in modules for alias in _aliases(module))
    return _table(("name", "stands for"), ((f"`{name}`", f"`{value}`".replace("|", "\\|")) for name, value in found))


PARTS: dict[str, Callable[[], str]] = {
    "phase-diagram": phase_diagram,
    "phase-table": phase_table,
    "hook-table": hook_table,
    "hook-order": hook_order,
    "hook-parity": hook_parity,
    "hook-list": hook_list,
    "event-table": event_table,
    "notification-table": notification_table,
    "error-tree": error_tree,
    "limits-table": limits_table,
    "alias-table": alias_table,
    "plugin-settings": _settings.plugin_settings,
    "web-settings": _settings.web_settings,
    "event-examples": _events.event_examples,
    "phase-machine": _diagrams.phase_machine_diagram,
    "hook-order-diagram": _diagrams.hook_order_diagram,
    "lanes-diagram": _diagrams.lanes_diagram,
    "provider-table": _providers.provider_table,
    "preset-table": _providers.preset_table,
    "ahead-table": _measured.ahead_table,
    "channel-table": _measured.channel_table,
    "benchmark-results": _measured.benchmark_results,
}


def llms_text() -> str:
    """`llms.txt`: what Trilane is, and every page of the site with what it is about."""
    lines = [
        "# Trilane",
        "",
        "> A Python agent runtime with three lanes: an acknowledged UI stream, notifications for plugins, replies from "
        "outside. A run works one request through nine phases and calls the hooks of plugins on the way.",
        "",
    ]
    for line in (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].splitlines():
        title, _, place = line.strip().removeprefix("- ").partition(": ")
        if place:
            lines.append(f"- [{title}]({place}): {_about(DOCS / place)}")
        else:
            lines += ["", f"## {title.removesuffix(':')}", ""]
    return "\n".join(lines) + "\n"


def _about(page: Path) -> str:
    """The first sentence of a page."""
    paragraphs = page.read_text(encoding="utf-8").split("\n\n")
    first = next(text for text in paragraphs[1:] if re.match(r"(?!```)[A-Z`*\[]", text))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.:?]) (?=[A-Z`])", plain)[0].rstrip(":")


def rewritten(text: str) -> str:
    """The page with its generated parts made anew.

    Raises:
        KeyError: the page asks for a part that there is not.
    """
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n", text)


def main() -> int:
    """Rewrite or, with `--check`, compare; the number of pages that were out of date, when checking."""
    stale: list[Path] = []
    used: set[str] = set()
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        used |= {found["name"] for found in _PART.finditer(text)}
        new = rewritten(text)
        if new != text:
            stale.append(page)
            if "--check" not in sys.argv:
                page.write_text(new, encoding="utf-8")
    llms, listing = DOCS / "llms.txt", llms_text()
    if not llms.exists() or llms.read_text(encoding="utf-8") != listing:
        stale.append(llms)
        if "--check" not in sys.argv:
            llms.write_text(listing, encoding="utf-8")
    unused = sorted(set(PARTS) - used)
    if unused:
        print(f"no page shows: {', '.join(unused)}")
        return 1
    for page in stale:
        print(f"{'out of date' if '--check' in sys.argv else 'rewritten'}: docs/{page.relative_to(DOCS)}")
    if stale and "--check" in sys.argv:
        print("run: uv run python docs/_generate.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
