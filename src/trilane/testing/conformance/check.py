"""`check_plugin` and `assert_plugin`: all checks of the kit, in an order in which the first complaints explain most."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from trilane.errors import PluginLoadError
from trilane.hookspecs import HOOKS
from trilane.messages import ToolCall
from trilane.testing.clock import Backend

if TYPE_CHECKING:
    from types import ModuleType

    from pydantic import JsonValue

    from trilane.agent import Answerer
    from trilane.tools import Tool

__all__ = ["CHECKS", "assert_plugin", "check_plugin"]

#: The names of the checks, in order.
CHECKS = ("annotations", "import", "modes", "blocking", "schedules", "repeats", "neighbours", "faults", "residue")


def check_plugin(
    plugin: Callable[[], object] | ModuleType | str,
    *,
    calls: Sequence[ToolCall] = (),
    tools: Sequence[Tool | Callable[..., object]] = (),
    deps: object = None,
    answer: Answerer | None = None,
    stored: Callable[[Any], JsonValue] | None = None,
    backends: Sequence[Backend] = ("asyncio", "trio"),
    import_seconds: float = 0.5,
    without: Collection[str] = (),
) -> list[str]:
    """What is wrong with a plugin.

    It is put into an agent whose model answers in three turns, with reasoning, text, tool calls that work, one that
    fails and one that has to be approved. Then:

    - *annotations*: its hooks say what they take and return;
    - *import*: its module is imported within `import_seconds` of the processor's time (four times that by the clock),
      prints nothing and starts no thread;
    - *modes*: it is run with `run`, `run_sync`, `stream`, `stream_sync`, `forward`, `runtime`, as a child, resumed,
      twice in a session and five times at once; its hooks do not fail and are called equally often, events and history
      are valid, nothing is left running, and what it changed or emitted comes back from JSON as it went in. The run may
      end with a `RunError` of its own;
    - *blocking*: no plain function holds the event loop up for long;
    - *schedules*: model and reader are slow; the caller leaves after each event, and cancels in each pause. The run is
      over then, the session free, and the next run on it works;
    - *repeats*: steps are executed twice. After each write the process is killed, in each pause of the model or a tool
      the run is suspended, and then it is resumed; each model call and each tool fails at first; each call is decided
      again after a question; an answer is sent back. The plugin survives it, what the session keeps is what it keeps of
      an uninterrupted run, and so is what the plugin stores, also if the session has lost what came after a write;
    - *neighbours*: another plugin raises, or stops the run, before and after it at each of its hooks;
    - *faults*: every fault of the harness: those of a call at each of its hooks, the others at a sample of all points
      of the run, see `trilane.testing.faults`;
    - *residue*: disabled, nothing of it is left; enabled, all is back; reloaded (if it is given by its installed name),
      it does the same, and its old self is gone; unregistered, nobody holds on to it.

    Args:
        plugin: What makes the plugin, a class or a function; or a module; or the name of an installed plugin.
        calls: Calls of the plugin's own tools, for the first turn. Nothing of it is called unasked.
        tools: Further tools of the agent.
        deps: The `deps` of every run.
        answer: Answers questions; without it approvals are given and the rest is answered "yes".
        stored: Called with the plugin after a run: what it has stored, as JSON. It must be the same whether a step was
            executed once or twice. `plugin` must make plugins that do not share it, and ids and times stay out of it.
        backends: Event loops to run on.
        import_seconds: Budget of the import.
        without: Names of checks to leave out. *schedules*, *repeats*, *neighbours* and *faults* are left out anyway for
            a plugin that has no hooks of runs.

    Returns:
        One sentence for each finding, empty if there is none.

    Raises:
        TypeError: `plugin` is none of these.
        ValueError: there is no check of a name in `without`.
    """
    from .faults import check_faults
    from .lifecycle import check_annotations, check_import, check_residue
    from .modes import check_blocking, check_modes
    from .neighbours import check_neighbours
    from .repeats import check_repeats
    from .schedules import check_schedules
    from .subject import subject_of

    unknown = set(without).difference(CHECKS)
    if unknown:
        raise ValueError(f"there is no check {min(unknown)!r}; the checks are: {', '.join(CHECKS)}")
    options: dict[str, Any] = {"deps": deps} if deps is not None else {}
    if answer is not None:
        options["answer"] = answer
    try:
        subject = subject_of(plugin, calls=tuple(calls), tools=tuple(tools), options=options, stored=stored)
    except PluginLoadError as error:
        return [f"registration: {error}"]
    if not subject.hooks:
        return ["registration: it implements no hook, so it does nothing; mark its functions with @hookimpl"]
    chosen = tuple(backends)
    left_out = set(without)
    if not any(HOOKS[hook].phases for hook in subject.hooks):
        left_out |= {"schedules", "repeats", "neighbours", "faults"}  # it has no part in runs
    checks: dict[str, Callable[[], Any]] = {
        "annotations": lambda: check_annotations(subject),
        "import": lambda: check_import(subject, import_seconds),
        "modes": lambda: check_modes(subject, chosen),
        "blocking": lambda: check_blocking(subject),
        "schedules": lambda: check_schedules(subject, chosen),
        "repeats": lambda: check_repeats(subject, chosen),
        "neighbours": lambda: check_neighbours(subject),
        "faults": lambda: check_faults(subject, chosen),
        "residue": lambda: check_residue(subject),
    }
    # What the log would say is what is provoked here, and what is wrong is among the findings.
    logger = logging.getLogger("trilane")
    before, logger.disabled = logger.disabled, True
    try:
        return [f"{name}: {text}" for name, check in checks.items() if name not in left_out for text in check()]
    finally:
        logger.disabled = before


def assert_plugin(plugin: Callable[[], object] | ModuleType | str, **options: Any) -> None:
    """Check a plugin with `check_plugin`, which tells what is checked and takes the same options.

    Raises:
        AssertionError: something is wrong; the message lists it.
    """
    found = check_plugin(plugin, **options)
    if found:
        raise AssertionError("\n  ".join(["the plugin does not conform:", *found]))
