"""What went wrong with a call, as one paragraph that says what to do next. No text here ever has a key in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trilane.errors import ModelError
from trilane.providers import retry_after_seconds

from .target import Target

if TYPE_CHECKING:
    import openai

__all__ = ["Failures", "is_retryable", "request_id_in"]

_RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
#: Codes of a 429 that waiting does not cure.
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "insufficient_balance")

_LONGEST = 500


class Failures:
    """Makes the errors of one model."""

    __slots__ = ("_target", "_who")

    def __init__(self, target: Target, model: str) -> None:
        self._target = target
        self._who = model

    def status(self, error: openai.APIStatusError) -> ModelError:
        """The server answered with an error."""
        headers = error.response.headers
        detail = _Detail(error.body)
        words = self._clean(detail.message or error.message)
        status = error.status_code
        wait = retry_after_seconds(headers)
        retryable = is_retryable(status, detail.code, headers)
        return self._made(
            f"{self._server()} answered {status}: {words}. {self._advice(status, detail.code, wait)}",
            retryable=retryable,
            wait=wait,
            request_id=request_id_in(headers),
        )

    def in_stream(self, error: object, request_id: str) -> ModelError:
        """The server reported an error after it had begun to answer."""
        detail = _Detail(error)
        retryable = not (detail.status and 400 <= detail.status < 500 and detail.status not in (408, 429))
        return self._made(
            f"{self._server()} broke off its answer: {self._clean(detail.message) or 'it gave no reason'}. "
            "Try again; if it stays so, look at the server's status or logs.",
            retryable=retryable and detail.code not in ("context_length_exceeded", "invalid_request_error"),
            request_id=request_id,
        )

    def not_json(self, data: bytes, request_id: str) -> ModelError:
        """An event of the stream is not JSON."""
        shown = self._clean(data[:80].decode("utf-8", "replace"))
        return self._made(
            f"{self._server()} sent an event that is not JSON: {shown!r}. Check that base_url is that of a server for "
            "Chat Completions.",
            request_id=request_id,
        )

    def no_stream(self, content_type: str, request_id: str) -> ModelError:
        """The answer is no event stream."""
        return self._made(
            f"{self._server()} answered with {content_type or 'no content type'} instead of an event stream. Check "
            "that base_url ends with the version (usually /v1) and that the server can stream.",
            request_id=request_id,
        )

    def cut(self, cause: BaseException | None, request_id: str) -> ModelError:
        """The connection was lost, or the stream ended before the answer did."""
        how = (
            f"the connection was lost ({type(cause).__name__})" if cause else "the stream ended without its last event"
        )
        return self._made(
            f"{self._server()} did not finish its answer: {how}. What had arrived is not complete; try again.",
            retryable=True,
            request_id=request_id,
        )

    def unreachable(self, cause: BaseException) -> ModelError:
        """There is no connection."""
        why = self._clean(str(cause)) or type(cause).__name__
        return self._made(
            f"{self._server()} cannot be reached ({why}): {self._target.preset.unreachable}.", retryable=True
        )

    def lost(self, cause: BaseException) -> ModelError:
        """The SDK had no response: nobody is there, or the server hung up before it answered."""
        return self.unreachable(cause) if "Connect" in type(cause).__name__ else self.cut(cause, "")

    def other(self, error: BaseException) -> ModelError:
        """Anything else that the SDK raises."""
        return self._made(f"{self._server()}: {type(error).__name__}: {self._clean(str(error))}")

    # ---- words -------------------------------------------------------------------------------------------------------

    def _server(self) -> str:
        return f"model {self._who}: {self._target.preset.name} ({self._target.base_url})"

    def _advice(self, status: int, code: str, wait: float | None) -> str:
        target = self._target
        if status == 401:
            if not target.key:
                return f"It wants a key: {_where_to_put_a_key(target)}."
            return f"The key came from {target.key_source}; check it, or make a new one with this provider."
        if status == 403:
            return "The key is known, but may not do this: check the account, its region and its rights."
        if status == 404:
            return f"If it has no model {target.name!r}: {target.preset.unknown_model}. Else check base_url."
        if status == 429:
            if not is_retryable(status, code, {}):
                return "The account has no credit left: look at the provider's billing page."
            return f"Too many requests; it asks to wait {wait:g} s." if wait else "Too many requests; try again later."
        if status in (400, 413, 422):
            return "The request itself is refused, so the same one will be again: change what these words name."
        return "That is the server's own trouble; try again later." if status >= 500 else "Try again later."

    def _clean(self, text: str) -> str:
        words = " ".join(self._target.key.removed_from(text).split()).rstrip(".")
        return words if len(words) <= _LONGEST else words[:_LONGEST] + "..."

    def _made(
        self, text: str, *, retryable: bool = False, wait: float | None = None, request_id: str = ""
    ) -> ModelError:
        if request_id:
            text = f"{text} (request {request_id})"
        return ModelError(text, model=self._who, retryable=retryable, retry_after_seconds=wait, request_id=request_id)


class _Detail:
    """What an error's body says, in any of the forms servers use."""

    __slots__ = ("code", "message", "status")

    def __init__(self, body: object) -> None:
        found: Any = body
        if isinstance(found, Mapping) and isinstance(found.get("error"), Mapping | str):
            found = found["error"]
        if not isinstance(found, Mapping):
            found = {"message": found}
        message = found.get("message") or found.get("detail")
        self.message = message if isinstance(message, str) else "" if message is None else str(message)
        code = found.get("code")
        self.status = code if isinstance(code, int) else 0
        self.code = str(code if code and not self.status else found.get("type") or "")


def request_id_in(headers: Mapping[str, str]) -> str:
    """The server's id of the request, under whatever name; empty if it has none."""
    for name in ("x-request-id", "request-id", "apim-request-id", "cf-ray"):
        if headers.get(name):
            return headers[name]
    return ""


def _where_to_put_a_key(target: Target) -> str:
    variables = target.preset.key_variables
    return (
        f"set {variables[0]}" if variables else "set TRILANE_OPENAI_API_KEY, or api_key under [openai] in trilane.toml"
    )


def is_retryable(status: int, code: str, headers: Mapping[str, str]) -> bool:
    """Whether a response with an error may be better the next time."""
    if code in _NO_CREDIT:
        return False
    said = headers.get("x-should-retry")
    return said == "true" if said in ("true", "false") else status in _RETRYABLE
