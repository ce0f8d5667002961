"""The commands, put together. Imports typer and the files of the commands, which import nothing heavy either."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from .chat import chat_command
from .console import reported
from .groups import RootGroup
from .plugins import plugins_app
from .run import run_command
from .schema import schema_command
from .sessions import sessions_app

__all__ = ["app", "run_app"]

app = typer.Typer(
    name="trilane",
    cls=RootGroup,
    help="Run an agent on a request, and look at the plugins it uses.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"trilane {version('trilane')}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


app.command("run")(reported(run_command))
app.command("chat")(reported(chat_command))
app.add_typer(plugins_app, name="plugins")
app.add_typer(sessions_app, name="sessions")
app.command("schema")(reported(schema_command))


def run_app(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; never a traceback for what a user can cause."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started the program, as with `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (it lives as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # lone surrogates and narrow encodings must not end a run
            stream.reconfigure(errors="replace")
    try:
        app(list(args) if args is not None else None, prog_name="trilane")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
