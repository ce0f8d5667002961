"""Groups of commands: one whose help stays cheap, and the root, which also has the commands of plugins.

A plugin ships a command as an entry point of the group `trilane.commands`: its name is the command's, its value a
`typer.Typer` or a function. It is imported when the command is called, not to list it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["COMMAND_GROUP", "CheapGroup", "RootGroup"]

COMMAND_GROUP = "trilane.commands"


class CheapGroup(TyperGroup):
    """Gives the flags that typer adds itself (`--help`, completion) a default of False instead of None.

    typer 0.29 validates None with pydantic, which costs more than all the rest of `trilane run --help`.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return params


class RootGroup(CheapGroup):
    """The commands of Trilane, then those of installed plugins. A plugin cannot replace one of Trilane's."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        point = _points().get(cmd_name)
        return None if point is None else _load(point)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # Those of plugins are not in `list_commands`, because what is there is loaded for its help text.
        super().format_commands(ctx, formatter)
        rows = [(name, _origin(point)) for name, point in sorted(_points().items()) if name not in self.commands]
        if rows:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(rows)


def _points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=COMMAND_GROUP):
        points.setdefault(point.name, point)
    return points


def _origin(point: EntryPoint) -> str:
    return f"from {point.dist.name} {point.dist.version}" if point.dist is not None else f"from {point.value}"


def _load(point: EntryPoint) -> Any:
    """The command an entry point names.

    Raises:
        Exit: it cannot be loaded; what is wrong was said.
    """
    import typer

    from trilane.errors import PluginLoadError

    from .console import report_error, reported

    try:
        value = point.load()
        if not isinstance(value, typer.Typer):
            if not callable(value):
                raise PluginLoadError(
                    f"{point.value} is a {type(value).__name__}, neither a typer.Typer nor a function"
                )
            single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
            single.command()(reported(value))
            value = single
        command = typer.main.get_command(value)
    except Exception as error:
        error.add_note(f"It is the command {point.name!r} {_origin(point)}; nothing was run.")
        report_error(error)
        raise typer.Exit(1) from None
    command.name = point.name
    return command
