"""One assistant message while it is streamed: what the caller is shown, and what the history will keep.

For turning deltas into events and parts. Calling the model and its retries is in `_generate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._checking import emitted_delta
from ._dispatch import HookError, raise_unchanged
from ._plain import clean_json
from ._records import maker, stamped
from ._tasks import current_clock
from .errors import AgentProtocolError, PluginError
from .events import (
    MessageCompleted,
    MessageStarted,
    ReasoningCompleted,
    ReasoningDelta,
    ReasoningStarted,
    TextCompleted,
    TextDelta,
    TextStarted,
    ToolCallDelta,
)
from .messages import (
    AssistantMessage,
    AssistantPart,
    Delta,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolCallPart,
    clean_text,
    new_id,
)

if TYPE_CHECKING:
    from ._core import Core
    from .events import Event
    from .models import ModelResponse

__all__ = ["Assembly", "settled_parts"]


class _Piece:
    """A part that is growing."""

    __slots__ = ("call_id", "extra", "index", "kind", "name", "texts")

    def __init__(self, delta: Delta) -> None:
        self.kind = delta.kind
        self.index = delta.index
        self.texts: list[str] = []
        self.extra = delta.extra
        self.call_id = delta.call_id
        self.name = delta.name


class Assembly:
    """Takes deltas, shows them, and keeps them."""

    __slots__ = (
        "_carry",
        "_core",
        "_fast_event",
        "_fast_index",
        "_fast_kind",
        "_fast_texts",
        "_next_index",
        "_open",
        "_piece_of",
        "_pieces",
        "_shown_calls",
        "_shown_index",
        "_shown_open",
        "closed",
        "failure",
        "message_id",
        "shown",
    )

    def __init__(self, core: Core) -> None:
        self._core = core
        self.message_id = new_id()
        self.shown = False  # the caller has seen the message begin
        self.closed = False  # the model call has ended
        self.failure: Exception | None = None  # of an `on_delta` hook: it ends the run, whatever the model makes of it
        self._pieces: list[_Piece] = []
        self._piece_of: dict[int, _Piece] = {}  # the model's index of a call -> the last piece with it
        self._open: _Piece | None = None
        self._shown_open: tuple[str, int] | None = None  # the text or reasoning segment the caller sees open
        # Models may give an index twice; the caller is told which part of the message it is, counted from 0.
        self._shown_index = 0  # of the segment that is open
        self._next_index = 0
        self._shown_calls: dict[int, tuple[str, int]] = {}  # the model's index -> id of the call, its index here
        self._carry = ""  # half a surrogate pair whose other half is still to come
        # Set while a text or reasoning part is open that no hook looks at, see `emit`.
        self._fast_kind = ""
        self._fast_index = 0
        self._fast_texts: list[str] = []
        self._fast_event: Callable[..., Event] = TextDelta

    # ---- from the model ----------------------------------------------------------------------------------------------

    def _refuse_late(self) -> None:
        if self.closed:
            raise AgentProtocolError("emit() after the model call had ended; await everything before call() returns")

    async def emit(self, delta: Delta) -> None:
        """Take one delta; return when the caller has seen it.

        Raises:
            AgentProtocolError: the model call this belongs to has ended.
            TypeError: not a `Delta`, or something in it is not what it must be.
            RunCancelledError: a stop was asked for: let it through, after closing what is open.
        """
        if delta.__class__ is not Delta:
            self._refuse_late()
            delta = emitted_delta(delta)
        text = delta.text
        core = self._core
        if (
            delta.kind == self._fast_kind
            and delta.index == self._fast_index
            and text
            and text.isascii()
            and "\x00" not in text
            and delta.extra is None
            and not core.pending
            and not core.notes
            and not core.silent
        ):
            # The same as below for one more increment of the part that is open, without its detours: this is the
            # hottest path of a run, and every coroutine and every call on it is felt.
            self._fast_texts.append(text)
            core.seq += 1
            event = self._fast_event(core, self.message_id, self._shown_index, text)
            main, queue = core.clock, core.queue
            clock = current_clock.get(main)
            if clock is not main and clock.watchdog is not core.watchdog:
                clock = main  # the task is none of the run's: see `clock_here`
            try:
                if core.offers and queue.putting is False:
                    since = clock.now()
                    done = queue.offer(event)
                    if not clock.paused:
                        clock.lost += clock.now() - since
                    if done:
                        if core.stop_error is not None:
                            core.check()
                        return
                    rest = queue.acknowledged()
                else:
                    rest = queue.put(event)
                clock.pause()
                try:
                    await rest
                finally:
                    clock.resume()
            except Exception as error:
                core.lane_error = core.lane_error or error
                raise
            if core.stop_error is not None:
                core.check()
            return
        self._refuse_late()
        delta = emitted_delta(delta)
        text = delta.text
        if not text.isascii() or "\x00" in text or self._carry:
            self._fast_kind = ""  # until half a pair that may be held back is out
            text = self._clean(text)
            delta = delta.replace(text=text)
        if delta.kind == "arguments":
            self._keep_arguments(delta)
        elif text or delta.extra is not None:
            self._keep(delta)
        if not text and delta.kind != "arguments":
            return
        if core.hooks.on_delta:
            self._show_filtered(delta)
        else:
            self._show(delta)
        if core.pending or core.stop_error is not None:
            await core.show()

    def _clean(self, text: str) -> str:
        text = self._carry + text
        self._carry = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._carry, text = text[-1], text[:-1]
        return clean_text(text)

    def _keep(self, delta: Delta) -> None:
        piece = self._open
        if piece is None or piece.kind != delta.kind or piece.index != delta.index:
            self._close_segment()
            piece = self._open = _Piece(delta)
            self._pieces.append(piece)
        elif delta.extra is not None:
            piece.extra = _merged(piece.extra, delta.extra)
        piece.texts.append(delta.text)

    def _keep_arguments(self, delta: Delta) -> None:
        self._close_segment()
        self._open = None
        piece = self._piece_of.get(delta.index)
        if piece is None or (delta.call_id and piece.call_id and delta.call_id != piece.call_id):
            piece = self._piece_of[delta.index] = _Piece(delta)  # perhaps another call that was given the same index
            self._pieces.append(piece)
        else:
            piece.call_id = piece.call_id or delta.call_id
            piece.name = piece.name or delta.name
            piece.extra = _merged(piece.extra, delta.extra)
        piece.texts.append(delta.text)

    # ---- to the caller -----------------------------------------------------------------------------------------------

    def _show(self, delta: Delta) -> None:
        core = self._core
        if core.silent:
            core.seq += 1
            self.shown = True
            return
        if not self.shown:
            self.shown = True
            core.produce(MessageStarted, message_id=self.message_id)
        kind = delta.kind
        if kind == "arguments":
            self._close_shown()
            core.produce(
                ToolCallDelta,
                message_id=self.message_id,
                index=self._index_of_call(delta),
                call_id=delta.call_id,
                name=delta.name,
                arguments=delta.text,
            )
            return
        if self._shown_open != (kind, delta.index):
            self._close_shown()
            self._shown_open = (kind, delta.index)
            self._shown_index = self._new_index()
            started = TextStarted if kind == "text" else ReasoningStarted
            core.produce(started, message_id=self.message_id, index=self._shown_index)
        event = TextDelta if kind == "text" else ReasoningDelta
        core.produce(event, message_id=self.message_id, index=self._shown_index, text=delta.text)
        if not core.hooks.on_delta and self._open is not None and not self._carry:
            self._fast_kind, self._fast_index, self._fast_event = kind, delta.index, stamped(event)
            self._fast_texts = self._open.texts

    def _new_index(self) -> int:
        index = self._next_index
        self._next_index = index + 1
        return index

    def _index_of_call(self, delta: Delta) -> int:
        known = self._shown_calls.get(delta.index)
        if known is not None and not (delta.call_id and known[0] and delta.call_id != known[0]):
            return known[1]
        index = self._new_index()
        self._shown_calls[delta.index] = (delta.call_id, index)
        return index

    def _close_shown(self) -> None:
        self._fast_kind = ""
        if self._shown_open is not None:
            kind = self._shown_open[0]
            self._shown_open = None
            completed = TextCompleted if kind == "text" else ReasoningCompleted
            self._core.produce(completed, message_id=self.message_id, index=self._shown_index)

    def _show_filtered(self, delta: Delta, *, final: bool = False) -> None:
        """Let `on_delta` hooks decide what is shown."""
        core = self._core
        deltas = [delta]
        for implementation in core.hooks.on_delta:
            passed: list[Delta] = []
            for one in deltas:
                passed.extend(self._filter(implementation, one, final))
            deltas = passed
        for one in deltas:
            if one.text or one.kind == "arguments":
                self._show(one)

    def _filter(self, implementation: Any, delta: Delta, final: bool) -> Sequence[Delta]:
        core = self._core
        try:
            value = core.dispatcher.call_sync(implementation, core.context, delta, final)
        except Exception as error:
            core.dispatcher.count_error(implementation)
            raise_unchanged(self._failed(implementation, HookError(implementation, error).annotated()))
        if value is None:
            return (delta,)
        if value != delta:
            core.dispatcher.changed(implementation, delta, value)
        made = (value,) if isinstance(value, Delta) else value
        if isinstance(made, (list, tuple)) and all(isinstance(one, Delta) for one in made):
            try:
                return [one if one is delta else core.dispatcher.usable(implementation, one) for one in made]
            except HookError as failure:
                raise self._failed(implementation, failure.error) from None
        wrong = PluginError(
            f"plugin {implementation.plugin!r}: on_delta ({implementation.location}) returned "
            f"{type(value).__name__}; return None, a Delta, or a list of them",
            plugin=implementation.plugin,
            hook="on_delta",
        )
        raise self._failed(implementation, wrong)

    def _failed(self, implementation: Any, error: Exception) -> Exception:
        if implementation.required:
            self._core.withheld = f"withheld: plugin {implementation.plugin} failed"
        self.failure = error
        return error

    def _close_segment(self) -> None:
        """The part that was growing is complete: hooks may let out what they held back."""
        piece, self._open = self._open, None
        if piece is None:
            return
        if self._core.hooks.on_delta:
            self._show_filtered(Delta(kind=piece.kind, index=piece.index), final=True)
        self._close_shown()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The model call has ended: no further delta is taken."""
        self.closed = True
        self._fast_kind = ""

    def finish(self, response: ModelResponse) -> AssistantMessage:
        """The model has answered: close segments, show what was not streamed, and return the message."""
        self._flush_carry()
        self._close_segment()
        self.closed = True
        parts = self._parts() if response.parts is None else [_cleaned(part) for part in response.parts]
        if not self.shown:
            self._show_whole(parts)
        if not self.shown:  # there is nothing to show; that it came, and is empty, is told all the same
            self.shown = True
            self._core.produce(MessageStarted, message_id=self.message_id)
        self._close_shown()
        message: AssistantMessage = maker(AssistantMessage)(
            self.message_id,
            _with_unique_ids(parts, self.message_id, self._is_taken),
            response.stop_reason,
            response.usage,
            response.model or self._core.setup.model.name,
            extra=response.extra,
        )
        return message

    def _flush_carry(self) -> None:
        if self._carry and self._open is not None:
            self._carry = ""
            self._open.texts.append("\ufffd")

    def _show_whole(self, parts: Sequence[AssistantPart]) -> None:
        for index, part in enumerate(parts):
            if isinstance(part, TextPart):
                shown = Delta(kind="text", text=part.text, index=index)
            elif isinstance(part, ReasoningPart):
                shown = Delta(kind="reasoning", text=part.text, index=index)
            elif isinstance(part, ToolCallPart):
                shown = Delta(
                    kind="arguments",
                    text=part.call.raw or _json_text(part.call),
                    index=index,
                    call_id=part.call.id,
                    name=part.call.name,
                )
            else:
                continue
            if not shown.text:
                continue
            if self._core.hooks.on_delta:
                self._show_filtered(shown)
                if shown.kind != "arguments":
                    self._show_filtered(Delta(kind=shown.kind, index=index), final=True)
            else:
                self._show(shown)
            self._close_shown()

    def _is_taken(self, call: ToolCall) -> bool:
        """True if the id of a call stands for another one, so that a reply could not be told to which it belongs."""
        core = self._core
        tool = core.tools.get(call.name)
        if tool is None or not tool.is_external:
            return False
        return core.view.has_call(call.id) or core.setup.desk.knows(core.lineage()[-1].session_id, call.id)

    def interrupted(self) -> AssistantMessage | None:
        """What had arrived when the call was cut off, without calls; None if that is nothing. Closes segments."""
        self.closed = True
        self._flush_carry()
        self._open = None
        self._close_shown()
        parts = tuple(part for part in self._parts() if isinstance(part, (TextPart, ReasoningPart)))
        if not parts and not self.shown:
            return None
        return AssistantMessage(id=self.message_id, parts=parts, stop_reason="cancelled", interrupted=True)

    def supersede(self) -> None:
        """Another attempt follows: the caller is told that what it saw is void."""
        message = self.interrupted()
        if self.shown and message is not None:
            self._core.produce(
                MessageCompleted, message=message, stop_reason="error", interrupted=True, superseded=True
            )

    def parts_so_far(self) -> list[AssistantPart]:
        """What has arrived, put together."""
        return self._parts()

    def _parts(self) -> list[AssistantPart]:
        parts: list[AssistantPart] = []
        for piece in self._pieces:
            text = "".join(piece.texts)
            if piece.kind == "text":
                if text:
                    parts.append(TextPart(text=text, extra=piece.extra))
            elif piece.kind == "reasoning":
                signature = piece.extra.get("signature", "") if isinstance(piece.extra, dict) else ""
                if text or signature:
                    parts.append(ReasoningPart(text=text, signature=str(signature), extra=piece.extra))
            else:
                parts.append(ToolCallPart(call=_parsed(piece.call_id, piece.name, text), extra=piece.extra))
        return parts


def settled_parts(parts: Sequence[AssistantPart], message_id: str) -> tuple[AssistantPart, ...]:
    """The parts that a message of a response with these parts has."""
    return _with_unique_ids([_cleaned(part) for part in parts], message_id)


def _merged(old: Any, new: Any) -> Any:
    if new is None:
        return old
    return {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new


def _parsed(call_id: str, name: str, raw: str) -> ToolCall:
    """A call from the text of its arguments. If that is no JSON object, `arguments` is empty and `raw` tells."""
    from .tools import ToolArgumentsError, parse_arguments

    try:
        return ToolCall(id=call_id, name=name, arguments=parse_arguments(raw), raw=raw)
    except ToolArgumentsError:
        return ToolCall(id=call_id, name=name, raw=raw)


def _json_text(call: ToolCall) -> str:
    import json

    try:
        return json.dumps(dict(call.arguments), ensure_ascii=False)
    except (TypeError, ValueError):
        return "{}"


def _cleaned(part: AssistantPart) -> AssistantPart:
    if isinstance(part, (TextPart, ReasoningPart)):
        text = clean_text(part.text)
        return part if text is part.text else part.replace(text=text)
    if isinstance(part, ToolCallPart):
        call = part.call
        arguments, raw, name = clean_json(dict(call.arguments)), clean_text(call.raw), clean_text(call.name)
        if arguments != call.arguments or raw != call.raw or name != call.name:
            return part.replace(call=call.replace(arguments=arguments, raw=raw, name=name))
    return part


def _with_unique_ids(
    parts: Sequence[AssistantPart], message_id: str, is_taken: Callable[[ToolCall], bool] | None = None
) -> tuple[AssistantPart, ...]:
    """Parts with no empty text, and with call ids that are present, different from each other and not taken."""
    seen: set[str] = set()
    kept: list[AssistantPart] = []
    for part in parts:
        if isinstance(part, TextPart) and not part.text:
            continue
        if isinstance(part, ToolCallPart):
            call_id = part.call.id
            if not call_id or call_id in seen or (is_taken is not None and is_taken(part.call)):
                call_id = f"call_{message_id[:12]}_{len(seen)}"
                part = part.replace(call=part.call.replace(id=call_id))
            seen.add(call_id)
        kept.append(part)
    return tuple(kept)
