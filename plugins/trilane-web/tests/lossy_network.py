"""A server and its clients on two machines with a bad line between them: a program, run by `test_lossy_network.py`.

    python lossy_network.py loss|cut

Two network namespaces are two machines, each with nothing but a TUN device. The line between the devices is this
program, which loses packets by plan, so that nothing of the host's network is used and no queueing discipline of its
kernel is needed. The server and an undisturbed client live in the first, the tested client in the second. It prints
what happened as JSON.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"
TOKEN = "t"
DELTAS = 150
CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def machine(address: str) -> int:
    """Move this thread's process into a namespace of its own; the descriptor of its line."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace")
    line = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(line, TUNSETIFF, struct.pack("16sH", b"line", IFF_TUN | IFF_NO_PI))
    for command in ("link set lo up", f"addr add {address}/24 dev line", "link set line up"):
        subprocess.run(["ip", *command.split()], check=True)
    return line


class Line:
    """Passes packets on, or loses them."""

    def __init__(self, ends: tuple[int, int], seed: int) -> None:
        self._ends = ends
        self._chance = random.Random(seed)
        self.loss = 0.0
        self.lost = 0
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        there = {self._ends[0]: self._ends[1], self._ends[1]: self._ends[0]}
        while True:
            for end in select.select(self._ends, [], [])[0]:
                packet = os.read(end, 65536)
                if self._chance.random() < self.loss:
                    self.lost += 1
                else:
                    os.write(there[end], packet)


# ---- the second machine ----------------------------------------------------------------------------------------------


async def read_a_run(port: int, tell: Any) -> None:
    """What the tested client does: start a run, read it with the reconnecting client, and say what came."""
    from trilane_web.client import connect

    async with connect(f"ws://{SERVER}:{port}/ws", token=TOKEN, client="far", retry_seconds=0.05) as client:
        run = await client.start("far", acknowledgement="windowed")
        seqs, kinds = [], []
        async for event in run:
            seqs.append(event.seq)
            kinds.append(event.type)
            if len(seqs) == 40:
                tell({"at": 40})
        tell({"seqs": seqs, "last": kinds[-1], "deltas": kinds.count("text_delta")})


def second_machine(talk: socket.socket) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    line = machine(CLIENT)
    socket.send_fds(talk, [b"line"], [line])
    port = json.loads(talk.recv(1000))
    asyncio.run(read_a_run(port, lambda value: talk.sendall(json.dumps(value).encode() + b"\n")))
    talk.close()


# ---- the first machine -----------------------------------------------------------------------------------------------


async def speak(request: Any, emit: Any) -> Any:
    from trilane import Delta, ModelResponse, TextPart

    for number in range(DELTAS):
        if request.messages[-1].text == "far":
            await asyncio.sleep(0.01)  # real time: a line can only fail while something is on it
        await emit(Delta(text=f"{number} "))
    return ModelResponse(parts=(TextPart(text="done"),))


async def undisturbed(port: int) -> str:
    from trilane_web.client import connect

    async with connect(f"ws://127.0.0.1:{port}/ws", token=TOKEN) as client:
        return str((await (await client.start("near")).wait()).type)


async def first_machine(case: str, talk: socket.socket, line: Line) -> dict[str, Any]:
    from trilane import Agent
    from trilane.testing import FunctionModel
    from trilane_web import WebLimits, WebSettings, app
    from trilane_web.serving import listen, make_server

    limits = WebLimits(heartbeat_seconds=0.2 if case == "cut" else 20.0)
    web = app(Agent(FunctionModel(speak)), token=TOKEN, settings=WebSettings(window_events=20, limits=limits))
    listener = listen("0.0.0.0", 0, protected=True)  # nobody but the other machine can reach it
    server = make_server(web)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    port = listener.getsockname()[1]
    talk.sendall(json.dumps(port).encode())
    talk.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=talk)
    report: dict[str, Any] = {}
    report.update(json.loads(await reader.readline()))
    line.loss = 1.0 if case == "cut" else 0.5
    if case == "cut":
        (live,) = web.runs.running()
        while live.driver is not None:  # noqa: ASYNC110  (what is waited for offers no event)
            await asyncio.sleep(0.01)  # real time: a heartbeat
        report["noticed"], report["paused_at"] = True, live.journal.last
        report["near"] = await undisturbed(port)
        report["still_paused_at"] = live.journal.last
    else:
        report["near"] = await undisturbed(port)
        await asyncio.sleep(1.0)  # real time: what TCP makes of the loss takes some
    line.loss = 0.0
    report.update(json.loads(await reader.readline()))
    report["lost"] = line.lost
    writer.close()
    server.should_exit = True
    await serving
    return report


def main() -> None:
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        second_machine(there)
        os._exit(0)
    there.close()
    _, ends, _, _ = socket.recv_fds(here, 100, 1)
    line = Line((machine(SERVER), ends[0]), seed=7)
    report = asyncio.run(asyncio.wait_for(first_machine(sys.argv[1], here, line), 60))
    os.waitpid(child, 0)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
