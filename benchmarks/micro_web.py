"""What the way through a WebSocket adds to a delta: microseconds of the server's CPU, client in its own process.

    python benchmarks/micro_web.py [deltas] [rounds]

`floor` is the same run read with `async for` in the server's process; every other row is the CPU of the server for the
same deltas sent to a client, less that. Rounds are interleaved and the cheapest of each row is printed, because the
machine drifts. The rows differ in how many messages the deltas travel in, which is what they cost:

- `busy`: 10 strict runs at once, so that the server always has work: a message down and an acknowledgement up for every
  delta, and nothing else;
- `strict`: the same with one run, so that the server waits for the client after every delta, and begins the next cold;
- `paced`: under `windowed`, one delta each millisecond, so that nearly every one is a message, acknowledged;
- `windowed` and `detached`: as fast as the model can, so that one message carries many;
- `frames`: one delta each millisecond to a client that asked for 20 messages a second.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from trilane import Agent, Delta, Limits, ModelResponse, TextPart

if TYPE_CHECKING:
    from trilane import Emit, ModelRequest

TEXT = "abcd "


class Model:
    name = "micro"

    def __init__(self) -> None:
        self.deltas = 0
        self.pace = 0.0

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        for _ in range(self.deltas):
            if self.pace:
                await asyncio.sleep(self.pace)
            await emit(Delta(text=TEXT))
        return ModelResponse(parts=(TextPart(text=TEXT * self.deltas),))


#: Acknowledgement, seconds between deltas, seconds between messages, runs at once.
CASES: dict[str, tuple[str, float, float, int]] = {
    "busy": ("strict", 0.0, 0.0, 10),
    "strict": ("strict", 0.0, 0.0, 1),
    "paced": ("windowed", 0.001, 0.0, 1),
    "frames": ("windowed", 0.001, 0.05, 1),
    "windowed": ("windowed", 0.0, 0.0, 1),
    "detached": ("detached", 0.0, 0.0, 1),
}


async def client(port: int) -> None:
    """Starts what it is told to on standard input and acknowledges each message; its own process."""
    from web_load import connect

    for line in sys.stdin:
        policy, frame_seconds, runs = json.loads(line)
        peers = await connect(port, runs, frame_seconds, acknowledges=policy != "detached")
        for peer in peers:
            peer.send({"type": "start", "text": "go", "acknowledgement": policy})
        for peer in peers:
            await peer.over
            peer.transport.close()
        print(sum(peer.frames for peer in peers), flush=True)


async def through_a_socket(model: Model, ask: Any, case: tuple[str, float, float, int]) -> tuple[float, int]:
    policy, model.pace, frame_seconds, runs = case
    start = time.process_time()
    frames = await ask(policy, frame_seconds, runs)
    return time.process_time() - start, frames


async def in_process(agent: Agent[Any, Any], model: Model, pace: float) -> float:
    model.pace = pace
    start = time.process_time()
    async with agent.stream("go") as run:
        async for _ in run:
            pass
    return time.process_time() - start


async def measure(deltas: int, rounds: int) -> None:
    from trilane_web import WebLimits, WebSettings, app
    from trilane_web.serving import listen, make_server

    model = Model()
    agent = Agent(model, limits=Limits())
    settings = WebSettings(limits=WebLimits(kept_events=10**9, kept_bytes=10**12))
    listener = listen("127.0.0.1", 0, protected=True)
    server = make_server(app(agent, settings=settings))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    port = str(listener.getsockname()[1])
    pipe = asyncio.subprocess.PIPE
    peer = await asyncio.create_subprocess_exec(sys.executable, __file__, "client", port, stdin=pipe, stdout=pipe)
    assert peer.stdin is not None
    assert peer.stdout is not None
    stdin, stdout = peer.stdin, peer.stdout

    async def ask(policy: str, frame_seconds: float, runs: int) -> int:
        stdin.write(json.dumps([policy, frame_seconds, runs]).encode() + b"\n")
        return int(await stdout.readline())

    model.deltas = 50
    await ask("windowed", 0.0, 1)  # imports, schemas
    floors: dict[float, list[float]] = {}
    spent: dict[str, list[float]] = {name: [] for name in CASES}
    frames: dict[str, int] = {}
    for _ in range(rounds):
        model.deltas = deltas
        for pace in sorted({pace for _, pace, _, _ in CASES.values()}):
            floors.setdefault(pace, []).append(await in_process(agent, model, pace))
        for name, case in CASES.items():
            model.deltas = deltas // case[3]
            cpu, frames[name] = await through_a_socket(model, ask, case)
            spent[name].append(cpu)
    stdin.close()
    await peer.wait()
    server.should_exit = True
    await serving
    print(f"{'us of CPU per delta':20} {'floor':>8} {'with web':>9} {'added':>8} {'messages':>9}")
    for name, (_, pace, _, _) in CASES.items():
        floor, whole = (min(times) / deltas * 1e6 for times in (floors[pace], spent[name]))
        print(f"{name:20} {floor:8.1f} {whole:9.1f} {whole - floor:8.1f} {frames[name]:9}")


def main() -> None:
    if sys.argv[1:2] == ["client"]:
        asyncio.run(client(int(sys.argv[2])))
        return
    deltas = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    asyncio.run(measure(deltas, rounds))


if __name__ == "__main__":
    main()
