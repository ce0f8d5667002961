"""What can be configured."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = ["ExampleSettings"]


class ExampleSettings(BaseModel):
    """Settings of the plugin.

    Attributes:
        rule: A sentence for the model, in each request; empty for none.
        forbidden: Names of tools that never run.
    """

    rule: str = ""
    forbidden: list[str] = []
