"""The policy server under many clients: requests per second, latency as clients see it, memory.

    python benchmarks/serving.py RUN --clients 200 --seconds 60
    python benchmarks/serving.py RUN --clients 200 --seconds 20 --rows 1 64 --gmis 1 2 4

Starts `gmiflow serve RUN` on 127.0.0.1 and drives it from a process with an asyncio connection per client; each sends
its next request when the last is answered. With ``--bad N`` further clients keep sending what must be refused: wrong
tokens, frames that are too long, observations that are not finite. One JSON line per row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gmiflow.serving import protocol

ROOT = Path(__file__).resolve().parent.parent


async def read_body(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("<I", await reader.readexactly(4))
    return await reader.readexactly(length)


async def client(port: int, token: str, request: bytes, stop_at: float, latencies: list[float]) -> int:
    """Ask until the time is over; the number of errors."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(protocol.frame(protocol.hello(token)))
    errors = int((await read_body(reader))[0] != protocol.Kind.WELCOME)
    while time.monotonic() < stop_at:
        begun = time.monotonic()
        writer.write(request)
        body = await read_body(reader)
        latencies.append(time.monotonic() - begun)
        errors += body[0] != protocol.Kind.ACTIONS
    writer.close()
    return errors


async def bad_client(port: int, token: str, observation: int, stop_at: float) -> int:
    """Send what must be refused, over and over; how often it was."""
    refused = 0
    nan = protocol.act(1, struct.pack("<f", float("nan")) * observation)
    while time.monotonic() < stop_at:
        for first, then in ((protocol.hello("wrong"), b""), (protocol.hello(token), nan), (b"\x00" * 5000, b"")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(protocol.frame(first))
            body = await read_body(reader)
            if then:
                writer.write(protocol.frame(then))
                body = await read_body(reader)
            refused += body[0] == protocol.Kind.REFUSED
            writer.close()
            await asyncio.sleep(0.02)
    return refused


async def drive(arguments: argparse.Namespace, port: int, token: str, observation: int, rows: int) -> dict[str, object]:
    numbers = np.zeros((rows, observation), "<f4")
    request = protocol.frame(protocol.act(1, numbers.tobytes()))
    stop_at = time.monotonic() + arguments.seconds
    latencies: list[float] = []
    good = [client(port, token, request, stop_at, latencies) for _ in range(arguments.clients)]
    bad = [bad_client(port, token, observation, stop_at) for _ in range(arguments.bad)]
    begun = time.monotonic()
    results = await asyncio.gather(*good, *bad)
    seconds = time.monotonic() - begun
    p50, p95, p99, highest = np.quantile(latencies, [0.5, 0.95, 0.99, 1.0]) * 1e3
    return {
        "requests": len(latencies),
        "errors": sum(results[: arguments.clients]),
        "refused": sum(results[arguments.clients :]),
        "requests_per_s": round(len(latencies) / seconds),
        "rows_per_s": round(rows * len(latencies) / seconds),
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(highest, 2),
    }


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def measure(arguments: argparse.Namespace, rows: int, gmis: int) -> None:
    command = [sys.executable, "-m", "gmiflow.cli", "serve", str(arguments.run), "--format", "json", "--tcp", "0"]
    command += ["--gmis", str(gmis), "--device", arguments.device]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    ready = json.loads(server.stdout.readline())
    port = int(ready["listening"][1].rpartition(":")[2])
    token = (arguments.run / "serve.token").read_text().strip()
    seconds, arguments.seconds = arguments.seconds, 2.0
    asyncio.run(drive(arguments, port, token, ready["observation"], rows))  # warm
    arguments.seconds = seconds
    before = resident_mib(server.pid)
    row = asyncio.run(drive(arguments, port, token, ready["observation"], rows))
    after = resident_mib(server.pid)
    server.send_signal(signal.SIGTERM)
    totals = json.loads(server.communicate(timeout=30)[0])
    row |= {"clients": arguments.clients, "rows": rows, "gmis": gmis, "seconds": seconds}
    row |= {"rss_before_mib": round(before, 1), "rss_after_mib": round(after, 1), "exit": server.returncode}
    row |= {"rows_per_batch": totals["rows_per_batch"], "server_latency_ms": totals["latency_ms"]}
    row |= {"rows_per_worker": totals["rows_per_worker"], "python": platform.python_version()}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--bad", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--gmis", type=int, nargs="+", default=[1])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    arguments = parser.parse_args()
    arguments.run = arguments.run.resolve()
    for gmis in arguments.gmis:
        for rows in arguments.rows:
            measure(arguments, rows, gmis)
    return 0


if __name__ == "__main__":
    sys.exit(main())
