"""`trilane sessions`: list, show, resume, replay, compact, fork, rename, delete, export, import, doctor, backup.

What they do is in the files `sessions_*.py`, loaded when a command runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .console import reported
from .groups import CheapGroup
from .options import (
    DebugOption,
    JsonOption,
    ModelOption,
    NoOption,
    PluginOption,
    RootOption,
    SessionArgument,
    StoreOption,
    VerboseOption,
    YesOption,
    approval,
)

__all__ = [
    "backup_command",
    "compact_command",
    "delete_command",
    "doctor_command",
    "export_command",
    "fork_command",
    "import_command",
    "list_command",
    "rename_command",
    "replay_command",
    "resume_command",
    "sessions_app",
    "show_command",
]

sessions_app = typer.Typer(
    cls=CheapGroup,
    help="Look at stored sessions, and go on with them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@sessions_app.command("list")
@reported
def list_command(
    search: Annotated[
        str, typer.Option("--search", "-s", help="Only sessions in which this text occurs.", metavar="TEXT")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many lines.", min=1, metavar="N")] = 20,
    json_lines: Annotated[bool, typer.Option("--json", help="One line of JSON for each.")] = False,
    store: StoreOption = "",
) -> None:
    """One line for each session, the one used last first; with --search, for each place where the text occurs."""
    from .sessions_store import with_store
    from .sessions_views import found_lines, listed_lines

    if search:
        _print(with_store(store, lambda opened: found_lines(opened, search, limit, json_lines)))
    else:
        _print(with_store(store, lambda opened: listed_lines(opened, limit, json_lines)))


@sessions_app.command("show")
@reported
def show_command(
    session: SessionArgument,
    full: Annotated[bool, typer.Option("--full", help="Whole messages and results.")] = False,
    store: StoreOption = "",
) -> None:
    """The messages of a session, with their ids, and how its runs ended."""
    from .sessions_store import with_store
    from .sessions_views import shown_lines

    _print(with_store(store, lambda opened: shown_lines(opened, session, full)))


@sessions_app.command("resume")
@reported
def resume_command(
    session: SessionArgument,
    model: ModelOption = "",
    root: RootOption = "",
    plugin: PluginOption = None,
    yes: YesOption = False,
    no: NoOption = False,
    json_lines: JsonOption = False,
    verbose: VerboseOption = False,
    debug: DebugOption = False,
    store: StoreOption = "",
) -> None:
    """Go on where a session was cut off or put aside. Exit status as of `trilane run`.

    Tools that are safe to run twice run again; of others that had started, the model is told that their effect is
    unknown. `trilane sessions doctor ID` says beforehand what will be done.
    """
    from .launch import Launch, launch

    raise typer.Exit(
        launch(
            Launch(
                request="",
                resume=True,
                session=session,
                store=store,
                model=model,
                root=root,
                plugin_options=tuple(plugin or ()),
                approve=approval(yes, no),
                json_lines=json_lines,
                verbose=verbose,
                debug=debug,
            )
        )
    )


@sessions_app.command("replay")
@reported
def replay_command(
    session: SessionArgument,
    run: Annotated[
        str, typer.Option("--run", help="Only the run whose id begins so; all runs without it.", metavar="RUN")
    ] = "",
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            help="What not to compare: hooks, requests, arguments, results, messages, events or endings; repeatable.",
            metavar="WHAT",
        ),
    ] = None,
    root: RootOption = "",
    plugin: PluginOption = None,
    json_lines: Annotated[bool, typer.Option("--json", help="What was found, as one line of JSON.")] = False,
    store: StoreOption = "",
) -> None:
    """Run a session again, offline, through the plugins of today, and say what first differs from what is stored.

    The model answers what is stored, and no tool runs: its stored result is taken. The session is only read. Runs of
    this command line are compared in everything; of others, what follows from the history.

    Exit status: 0 all is as it was, 1 something differs, or the session cannot be replayed.
    """
    from .sessions_replay import replay_lines

    lines, is_same = replay_lines(
        session,
        store,
        run=run,
        ignore=tuple(ignore or ()),
        root=root,
        plugin_options=tuple(plugin or ()),
        json_lines=json_lines,
    )
    _print(lines)
    raise typer.Exit(0 if is_same else 1)


@sessions_app.command("compact")
@reported
def compact_command(
    session: SessionArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last compaction back instead.")] = False,
    model: ModelOption = "",
    plugin: PluginOption = None,
    verbose: VerboseOption = False,
    store: StoreOption = "",
) -> None:
    """Shorten what models see of a session. What is stored stays whole.

    Exit status: 0 it is shorter (or, with --undo, whole again), 1 nothing has changed.
    """
    from . import sessions_compact
    from .options import blocked_names
    from .sessions_store import with_store

    if undo:
        status = 0 if with_store(store, lambda opened: sessions_compact.undo(opened, session)) else 1
    else:
        blocked = blocked_names(tuple(plugin or ()))
        status = with_store(store, lambda opened: sessions_compact.compact(opened, session, model, blocked, verbose))
    raise typer.Exit(status)


@sessions_app.command("fork")
@reported
def fork_command(
    session: SessionArgument,
    at: Annotated[
        str, typer.Option(help="The last message that is taken; all of them without it.", metavar="MESSAGE")
    ] = "",
    new: Annotated[str, typer.Option("--as", help="Id of the new session.", metavar="ID")] = "",
    store: StoreOption = "",
) -> None:
    """Make a session of the beginning of another, and print its id."""
    from .sessions_changes import fork
    from .sessions_store import with_store

    _print(with_store(store, lambda opened: fork(opened, session, at, new)))


@sessions_app.command("rename")
@reported
def rename_command(
    session: SessionArgument,
    title: Annotated[str, typer.Argument(help="The new title; empty for none.", metavar="TITLE", show_default=False)],
    store: StoreOption = "",
) -> None:
    """Give a session a title."""
    from .sessions_changes import rename
    from .sessions_store import with_store

    with_store(store, lambda opened: rename(opened, session, title))


@sessions_app.command("delete")
@reported
def delete_command(
    sessions: Annotated[list[str], typer.Argument(help="Whole ids of sessions.", metavar="ID...", show_default=False)],
    store: StoreOption = "",
) -> None:
    """Delete sessions with all that belongs to them. There is no way back; ids must be given whole."""
    from .sessions_changes import delete
    from .sessions_store import with_store

    with_store(store, lambda opened: delete(opened, sessions))


@sessions_app.command("export")
@reported
def export_command(
    session: SessionArgument,
    markdown: Annotated[bool, typer.Option("--markdown/--jsonl", help="For reading, or for `import`.")] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file; standard output without it.", metavar="FILE")
    ] = "",
    store: StoreOption = "",
) -> None:
    """Write a session as JSON lines, one for each record, or as Markdown."""
    from .sessions_export import export
    from .sessions_store import with_store

    with_store(store, lambda opened: export(opened, session, markdown, output))


@sessions_app.command("import")
@reported
def import_command(
    file: Annotated[str, typer.Argument(help="JSON lines of `export`; - reads standard input.", metavar="FILE")],
    new: Annotated[str, typer.Option("--as", help="Id of the session, instead of the one in the file.")] = "",
    store: StoreOption = "",
) -> None:
    """Read a session that was exported as JSON lines, and print its id."""
    from .sessions_export import import_file
    from .sessions_store import with_store

    _print(with_store(store, lambda opened: import_file(opened, file, new), makes=True))


@sessions_app.command("doctor")
@reported
def doctor_command(
    session: Annotated[
        str, typer.Argument(help="Id of a session, or the beginning of it; the whole store without.", metavar="ID")
    ] = "",
    store: StoreOption = "",
) -> None:
    """Say in words where a session stands and what resuming it would do, or what is wrong with the store.

    Exit status: 0 all can be read, 1 something is damaged.
    """
    from .sessions_doctor import examine
    from .sessions_store import with_store

    lines, is_well = with_store(store, lambda opened: examine(opened, session))
    _print(lines)
    raise typer.Exit(0 if is_well else 1)


@sessions_app.command("backup")
@reported
def backup_command(
    file: Annotated[str, typer.Argument(help="The file to write; it must not exist.", metavar="FILE")],
    store: StoreOption = "",
) -> None:
    """Copy the whole store to a new file, while it may be in use."""
    from .sessions_changes import back_up
    from .sessions_store import with_store

    with_store(store, lambda opened: back_up(opened, file))


def _print(lines: list[str]) -> None:
    from trilane.messages import clean_text

    for line in lines:
        print(clean_text(line))
