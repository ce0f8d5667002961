"""`trilane run`: its options. What they lead to is in `launch.py`, loaded when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["run_command"]


def run_command(
    request: Annotated[
        str, typer.Argument(help="What to do; - reads it from standard input.", metavar="REQUEST", show_default=False)
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="PROVIDER or PROVIDER:NAME.", metavar="MODEL", show_default=False)
    ] = "",
    session: Annotated[
        str, typer.Option(help="Session whose history the run continues.", metavar="NAME", show_default=False)
    ] = "",
    go_on: Annotated[bool, typer.Option("--continue", "-c", help="Continue the session used last.")] = False,
    root: Annotated[
        str, typer.Option(help="The folder that file tools may see.", metavar="PATH", show_default=False)
    ] = "",
    plugin: Annotated[
        list[str] | None,
        typer.Option("-p", help="no:NAME leaves out an installed plugin; may be repeated.", metavar="no:NAME"),
    ] = None,
    max_turns: Annotated[
        int | None,
        typer.Option(help="The most model calls, each with its tools.", min=1, metavar="N", show_default=False),
    ] = None,
    approve: Annotated[
        bool | None, typer.Option("--yes/--no", help="Answer every approval without asking.", show_default=False)
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show phases and other details.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show usage and what each plugin cost.")] = False,
    trace_plugins: Annotated[
        bool, typer.Option("--trace-plugins", help="Show what plugins changed, from what to what.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Work one request and print the answer.

    Every installed plugin takes part. Without --model the model is TRILANE_MODEL, or a provider whose key is set and
    whose plugin is installed, or the built-in planner "offline".

    Exit status: 0 completed, 1 failed, 2 wrong usage, 130 interrupted by Ctrl-C.
    """
    from .launch import Launch, launch

    raise typer.Exit(
        launch(
            Launch(
                request=request,
                model=model,
                session=session,
                go_on=go_on,
                root=root,
                plugin_options=tuple(plugin or ()),
                max_turns=max_turns,
                approve=approve,
                json_lines=json_lines,
                verbose=verbose,
                stats=stats,
                trace_plugins=trace_plugins,
                debug=debug,
            )
        )
    )
