"""Budget guard: ends runs when an agent has used up its tokens or its money, over all of its runs."""

from __future__ import annotations

from trilane import RunContext, hookimpl
from trilane.errors import RunLimitError
from trilane.models import ModelResponse

__all__ = ["BudgetGuard"]


class BudgetGuard:
    """Counts what every model call used, and refuses the next turn when a budget is used up.

    Within a run `Limits` do the same; this is for all runs of an agent together.

    Args:
        tokens: Input and output tokens together.
        cost: Money, in the currency of the models' prices.
    """

    name = "budget-guard"

    def __init__(self, tokens: int | None = None, cost: float | None = None) -> None:
        self.tokens = tokens
        self.cost = cost
        self.used_tokens = 0
        self.used_cost = 0.0

    @hookimpl(tryfirst=True)
    def before_turn(self, run: RunContext[object], turn: int) -> None:
        """A `RunLimitError` is how a plugin ends a run on purpose; what was reached is in its result."""
        for what, limit, used in (("tokens", self.tokens, self.used_tokens), ("cost", self.cost, self.used_cost)):
            if limit is not None and used >= limit:
                raise RunLimitError(f"the budget of {limit:g} {what} is used up ({used:g}); raise it or start anew")

    @hookimpl
    def after_model(self, run: RunContext[object], response: ModelResponse) -> None:
        self.used_tokens += response.usage.input_tokens + response.usage.output_tokens
        self.used_cost += response.usage.cost or 0.0
