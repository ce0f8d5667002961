"""`trilane run`: its options. What they lead to is in `launch.py`, loaded when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import (
    ContinueOption,
    DebugOption,
    JsonOption,
    MaxTurnsOption,
    ModelOption,
    NoOption,
    PluginOption,
    RootOption,
    SessionOption,
    StoreOption,
    VerboseOption,
    YesOption,
    approval,
)

__all__ = ["run_command"]


def run_command(
    request: Annotated[
        str, typer.Argument(help="What to do; - reads it from standard input.", metavar="REQUEST", show_default=False)
    ],
    model: ModelOption = "",
    session: SessionOption = "",
    go_on: ContinueOption = False,
    store: StoreOption = "",
    root: RootOption = "",
    plugin: PluginOption = None,
    max_turns: MaxTurnsOption = None,
    yes: YesOption = False,
    no: NoOption = False,
    json_lines: JsonOption = False,
    verbose: VerboseOption = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show usage and what each plugin cost.")] = False,
    trace_plugins: Annotated[
        bool, typer.Option("--trace-plugins", help="Show what plugins changed, from what to what.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Work one request and print the answer.

    Every installed plugin takes part. Without --model the model is TRILANE_MODEL, or a provider whose key is set and
    whose plugin is installed, or the built-in planner "offline".

    Exit status: 0 completed, 1 failed, 2 wrong usage, 130 interrupted by Ctrl-C, 143 or 129 put aside by SIGTERM or
    SIGHUP.
    """
    from .launch import Launch, launch

    raise typer.Exit(
        launch(
            Launch(
                request=request,
                model=model,
                session=session,
                go_on=go_on,
                store=store,
                root=root,
                plugin_options=tuple(plugin or ()),
                max_turns=max_turns,
                approve=approval(yes, no),
                json_lines=json_lines,
                verbose=verbose,
                stats=stats,
                trace_plugins=trace_plugins,
                debug=debug,
            )
        )
    )
