"""Drive the comparison: one process per (peer, workload, repeat), peers interleaved, each in its own environment.

    python benchmarks/run.py                                   # everything
    python benchmarks/run.py --peers trilane,zett,bare --workloads W2,W3 --quick
    python benchmarks/run.py --report                          # only rewrite results.md from results.json

What is measured is in `worker.py` and `stopping.py`, how it is shown in `report.py`, each peer in `peers/`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quiet import when_quiet
from report import HOOKS, report

HERE = Path(__file__).resolve().parent
VENVS = Path(os.environ.get("BENCH_VENVS") or Path(tempfile.gettempdir()) / "bench-venvs")
#: Peer -> what to install in its environment; None is the plain interpreter.
PEERS: dict[str, list[str] | None] = {
    "bare": None,
    "trilane": ["-e", str(HERE.parent)],
    "zett": ["zett-agent"],
    "pydantic_ai": ["pydantic-ai-slim"],
    "openai_agents": ["openai-agents"],
    "langchain": ["langchain"],
    "strands": ["strands-agents"],
    "google_adk": ["google-adk"],
    "agno": ["agno"],
    "autogen": ["autogen-agentchat"],
}
POINTS = {"W2": "1000,10000,50000", "W3": "25,100,400", "W4": "100", "W5": "1000", "W6": "100"}
QUICK = {"W2": "1000,5000", "W3": "25,100", "W4": "100", "W5": "200", "W6": "50"}
REPEATS = {"W1": 5, "W2": 3, "W3": 3, "W4": 5, "W5": 3, "W6": 3, "W7": 1}
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "PYTHONHASHSEED": "0",
    "OTEL_SDK_DISABLED": "true",
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false",
    "AUTOGEN_DISABLE_RUNTIME_TRACING": "true",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "AGNO_TELEMETRY": "false",
}


def _python(peer: str) -> Path:
    return VENVS / peer / "bin" / "python"


def _install(peer: str) -> None:
    """Make the peer's environment, unless it is there."""
    if _python(peer).exists():
        return
    where, uv, packages = VENVS / peer, shutil.which("uv"), PEERS[peer]
    print("installing", peer, file=sys.stderr)
    where.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([uv, "venv", "-q", where] if uv else [sys.executable, "-m", "venv", where], check=True)
    if packages is None:
        return
    # Not with the pins of this project, which `uv` would take from its folder.
    with_uv = [uv, "pip", "install", "-q", "--no-config", "--python", _python(peer)]
    command = with_uv if uv else [_python(peer), "-m", "pip", "install", "-q"]
    try:
        subprocess.run([*command, *packages], check=True, timeout=240)
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(where, ignore_errors=True)
        print("  SKIPPED", peer, type(error).__name__, file=sys.stderr)
        return
    # Without bytecode every start compiles its imports and W1 measures the compiler.
    compiled = [where, HERE.parent / "src"] if peer == "trilane" else [where]
    subprocess.run([_python(peer), "-m", "compileall", "-q", "-j", "0", *compiled], check=False)


def _venv_facts(peer: str) -> dict[str, Any]:
    versions: dict[str, str] = {}
    size = 0
    for folder, names, files in os.walk(VENVS / peer / "lib"):
        for name in names:
            if name.endswith(".dist-info"):
                distribution, _, version = name.removesuffix(".dist-info").rpartition("-")
                versions[distribution.replace("_", "-").lower()] = version
        size += sum(os.lstat(os.path.join(folder, file)).st_size for file in files if not file.endswith(".pyc"))
    wanted = "trilane" if peer == "trilane" else (PEERS[peer] or [""])[-1].lower()
    return {"dists": len(versions), "venv_mb": size / 1e6, "version": versions.get(wanted, "")}


def _call(peer: str, workload: str, points: str | None, hooks: int | None, timeout: float) -> list[dict[str, Any]]:
    command = [str(_python(peer)), str(HERE / "worker.py"), peer, workload]
    command += ["--points", points] if points else []
    command += ["--hooks", str(hooks)] if hooks is not None else []
    started = time.perf_counter()
    try:
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False)
        output, errors, returncode = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        partial = error.stdout or b""
        output = partial.decode() if isinstance(partial, bytes) else partial
        errors, returncode = "timeout", -1
    rows = [json.loads(line[2:]) for line in output.splitlines() if line.startswith("@@")]
    for row in rows:
        row.update(peer=peer, workload=workload, process_s=time.perf_counter() - started)
    if returncode:
        said = (errors.strip().splitlines() or ["?"])[-1][:200]
        rows.append({"peer": peer, "workload": workload, "hooks": hooks, "failed": said})
    return rows


def _measure(peers: list[str], workload: str, options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Append the samples of one workload; the order of the peers rotates, so that a slow minute hits them all."""
    points = (QUICK if options.quick else POINTS).get(workload)
    hooks: Sequence[int | None] = HOOKS if workload == "W6" else (None,)
    for repeat in range(1 if options.quick else options.repeats or REPEATS[workload]):
        turn = repeat % len(peers)
        for count in hooks:
            for peer in peers[turn:] + peers[:turn]:
                sample = partial(_call, peer, workload, points, count, options.timeout)
                name = f"{workload} of {peer}"
                found = sample() if options.quiet is None else when_quiet(sample, options.quiet, name)
                rows += [{**row, "rep": repeat} for row in found]
        print(time.strftime("%H:%M:%S"), workload, "repeat", repeat, "done", file=sys.stderr, flush=True)


def _with_earlier(data: dict[str, Any], path: Path, workloads: list[str], *, keep_all: bool) -> None:
    earlier = json.loads(path.read_text(encoding="utf-8"))
    data["rows"] += [
        row
        for row in earlier["rows"]
        if keep_all or not (row["peer"] in data["peers"] and row["workload"] in workloads)
    ]
    limits = (data["quiet_ms"], earlier.get("quiet_ms"))
    data["quiet_ms"] = None if None in limits else max(limits)
    data["venvs"] = {**earlier["venvs"], **data["venvs"]}
    data["peers"] = earlier["peers"] + [peer for peer in data["peers"] if peer not in earlier["peers"]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare agent runtimes on the same scripted work, without a network.")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--workloads", default=",".join(REPEATS))
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--timeout", type=float, default=90, help="seconds for one sample")
    parser.add_argument("--quiet", type=float, help="take only samples with the machine quiet: see quiet.py; in ms")
    parser.add_argument("--quick", action="store_true", help="smaller points, one repeat; writes results-quick.*")
    parser.add_argument("--merge", action="store_true", help="keep the other rows of an earlier results.json")
    parser.add_argument("--append", action="store_true", help="add repeats to an earlier results.json")
    parser.add_argument("--report", action="store_true", help="only rewrite the page")
    return parser.parse_args()


def main() -> None:
    """Install, measure, and write the samples after each workload."""
    options = _options()
    path = HERE / ("results-quick.json" if options.quick else "results.json")
    page = path.with_suffix(".md")
    if options.report:
        report(json.loads(path.read_text(encoding="utf-8")), page)
        return
    peers, workloads = options.peers.split(","), options.workloads.split(",")
    for peer in peers:
        _install(peer)
    peers = [peer for peer in peers if _python(peer).exists()]
    data: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "quiet_ms": options.quiet,
        "peers": peers,
        "venvs": {peer: _venv_facts(peer) for peer in peers},
        "rows": [],
    }
    if (options.merge or options.append) and path.exists():
        _with_earlier(data, path, workloads, keep_all=options.append)
    try:
        for workload in workloads:
            _measure(peers, workload, options, data["rows"])
            path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    finally:
        path.write_text(json.dumps(data, indent=1), encoding="utf-8")
        report(data, page)


if __name__ == "__main__":
    main()
