"""Who a client is, what it may see, and which pages may talk to the server at all.

A principal owns sessions through their ids: where there can be several, the id of each session begins with a mark of
its owner, so ownership needs no table and survives restarts.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from trilane import ConfigError, new_id

from .settings import WebSettings

__all__ = ["Authenticate", "Gatekeeper", "Principal"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody the server knows.

    Attributes:
        id: What the host calls them.
        owns_all: True for the only user of a server: every session is theirs, also those of the command line.
    """

    id: str
    owns_all: bool = False

    @property
    def mark(self) -> str:
        """What the ids of their sessions begin with."""
        return "" if self.owns_all else hashlib.sha256(self.id.encode("utf-8", "replace")).hexdigest()[:20] + "."

    def owns(self, session: str) -> bool:
        """True if the session is theirs, whether or not it exists."""
        return session.startswith(self.mark)

    def new_session(self) -> str:
        """An id for a new session of theirs."""
        return self.mark + new_id()


Authenticate: TypeAlias = Callable[[HTTPConnection], "str | Awaitable[str | None] | None"]
"""The host's own authentication: who sent this request, or None if that is not known. May be `async`."""

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Gatekeeper:
    """Checks every connection: host name, origin, identity.

    Args:
        token: What clients must present, as `Authorization: Bearer` or in `hello`. Empty for none.
        authenticate: Says who a client is, instead of a token.
        settings: Allowed hosts and origins.

    Raises:
        ConfigError: both a token and a function were given.
    """

    def __init__(self, token: str, authenticate: Authenticate | None, settings: WebSettings) -> None:
        if token and authenticate is not None:
            raise ConfigError("give either token= or authenticate=, not both")
        self._token = token
        self._authenticate = authenticate
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.allowed_origins)
        hosts = settings.allowed_hosts
        if hosts is None and not token and authenticate is None:
            # Without this a page elsewhere whose name is made to lead to this machine could use the server.
            self._hosts: frozenset[str] | None = _THIS_MACHINE
        else:
            self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    @property
    def wants_token(self) -> bool:
        """True if `hello` may carry the token."""
        return bool(self._token)

    def refusal(self, connection: HTTPConnection) -> str:
        """Why a connection is refused because of where it comes from; empty if it is not."""
        host = connection.headers.get("host", "")
        name = _host_name(host)
        if self._hosts is not None and name not in self._hosts:
            return f"this server is not addressed as {name[:100]!r}; add it to allowed_hosts if it should be"
        origin = connection.headers.get("origin")
        if origin is None or self._is_allowed(origin, host):
            return ""
        return f"pages of {origin[:200]!r} may not use this server; add it to allowed_origins if they should"

    def _is_allowed(self, origin: str, host: str) -> bool:
        origin = origin.rstrip("/").lower()
        if origin in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc == host.lower()

    async def identify(self, connection: HTTPConnection) -> Principal | None:
        """Who sent a request or opened a connection; None if that is not known (yet)."""
        if self._authenticate is not None:
            found = self._authenticate(connection)
            name = await found if inspect.isawaitable(found) else found
            return Principal(name) if name else None
        if not self._token:
            return Principal("local", owns_all=True)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        return self.by_token(given.strip()) if scheme.lower() == "bearer" else None

    def by_token(self, given: str) -> Principal | None:
        """Who presents this token."""
        if self._token and hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            return Principal("owner", owns_all=True)
        return None


def _host_name(host: str) -> str:
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
