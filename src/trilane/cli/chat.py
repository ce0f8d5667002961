"""`trilane chat`: its options. What they lead to is in `chat_launch.py`, loaded when the command runs."""

from __future__ import annotations

import typer

from .options import (
    ContinueOption,
    DebugOption,
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

__all__ = ["chat_command"]


def chat_command(
    model: ModelOption = "",
    session: SessionOption = "",
    go_on: ContinueOption = False,
    store: StoreOption = "",
    root: RootOption = "",
    plugin: PluginOption = None,
    max_turns: MaxTurnsOption = None,
    yes: YesOption = False,
    no: NoOption = False,
    verbose: VerboseOption = False,
    debug: DebugOption = False,
) -> None:
    """Talk with an agent, one request after the other on one session.

    Every installed plugin takes part. What is typed while a run works steers it; /help shows the commands. Without a
    terminal each line of standard input is a request.

    Exit status: 0 left, 1 a line failed (without a terminal), 2 wrong usage, 130 left by Ctrl-C, 143 or 129 put aside
    by SIGTERM or SIGHUP.
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
                approve=approval(yes, no),
                verbose=verbose,
                debug=debug,
            )
        )
    )
