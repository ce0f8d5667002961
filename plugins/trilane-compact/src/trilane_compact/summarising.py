"""Having a plan carried out: a model writes the summary, and what comes of it is looked at before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trilane import CompactedHistory, ModelRequest, ModelSettings, TextPart, TrilaneError, UserMessage
from trilane.messages import clean_text, new_id

from .counting import tokens_of, tokens_of_all
from .marks import is_summary, stands_for, summary_message, summary_of
from .settings import NO_MODEL
from .writing import digest, instructions, parts_of, request_text

if TYPE_CHECKING:
    from trilane import Delta, ModelResponse, RunContext

    from .planning import Plan
    from .settings import CompactSettings

__all__ = ["CompactionError", "compacted", "window_of"]

DEFAULT_WINDOW = 128_000
_RECORD_SHARE = 0.65  # of what the summarising model sees, for the record of one call
_EVERY_CHARACTERS = 400  # of a summary, the caller is told how far it is
_PLANNERS = ("offline:",)  # models that are no language models: asked for a summary they say that they cannot


class CompactionError(TrilaneError):
    """What came of a compaction is of no use; the history stays as it is. The message says why."""


def window_of(model: Any, settings: CompactSettings) -> int:
    """How many tokens a model sees: by the settings, by what it says of itself, or what most see."""
    said = getattr(model, "context_tokens", None)
    return settings.context_tokens or (said if isinstance(said, int) and said > 0 else DEFAULT_WINDOW)


async def compacted(run: RunContext[Any], plan: Plan, settings: CompactSettings, least: float) -> CompactedHistory:
    """What models see from now on.

    Args:
        run: The run.
        plan: What stays and what does not.
        settings: The settings.
        least: How many estimated tokens must be saved, more than 0.

    Raises:
        CompactionError: there is no summary, or it saves too little.
        Exception: what the summarising model raised.
    """
    window = window_of(run.model, settings)
    words = min(settings.summary_tokens, max(1, window // 8))
    before = tokens_of_all(plan.replaced)
    count = len(plan.replaced)
    if settings.model == NO_MODEL or (not settings.model and run.model.name.startswith(_PLANNERS)):
        await run.progress(f"listing {count} messages (about {before:,} tokens)")
        text = digest(plan.replaced, words)
    else:
        text = await _summary(run, plan, settings, words, before)
    if not text.strip():
        raise CompactionError("the summary is empty; the history stays as it is")
    length = len(plan.kept) + 1 + len(plan.tail)
    stood_for = sum([stands_for(message) for message in plan.replaced])
    summary = summary_message(clean_text(text.strip()), stands_for=stood_for, view_length=length)
    after = tokens_of(summary)
    if before - after < least:
        raise CompactionError(
            f"the summary has about {after:,} tokens and would stand for {before:,}: that saves too little, so the "
            "history stays as it is"
        )
    return CompactedHistory(
        messages=(*plan.kept, summary, *plan.tail),
        reason=f"{count} messages (about {before:,} tokens) became a summary of about {after:,}",
    )


async def _summary(run: RunContext[Any], plan: Plan, settings: CompactSettings, words: int, before: int) -> str:
    """Part by part, each with the summary of those before it, if the record is too long for one call."""
    model = settings.model or None
    name = settings.model or run.model.name
    window = window_of(run.model, settings)
    earlier = [summary_of(message) for message in plan.replaced if is_summary(message)]
    new = [message for message in plan.replaced if not is_summary(message)]
    parts = parts_of(new, window * _RECORD_SHARE)
    await run.progress(f"summarising {len(plan.replaced)} messages (about {before:,} tokens) with {name}")
    text = "\n\n".join(earlier)
    for number, part in enumerate(parts, 1):
        if len(parts) > 1:
            await run.progress(f"part {number} of {len(parts)}")
        request = ModelRequest(
            instructions=instructions(words),
            messages=(UserMessage(id=new_id(), parts=(TextPart(text=request_text(part, text, number, len(parts))),)),),
            # Four times what it should write: models that think need room for that, too.
            settings=ModelSettings(max_output_tokens=max(16, min(words * 4, window // 4))),
        )
        progress = _Progress(run)
        response = await run.call_model(request, model=model, emit=progress.emit, timeout=settings.seconds)
        text = _text_of(response, name)
    return text


def _text_of(response: ModelResponse, name: str) -> str:
    text = "".join([part.text for part in response.parts or () if part.kind == "text"])
    if response.stop_reason in ("refusal", "content_filter"):
        raise CompactionError(f"model {name} did not summarise ({response.stop_reason}); the history stays as it is")
    if not text.strip():
        raise CompactionError(f"model {name} wrote an empty summary; the history stays as it is")
    return f"{text} (cut off here)" if response.stop_reason == "length" else text


class _Progress:
    """Tells how much of a summary is written, every so often: each time waits for the caller."""

    __slots__ = ("_run", "_told", "_written")

    def __init__(self, run: RunContext[Any]) -> None:
        self._run = run
        self._written = 0
        self._told = 0

    async def emit(self, delta: Delta) -> None:
        if delta.kind != "text":
            return
        self._written += len(delta.text)
        if self._written - self._told >= _EVERY_CHARACTERS:
            self._told = self._written
            await self._run.progress(f"{self._written:,} characters are written")
