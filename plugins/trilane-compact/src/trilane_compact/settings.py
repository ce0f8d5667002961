"""The settings of the plugin."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

__all__ = ["NO_MODEL", "CompactSettings"]

NO_MODEL = "none"


class CompactSettings(BaseModel):
    """Section `compact`."""

    context_tokens: int = Field(
        0, ge=0, description="How much the session's model sees; 0 for what the model says of itself, else 128,000."
    )
    threshold: float = Field(
        0.8, gt=0, le=1, description="The share of the context at which a session is compacted by itself."
    )
    keep: float = Field(0.25, ge=0, lt=1, description="The share of the context that is kept as it is, at the end.")
    model: str = Field(
        "", description="What summarises: PROVIDER:NAME, empty for the session's own model, none for no model."
    )
    summary_tokens: int = Field(1500, gt=0, description="How long a summary should be at most.")
    seconds: float = Field(60.0, gt=0, le=600, description="How long one call of the summarising model may take.")
    automatic: bool = Field(True, description="False: only when somebody asks for it.")

    @model_validator(mode="after")
    def _keeps_less_than_it_takes(self) -> Self:
        if self.keep >= self.threshold:
            raise ValueError("keep must be less than threshold, or every turn would be compacted")
        return self
