"""Options that several commands share: declared once, so that they are named, explained and checked alike."""

from __future__ import annotations

from typing import Annotated

import typer

from .console import UsageError

__all__ = [
    "ContinueOption",
    "DebugOption",
    "JsonOption",
    "MaxTurnsOption",
    "ModelOption",
    "NoOption",
    "PluginOption",
    "RootOption",
    "SessionArgument",
    "SessionOption",
    "StoreOption",
    "VerboseOption",
    "YesOption",
    "approval",
    "blocked_names",
]

ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="PROVIDER or PROVIDER:NAME.", metavar="MODEL", show_default=False)
]
SessionOption = Annotated[
    str, typer.Option("--session", help="Session to go on with, or a name for a new one.", metavar="ID")
]
SessionArgument = Annotated[
    str, typer.Argument(help="Id of the session, or the beginning of it.", metavar="ID", show_default=False)
]
ContinueOption = Annotated[bool, typer.Option("--continue", "-c", help="Go on with the session used last.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        help="Where sessions are: NAME or NAME:PLACE of a session store; sqlite without it.",
        metavar="STORE",
        envvar="TRILANE_STORE",
    ),
]
RootOption = Annotated[str, typer.Option("--root", help="The folder that file tools may see.", metavar="PATH")]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("-p", help="no:NAME leaves out an installed plugin; may be repeated.", metavar="no:NAME"),
]
MaxTurnsOption = Annotated[
    int | None,
    typer.Option(
        "--max-turns",
        help="The most model calls for one request, each with its tools.",
        min=1,
        metavar="N",
        show_default=False,
    ),
]
# Two flags and not one with two names: of those the last given would win without a word.
YesOption = Annotated[bool, typer.Option("--yes", help="Approve whatever needs an approval, without asking.")]
NoOption = Annotated[bool, typer.Option("--no", help="Deny whatever needs an approval, without asking.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show phases and other details.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, also of one in a tool.")]


def approval(yes: bool, no: bool) -> bool | None:
    """What `--yes` and `--no` say; None for neither.

    Raises:
        UsageError: both were given.
    """
    if yes and no:
        raise UsageError("--yes and --no exclude each other: say what approvals are to be answered with")
    return True if yes else False if no else None


def blocked_names(options: tuple[str, ...]) -> tuple[str, ...]:
    """The plugins named in `-p no:NAME` options.

    Raises:
        UsageError: an option of another form, or a name that no installed plugin has.
    """
    names = []
    for option in options:
        name = option.removeprefix("no:")
        if name == option or not name:
            raise UsageError(
                f"-p {option}: write -p no:NAME to leave out a plugin; installed plugins are used without being named"
            )
        names.append(name)
    if names:
        _refuse_unknown(names)
    return tuple(names)


def _refuse_unknown(names: list[str]) -> None:
    from trilane.plugins import discover
    from trilane.plugins.checks import nearest

    known = {info.name for info in discover()}
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise UsageError(
                f"-p no:{name}: no plugin {name!r} is installed, so nothing would be left out{hint}"
                f"{'' if hint else '; see `trilane plugins list`'}"
            )
