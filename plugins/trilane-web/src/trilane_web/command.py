"""`trilane serve`: its options. What they lead to is imported when the command runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trilane import Agent

__all__ = ["load_agent", "serve"]


def serve(
    agent: Annotated[
        str, typer.Argument(help="The agent, as MODULE:NAME; without it one with every installed plugin.")
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any.", min=0, max=65535)] = 8765,
    token: Annotated[
        str,
        typer.Option(help="What clients must present; new: a fresh one.", envvar="TRILANE_TOKEN", show_default=False),
    ] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="PROVIDER or PROVIDER:NAME.", show_default=False)] = "",
    store: Annotated[
        str,
        typer.Option(
            help="Where sessions are: NAME or NAME:PLACE, or memory. Without it sqlite, if that plugin is installed.",
            envvar="TRILANE_STORE",
            show_default=False,
        ),
    ] = "",
    acknowledgement: Annotated[str, typer.Option(help="strict, windowed or detached.")] = "windowed",
    on_disconnect: Annotated[
        str, typer.Option(help="pause, cancel or continue runs whose client goes away.", show_default=False)
    ] = "",
    origin: Annotated[
        list[str] | None, typer.Option(help="Another origin whose pages may connect; may be repeated.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="A host name the server may be addressed as; may be repeated.")
    ] = None,
    show_errors: Annotated[bool, typer.Option(help="Show clients what unknown errors say.")] = False,
) -> None:
    """Serve an agent to browsers and programs.

    Open the address that is printed for the chat page. The server listens on this machine only, unless --host says
    otherwise, and then wants a --token.
    """
    from .launch import launch

    launch(
        agent,
        host=host,
        port=port,
        token=token,
        model=model,
        store=store,
        acknowledgement=acknowledgement,
        on_disconnect=on_disconnect,
        origins=tuple(origin or ()),
        names=tuple(name or ()),
        show_errors=show_errors,
    )


def load_agent(target: str, model: str = "", store: str = "") -> Agent[Any, Any]:
    """The agent named `MODULE:NAME`, or one with every installed plugin.

    Raises:
        ConfigError: there is no such module, name, model or store, or it is no agent.
    """
    import os

    from trilane import Agent, ConfigError, installed

    if not target:
        chosen = model or os.environ.get("TRILANE_MODEL") or "offline"
        return Agent(chosen, plugins=installed(), store=_store(store))
    if model:
        raise ConfigError("--model is for the agent without a name; the agent that was named has its own model")
    found = _named(target)
    if not isinstance(found, Agent) and callable(found):
        found = found()
    if not isinstance(found, Agent):
        raise ConfigError(f"{target} is a {type(found).__name__}, not an Agent or a function that returns one")
    return found


def _named(target: str) -> Any:
    import importlib
    import os
    import sys

    from trilane import ConfigError

    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{target!r} does not name an agent; write MODULE:NAME, for example my_agents:helper")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise ConfigError(f"there is no module {module_name!r} here or among the installed packages") from None
    if not hasattr(module, attribute):
        raise ConfigError(f"the module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


def _store(spec: str) -> Any:
    """The store of that description; None for the memory of the process."""
    from trilane import PluginManager, discover
    from trilane.plugins import resolve_store, store_plugin

    if not spec:
        spec = "sqlite" if any(info.name == "sqlite" for info in discover()) else "memory"
    if spec == "memory":
        return None
    return resolve_store(spec, PluginManager([store_plugin(spec) or spec.partition(":")[0]]))
