"""A line that loses half of all packets for a while, and one that is cut without a word, between two machines.

See `lossy_network.py`, which needs to be root, the command `ip`, and TUN devices.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip") or not os.access("/dev/net/tun", os.W_OK),
    reason="not installed: network namespaces with TUN devices (root, the command ip, /dev/net/tun)",
)


def _carried_out(case: str) -> dict[str, Any]:
    program = Path(__file__).with_name("lossy_network.py")
    done = subprocess.run(
        [sys.executable, str(program), case], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["near"] == "run_completed", "a client on a good line is served meanwhile"
    assert report["last"] == "run_completed"
    assert report["deltas"] == 150
    assert report["seqs"] == list(range(1, len(report["seqs"]) + 1)), "nothing lost, doubled or out of order"
    return report


def test_half_of_all_packets_lost_for_a_while() -> None:
    assert _carried_out("loss")["lost"] > 0


def test_f096_a_cut_line_pauses_the_run_until_its_client_is_back() -> None:
    report = _carried_out("cut")
    assert report["noticed"]
    assert 40 <= report["paused_at"] <= 40 + 20 + 10, "at most a window ahead of what the client has acknowledged"
    assert report["still_paused_at"] == report["paused_at"]
