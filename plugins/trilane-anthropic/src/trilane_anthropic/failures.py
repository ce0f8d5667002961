"""What went wrong with a call, as a `ModelError`: one paragraph that says what to do next, without the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trilane.errors import ModelError
from trilane.providers import Attempt, http_error, without_secrets

if TYPE_CHECKING:
    import anthropic

__all__ = ["KEY_ADVICE", "Failures"]

KEY_ADVICE = (
    "Set ANTHROPIC_API_KEY, or api_key under [anthropic] in trilane.toml, to a key from console.anthropic.com; or use "
    "a model that needs none, such as offline."
)
#: What an error in the middle of a stream would have been as a status.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Failures:
    """Makes the errors of one model.

    Args:
        model: Its name, with the provider.
        base_url: The server, for messages.
        secrets: Texts that are in no message.
    """

    __slots__ = ("_base_url", "_model", "_secrets")

    def __init__(self, model: str, base_url: str, secrets: tuple[str, ...]) -> None:
        self._model = model
        self._base_url = base_url
        self._secrets = secrets

    def of(self, error: Exception, attempt: Attempt, request_id: str = "") -> ModelError:
        """What an exception of the SDK, or of the HTTP client behind it, means."""
        import anthropic
        import httpx2

        if isinstance(error, anthropic.APIStatusError):
            return self._status(error)
        if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
            return attempt.timed_out("connect")
        if isinstance(error, anthropic.APIConnectionError):
            return self._unreachable(error.__cause__ or error)
        if isinstance(error, httpx2.TransportError):
            return self.cut(f"the connection was lost ({type(error).__name__})", request_id)
        if isinstance(error, ValueError):
            return self._error(
                f"sent an event that is not JSON ({type(error).__name__}); check base_url, or try again",
                request_id,
                retryable=True,
            )
        return self._error(f"the SDK failed: {type(error).__name__}: {self._clean(str(error))}", request_id)

    def cut(self, how: str, request_id: str) -> ModelError:
        """The answer ended before its end."""
        return self._error(
            f"did not finish its answer: {how}. What had arrived is not complete; try again",
            request_id,
            retryable=True,
        )

    def shown_cause(self, error: BaseException) -> BaseException | None:
        """What to name as the cause: the exception, unless the key is in its own text."""
        cause = error.__cause__ or error
        return None if any(secret and secret in str(cause) for secret in self._secrets) else cause

    def in_stream(self, event: Mapping[str, Any], request_id: str) -> ModelError:
        """The provider reported an error after it had begun to answer."""
        detail = _detail(event)
        kind = str(detail.get("type") or "an error")
        return http_error(
            self._model,
            _STATUS.get(kind, 500),
            f"in the middle of its answer, {kind}: {detail.get('message') or 'it gave no reason'}",
            request_id=request_id,
            key_advice=KEY_ADVICE,
            secrets=self._secrets,
        )

    def _status(self, error: anthropic.APIStatusError) -> ModelError:
        headers = {name.lower(): value for name, value in error.response.headers.items()}
        told = headers.get("x-should-retry")
        return http_error(
            self._model,
            error.status_code,
            str(_detail(error.body).get("message") or error.message),
            headers=headers,
            request_id=headers.get("request-id") or "",
            key_advice=f"Check it. {KEY_ADVICE}",
            secrets=self._secrets,
            retryable=told == "true" if told in ("true", "false") else None,
        )

    def _unreachable(self, cause: BaseException) -> ModelError:
        why = self._clean(str(cause)) or type(cause).__name__
        return self._error(
            f"cannot be reached at {self._base_url} ({why}); check the network, the proxy, and base_url",
            "",
            retryable=True,
        )

    def _error(self, what: str, request_id: str, *, retryable: bool = False) -> ModelError:
        said = f" (request {request_id})" if request_id else ""
        return ModelError(
            f"model {self._model}: the provider {what}{said}.",
            model=self._model,
            retryable=retryable,
            request_id=request_id,
        )

    def _clean(self, text: str) -> str:
        words = " ".join(without_secrets(text, self._secrets).split())
        return words if len(words) <= 500 else f"{words[:500]}…"


def _detail(body: object) -> Mapping[str, Any]:
    detail = body.get("error") if isinstance(body, Mapping) else None
    return detail if isinstance(detail, Mapping) else {}
