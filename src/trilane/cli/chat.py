"""`trilane chat`: its options. What they lead to is in `chat_launch.py`, loaded when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["chat_command"]


def chat_command(
    model: Annotated[
        str, typer.Option("--model", "-m", help="PROVIDER or PROVIDER:NAME.", metavar="MODEL", show_default=False)
    ] = "",
    session: Annotated[
        str, typer.Option(help="Session to go on with, or a name for a new one.", metavar="ID", show_default=False)
    ] = "",
    go_on: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the session used last.")] = False,
    store: Annotated[
        str, typer.Option(help="Where sessions are: NAME or NAME:PLACE.", metavar="STORE", envvar="TRILANE_STORE")
    ] = "sqlite",
    root: Annotated[
        str, typer.Option(help="The folder that file tools may see.", metavar="PATH", show_default=False)
    ] = "",
    plugin: Annotated[
        list[str] | None,
        typer.Option("-p", help="no:NAME leaves out an installed plugin; may be repeated.", metavar="no:NAME"),
    ] = None,
    max_turns: Annotated[
        int | None,
        typer.Option(help="The most model calls for one request.", min=1, metavar="N", show_default=False),
    ] = None,
    approve: Annotated[
        bool | None, typer.Option("--yes/--no", help="Answer every approval without asking.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show phases and other details.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Talk with an agent, one request after the other on one session.

    Every installed plugin takes part. What is typed while a run works steers it; /help shows the commands. Without a
    terminal each line of standard input is a request.

    Exit status: 0 left, 1 a line failed (without a terminal), 2 wrong usage, 130 left by Ctrl-C.
    """
    from .chat_launch import ChatOptions, launch_chat

    raise typer.Exit(
        launch_chat(
            ChatOptions(
                model=model,
                session=session,
                go_on=go_on,
                store=store,
                root=root,
                plugin_options=tuple(plugin or ()),
                max_turns=max_turns,
                approve=approve,
                verbose=verbose,
                debug=debug,
            )
        )
    )
