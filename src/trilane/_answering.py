"""An answer and what may become of it: it is taken, sent back, or asked for again because it is empty.

Part of READY; the other steps are in `_phases.py`. How an answer is read as the output type is in `output.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._conversation import add_user_message, hears_more
from ._dispatch import HookError
from .decisions import Replace, SendBack
from .errors import EmptyReplyError, PluginError, RefusalError, RunLimitError
from .events import MessageCompleted
from .messages import TextPart, UserMessage, new_id
from .output import InvalidAnswer
from .state import AgentPhase
from .stores import MessageHidden

if TYPE_CHECKING:
    from ._core import Core
    from .messages import AssistantMessage

__all__ = ["look_at_answer"]


async def look_at_answer(core: Core) -> AgentPhase | None:
    """A message without calls: it is the answer, or goes back to the model with what is wrong."""
    message = core.last_message
    assert message is not None
    if not message.parts:  # providers refuse a history with such a message in it
        _hide(core, message, "empty reply")
    if message.stop_reason == "pause":
        core.step = "turn"
        return None
    if not message.text.strip() and message.stop_reason not in ("refusal", "content_filter"):
        _ask_again(core, message)
        return None
    output: Any = None
    problem: Exception | None = None
    try:
        if message.stop_reason in ("refusal", "content_filter"):
            problem = RefusalError(
                f"the model declined to answer ({message.stop_reason}): {message.text or 'it gave no reason'}"
            )
        else:
            output = core.setup.output.read(message)
    except InvalidAnswer as invalid:
        problem = invalid
    if core.hooks.on_answer:
        await core.before_hook()
        decision, output = await _through_on_answer(core, message, output)
        if isinstance(decision, SendBack):
            _send_back(core, message, decision.feedback)
            return None
        if decision is not None:
            problem = None
    if isinstance(problem, InvalidAnswer):
        _send_back(core, message, str(problem), problem.order)
        return None
    if problem is not None:
        raise problem
    core.output = output
    await core.flush()
    if core.hooks.after_run or core.hooks.on_success or core.hooks.close_run or core.hooks.on_event:
        await core.show()
    if hears_more(core):
        core.answer_attempts = core.empty_replies = 0  # what comes next is answered anew
        core.step = "turn"
        return None
    return AgentPhase.COMPLETED


def _ask_again(core: Core, message: AssistantMessage) -> None:
    """An empty reply: ask again a few times, with a note in the request that is in no history."""
    if message.stop_reason == "length":
        raise RunLimitError(
            "the model used up its output limit before it had written an answer; "
            "raise ModelSettings.max_output_tokens or lower ModelSettings.reasoning"
        )
    core.empty_replies += 1
    if core.empty_replies > core.limits.empty_replies:
        raise EmptyReplyError(
            f"the model answered with nothing {core.empty_replies} times; ask differently, use another model, "
            "or raise Limits.empty_replies"
        )
    core.produce(MessageCompleted, message=message, stop_reason=message.stop_reason, superseded=True)
    if message.parts:
        _hide(core, message, "empty reply")
    core.notes_for_model += ("Your last reply was empty. Answer the user, or call a tool.",)
    core.step = "turn"


def _send_back(core: Core, message: AssistantMessage, reason: str, order: str = "") -> None:
    """The answer is not accepted: models see the reason instead of it, and an order, at most so many times."""
    core.answer_attempts += 1
    if core.answer_attempts > core.limits.answer_retries:
        raise RunLimitError(
            f"the answer was not accepted after {core.answer_attempts} attempts; raise Limits.answer_retries, "
            f"or look at result.messages for what was refused; the last reason: {reason}"
        )
    feedback = reason + order
    core.produce(MessageCompleted, message=message, stop_reason=message.stop_reason, superseded=True)
    if core.setup.output.is_text:
        _hide(core, message, "not accepted")
        core.notes_for_model += (feedback,)
    else:
        # The model must see what it wrote in order to mend it.
        note = UserMessage(id=new_id(), parts=(TextPart(text=feedback),), origin="feedback")
        add_user_message(core, note)
    core.step = "turn"


def _hide(core: Core, message: AssistantMessage, reason: str) -> None:
    core.record(MessageHidden(run_id=core.run_id, message_id=message.id, reason=reason))


def _differs(output: Any, before: Any, *, again: bool) -> bool:
    """True if a replacement is another output than the one before.

    Some values equal nothing, themselves neither (NaN), and some refuse to be compared: where a plugin replaces the
    output `again`, how they are written decides.
    """
    if output is before:
        return False
    try:
        if output == before:
            return False
    except Exception:
        pass
    if not again:
        return True
    try:
        return type(output) is not type(before) or repr(output) != repr(before)
    except Exception:
        return True


async def _through_on_answer(core: Core, message: AssistantMessage, output: Any) -> tuple[Any, Any]:
    """Ask every plugin; a replacement is asked about again. Returns the last decision and the output."""
    decision: Any = None
    replacers: list[str] = []
    for _ in range(8):
        replaced = False
        for implementation in core.hooks.on_answer:
            try:
                value = await core.dispatcher.call(implementation, core.clock, core.context, message, output)
                if isinstance(value, SendBack):
                    value = core.dispatcher.usable(implementation, value)
            except HookError as failure:
                failure.raise_again()
            if value is None:
                continue
            if isinstance(value, SendBack):
                core.dispatcher.changed(implementation, None, value)
                return value, output
            if not isinstance(value, Replace):
                raise PluginError(
                    f"plugin {implementation.plugin!r}: on_answer returned {type(value).__name__}; "
                    "return Replace, SendBack or None",
                    plugin=implementation.plugin,
                    hook="on_answer",
                )
            decision = value
            before, output = output, value.output
            if _differs(output, before, again=implementation.plugin in replacers):
                core.dispatcher.changed(implementation, before, output)
                replaced = True
                replacers.append(implementation.plugin)
                break
        if not replaced:
            return decision, output
    names = ", ".join(sorted(set(replacers)))
    raise PluginError(
        f"the output was replaced 8 times without end by on_answer hooks, by plugins: {names}",
        plugin=replacers[-1],
        hook="on_answer",
    )
