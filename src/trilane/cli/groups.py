"""A group of commands whose help stays cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer import Context

__all__ = ["CheapGroup"]


class CheapGroup(TyperGroup):
    """Gives the flags that typer adds itself (`--help`, completion) a default of False instead of None.

    typer 0.29 validates None with pydantic, which costs more than all the rest of `trilane run --help`.
    """

    def get_params(self, ctx: Context) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return params
