"""A server of `trilane-web` under load: idle connections, and runs that stream 50 deltas a second each. Linux only.

    python benchmarks/web_load.py                       # 1,000 idle; 60 runs, then 200 with 20 messages a second each
    python benchmarks/web_load.py --seconds 30 --idle 2000 --write

The server is one process, the clients another, which speaks the protocol by hand so that it costs little itself. Every
delta carries the time at which the model made it; its latency is the time until the client has read it. Each run's
events are checked: every sequence number once and in order, every delta, the last event. It ends with status 1 if an
event was lost.

Printed for each load: latency, the server's CPU in percent of one core and per delta, its memory, and the load of the
machine when it began. What is per delta includes the agent's own work: the model, the run, the history.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trilane import Emit, ModelRequest, ModelResponse

PER_SECOND = 50
RESULTS = Path(__file__).parent / "results-web.json"
_DELTA = re.compile(rb'"text":"(\d{10,}) "')
_SEQ = re.compile(rb'"seq":(\d+)')
_RUN = re.compile(rb'"run":"([^"]*)"')


# ---- the server ------------------------------------------------------------------------------------------------------


class Clock:
    """Says the time, fifty times a second."""

    name = "clock"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        from trilane import Delta, ModelResponse, TextPart

        count = int(request.messages[-1].text)  # type: ignore[union-attr]
        due = time.monotonic()
        for _ in range(count):
            due += 1 / PER_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await emit(Delta(text=f"{time.monotonic_ns()} "))
        return ModelResponse(parts=(TextPart(text="done"),))


async def serve() -> None:
    from trilane import Agent
    from trilane_web import WebLimits, WebSettings, app
    from trilane_web.serving import listen, make_server

    limits = WebLimits(connections=5000, connections_per_principal=5000, runs=500, runs_per_principal=500)
    listener = listen("127.0.0.1", 0, protected=False)
    server = make_server(app(Agent(Clock()), settings=WebSettings(limits=limits)))
    print(listener.getsockname()[1], flush=True)
    await server.serve(sockets=[listener])


# ---- the clients -----------------------------------------------------------------------------------------------------


class Peer(asyncio.Protocol):
    """One client: greets, answers pings, acknowledges what it gets, and keeps count."""

    def __init__(self, frame_seconds: float = 0.0, *, acknowledges: bool = True) -> None:
        self.frame_seconds = frame_seconds
        self.acknowledges = acknowledges
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.latencies: list[float] = []
        self.next_seq = 1
        self.wrong: list[str] = []
        self.frames = 0
        self.transport: asyncio.Transport
        self._buffer = b""
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        host, port = transport.get_extra_info("peername")[:2]
        transport.write(
            f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        head = bytes([0x81, 0x80 | len(data)]) if len(data) < 126 else b"\x81\xfe" + len(data).to_bytes(2, "big")
        self.transport.write(head + b"\0\0\0\0" + data)

    def connection_lost(self, error: Exception | None) -> None:
        for future in (self.ready, self.over):
            if not future.done():
                future.set_exception(error or ConnectionError("the server closed the connection"))
                future.exception()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded:
            head, end, self._buffer = self._buffer.partition(b"\r\n\r\n")
            if not end:
                self._buffer = head
                return
            self._upgraded = True
            self.send({"type": "hello", "protocol": 1, "frame_seconds": self.frame_seconds})
        while len(self._buffer) >= 2:
            length, start = self._buffer[1], 2
            if length >= 126:
                start = 4 if length == 126 else 10
                if len(self._buffer) < start:
                    return
                length = int.from_bytes(self._buffer[2:start], "big")
            if len(self._buffer) < start + length:
                return
            payload, self._buffer = self._buffer[start : start + length], self._buffer[start + length :]
            self.take(payload)

    def take(self, payload: bytes) -> None:
        if b'"type":"events"' in payload[:40]:
            self.take_events(payload)
            return
        message = json.loads(payload) if payload[:1] == b"{" else {"type": "a close frame"}
        if message["type"] == "welcome":
            self.ready.set_result(None)
        elif message["type"] == "ping":
            self.send({"type": "pong"})
        elif message["type"] not in ("run", "pong"):
            self.wrong.append(str(message))

    def take_events(self, payload: bytes) -> None:
        now = time.monotonic_ns()
        self.frames += 1
        for made in _DELTA.findall(payload):
            self.latencies.append((now - int(made)) / 1e6)
        for found in _SEQ.findall(payload):
            if int(found) != self.next_seq:
                self.wrong.append(f"event {int(found)} came where {self.next_seq} was due")
            self.next_seq = int(found) + 1
        run = _RUN.search(payload)
        assert run is not None
        if self.acknowledges:
            self.send({"type": "ack", "run": run[1].decode(), "seq": self.next_seq - 1})
        if b'"type":"run_' in payload and b'"type":"run_started"' not in payload and not self.over.done():
            self.over.set_result("completed" if b'"type":"run_completed"' in payload else "not completed")


@dataclass
class Load:
    """What one load was, and what came of it."""

    name: str
    runs: int
    frame_seconds: float
    figures: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def of_process(pid: int) -> tuple[float, float]:
    """Seconds of CPU and MB of memory a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def connect(port: int, count: int, frame_seconds: float = 0.0, *, acknowledges: bool = True) -> list[Peer]:
    loop = asyncio.get_running_loop()
    peers: list[Peer] = []
    for _ in range(count):
        _, peer = await loop.create_connection(
            lambda: Peer(frame_seconds, acknowledges=acknowledges), "127.0.0.1", port
        )
        await asyncio.wait_for(peer.ready, 30)
        peers.append(peer)
    return peers


async def carry(load: Load, port: int, pid: int, seconds: float) -> None:
    deltas = int(seconds * PER_SECOND)
    machine = os.getloadavg()[0]
    _, memory_before = of_process(pid)
    peers = await connect(port, load.runs, load.frame_seconds)
    cpu_before, began = of_process(pid)[0], time.monotonic()
    for peer in peers:
        peer.send({"type": "start", "text": str(deltas)})
        await asyncio.sleep(1 / PER_SECOND / 10)
    for peer in peers:
        status = await asyncio.wait_for(peer.over, seconds * 10 + 60)
        if status != "completed":
            peer.wrong.append(f"a run was {status}")
        if len(peer.latencies) != deltas:
            peer.wrong.append(f"{len(peer.latencies)} deltas came of {deltas}")
        load.wrong += peer.wrong
    cpu, memory = of_process(pid)
    took, total = time.monotonic() - began, load.runs * deltas
    latencies = sorted(one for peer in peers for one in peer.latencies)
    load.figures = {
        "machine_load": round(machine, 1),
        "deltas": total,
        "frames_per_second_and_client": round(sum(peer.frames for peer in peers) / load.runs / took, 1),
        "p50_ms": round(latencies[len(latencies) // 2], 1),
        "p99_ms": round(latencies[len(latencies) * 99 // 100], 1),
        "max_ms": round(latencies[-1], 1),
        "cpu_percent": round((cpu - cpu_before) / took * 100),
        "cpu_us_per_delta": round((cpu - cpu_before) / total * 1e6),
        "memory_mb": round(memory),
        "memory_kb_per_run": round((memory - memory_before) * 1000 / load.runs),
    }
    for peer in peers:
        peer.transport.close()


async def measure(port: int, pid: int, idle: int, seconds: float) -> dict[str, Any]:
    warm = Load("warm", 2, 0.0)
    await carry(warm, port, pid, 1.0)
    _, before = of_process(pid)
    waiting = await connect(port, idle)
    cpu_before, after = of_process(pid)
    await asyncio.sleep(2.0)
    cpu = of_process(pid)[0] - cpu_before
    print(f"{idle} idle connections: {(after - before) * 1000 / idle:.0f} KB each, {cpu / 2 * 100:.0f} % of a core")
    report: dict[str, Any] = {"idle": idle, "kb_per_idle": round((after - before) * 1000 / idle)}
    for load in (Load("60 runs", 60, 0.0), Load("200 runs, 20 messages a second each", 200, 0.05)):
        await carry(load, port, pid, seconds)
        print(f"{load.name}: " + ", ".join(f"{name} {value:g}" for name, value in load.figures.items()))
        print(f"  lost or wrong: {len(load.wrong)} {load.wrong[:3] or ''}")
        report[load.name] = {**load.figures, "lost_or_wrong": len(load.wrong)}
    lost = [peer for peer in waiting if peer.over.done() or peer.wrong]
    print(f"idle connections lost meanwhile: {len(lost)}")
    report["idle_lost"] = len(lost)
    return report


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    options = parser.parse_args()
    with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            report = asyncio.run(measure(port, server.pid, options.idle, options.seconds))
        finally:
            server.terminate()
    if options.write:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if report["idle_lost"] or any(value["lost_or_wrong"] for value in report.values() if isinstance(value, dict)):
        sys.exit(1)


if __name__ == "__main__":
    main()
