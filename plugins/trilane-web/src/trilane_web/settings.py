"""What a server allows and how its runs treat a browser that is slow or gone. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from .protocol import AckPolicy, DisconnectPolicy

__all__ = ["WebLimits", "WebSettings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WebLimits:
    """Bounds of one server. Whatever reaches one is refused by name; nothing else is affected.

    Attributes:
        connections: WebSockets and event streams at once.
        connections_per_principal: Of these, how many may be one principal's.
        message_bytes: Size of one message that comes in over a WebSocket.
        body_bytes: Size of one request body.
        messages_per_second: Messages of one connection, on average; acknowledgements that release something are free.
        message_burst: How many of them may come at once.
        bad_messages: How many messages of one connection may be unusable before it is closed.
        answers: Answers that may wait for one connection that does not read them.
        runs: Active runs at once.
        runs_per_principal: Of these, how many may be one principal's.
        watched_runs: Runs that one connection may watch at once.
        hello_seconds: How long a new connection may take to say who it is, and a request to say what it wants.
        body_seconds: How long a request body may take to arrive.
        heartbeat_seconds: After so long without a message a connection is asked for one, and dropped after as long
            again.
        send_seconds: How long one message may take to leave; a client that reads nothing for so long is dropped.
        idle_seconds: How long a connection may do nothing while no run of its is active.
        total_seconds: How long a connection may last.
        stall_seconds: How long a client may be connected and not acknowledge what a run waits for.
        pause_seconds: How long a run may be paused without a client before it is suspended.
        window_bytes: Events that may be unacknowledged, in bytes, under every policy but `detached`.
        kept_events: Events of a run that are kept for clients that come back.
        kept_bytes: The same, in bytes.
        kept_seconds: How long the events of a run are kept after its end.
        kept_runs: Of how many ended runs events are kept.
        frame_bytes: Events are sent together in messages of about this size.
    """

    connections: int = 2000
    connections_per_principal: int = 1500
    message_bytes: int = 256 * 1024
    body_bytes: int = 1024 * 1024
    messages_per_second: float = 100.0
    message_burst: int = 500
    bad_messages: int = 20
    answers: int = 1000
    runs: int = 256
    runs_per_principal: int = 64
    watched_runs: int = 32
    hello_seconds: float = 10.0
    body_seconds: float = 60.0
    heartbeat_seconds: float = 20.0
    send_seconds: float = 30.0
    idle_seconds: float = 3600.0
    total_seconds: float = 86400.0
    stall_seconds: float = 60.0
    pause_seconds: float = 3600.0
    window_bytes: int = 1024 * 1024
    kept_events: int = 20_000
    kept_bytes: int = 4 * 1024 * 1024
    kept_seconds: float = 300.0
    kept_runs: int = 200
    frame_bytes: int = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSettings:
    """How a server behaves.

    Attributes:
        acknowledgement: Policy of runs that do not ask for one: `strict`, `windowed` or `detached`.
        on_disconnect: What becomes of a run whose client goes away, where it does not say: `pause`, `cancel` or
            `continue`. None means `continue` for detached runs and `pause` for others.
        window_events: Under `windowed`, how many events a run may be ahead.
        window_seconds: Under `windowed`, how old the oldest unacknowledged event may be.
        reconnect_seconds: How long a client may be away before `cancel` is carried out, or a watcher takes its place.
        show_errors: False to show of errors that are not Trilane's own only their type; the log has the message.
        page: Serve the chat page.
        lanes: Send notifications to the pages that ask for them. Costs every run an `on_event` hook.
        allowed_origins: Origins whose pages may connect, besides the server's own; `scheme://host:port`.
        allowed_hosts: Names under which the server may be addressed. None means those of this machine, unless clients
            have to authenticate.
        limits: Bounds.
    """

    acknowledgement: AckPolicy = "windowed"
    on_disconnect: DisconnectPolicy | None = None
    window_events: int = 256
    window_seconds: float = 10.0
    reconnect_seconds: float = 5.0
    show_errors: bool = False
    page: bool = True
    lanes: bool = False
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] | None = None
    limits: WebLimits = field(default_factory=WebLimits)
