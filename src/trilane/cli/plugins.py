"""`trilane plugins`: list, info, order, doctor; new and test are in `plugins_new.py`.

What they report is made in `registry.py` and `doctor.py`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .console import reported
from .groups import CheapGroup
from .plugins_new import command_new, command_test

__all__ = ["doctor_command", "info_command", "list_command", "order_command", "plugins_app"]

plugins_app = typer.Typer(
    cls=CheapGroup,
    help="Look at the installed plugins, and write new ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_Blocked = Annotated[
    list[str] | None,
    typer.Option("-p", help="no:NAME leaves out an installed plugin; may be repeated.", metavar="no:NAME"),
]


@plugins_app.command("list")
@reported
def list_command(plugin: _Blocked = None) -> None:
    """One line for each plugin: name, distribution, version, status, hooks."""
    from .registry import list_lines, load_registry

    _print(list_lines(load_registry(tuple(plugin or ()))))


@plugins_app.command("info")
@reported
def info_command(
    name: Annotated[str, typer.Argument(help="Name of a plugin.", metavar="NAME", show_default=False)],
    plugin: _Blocked = None,
) -> None:
    """Everything that is known of one plugin."""
    from .registry import info_lines, load_registry

    _print(info_lines(load_registry(tuple(plugin or ())), name))


@plugins_app.command("order")
@reported
def order_command(
    hook: Annotated[
        str, typer.Argument(help="Name of a hook; all that are implemented without it.", metavar="HOOK")
    ] = "",
    plugin: _Blocked = None,
) -> None:
    """In which order the plugins' implementations of a hook are called, and why."""
    from .registry import load_registry, order_lines

    _print(order_lines(load_registry(tuple(plugin or ())), hook))


@plugins_app.command("doctor")
@reported
def doctor_command(
    plugin: _Blocked = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Leave out the trial run.")] = False,
) -> None:
    """Load every plugin, make a trial run with a made-up model and no network, and say what is wrong.

    Exit status: 0 all is well, 1 something is not.
    """
    from .doctor import examine
    from .registry import load_registry

    findings = examine(load_registry(tuple(plugin or ())), with_run=not no_run)
    _print(findings.lines())
    raise typer.Exit(0 if findings.is_well else 1)


plugins_app.command("new")(reported(command_new))
plugins_app.command("test", context_settings={"ignore_unknown_options": True})(reported(command_test))


def _print(lines: list[str]) -> None:
    from trilane.messages import clean_text

    for line in lines:
        print(clean_text(line))
