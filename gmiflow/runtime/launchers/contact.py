"""What ranks and the launcher must agree on: where to call, the secret, and who one is. No torch.

A rank is a process that `mpirun`, `srun` or the like starts. It finds a file in the run directory, which all
machines of the run see, and calls the launcher. Everything on the wire is one JSON object per line.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gmiflow.runtime.failure import LAUNCH_FAILED, error

LAUNCH_FILE = "launch.json"
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_SIOCGIFADDR = 0x8915
_CONNECT_S = 3.0
_PAUSE_S = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Contact:
    """How to call the launcher.

    Attributes:
        addresses: IPv4 addresses of its machine, the likeliest first.
        port: where it listens.
        secret: what callers say first, so that nobody else takes part.
    """

    addresses: tuple[str, ...]
    port: int
    secret: str

    def call(self, **first: object) -> socket.socket:
        """Connect and say who one is.

        Raises:
            OSError: when the launcher answers on none of its addresses.
        """
        problem: OSError = ConnectionRefusedError("the launcher has no address")
        for address in self.addresses:
            try:
                connection = socket.create_connection((address, self.port), timeout=_CONNECT_S)
            except OSError as failed:
                problem = failed
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(json.dumps({"secret": self.secret, **first}).encode() + b"\n")
            return connection
        raise problem

    def write(self, file: Path) -> None:
        """Put it into ``file``, readable by this user alone, at once or not at all."""
        fresh = file.with_name(f"{file.name}.{os.getpid()}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            json.dump(asdict(self), output)
        fresh.rename(file)

    @classmethod
    def read(cls, file: Path) -> Contact:
        """What `write` wrote; raises OSError or ValueError when it is not there or not whole."""
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(addresses=tuple(data["addresses"]), port=data["port"], secret=data["secret"])


def call_launcher(file: Path, patience_s: float, **first: object) -> socket.socket:
    """Connect to the launcher that ``file`` names, once it is there: it may start later than its ranks.

    Raises:
        GMIError: E0711 after ``patience_s`` seconds.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return Contact.read(file).call(**first)
        except (OSError, ValueError) as problem:
            if time.monotonic() > deadline:
                raise error(
                    LAUNCH_FAILED,
                    f"the launcher of {file.parent} cannot be reached: {problem}",
                    "all machines of a run need the run directory under the same path, and a way to each other",
                ) from problem
            time.sleep(_PAUSE_S)


def own_rank(environment: Mapping[str, str]) -> int:
    """Number of this process among those that were started together.

    Raises:
        GMIError: E0711 when the environment does not tell.
    """
    for name in _RANK_VARIABLES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    listed = ", ".join(_RANK_VARIABLES)
    raise error(LAUNCH_FAILED, f"none of {listed} is set: start ranks with `mpirun` or `srun`")


def local_addresses() -> tuple[str, ...]:
    """IPv4 addresses of this machine's interfaces, 127.0.0.1 last."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name.encode()[:15]))
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(request.tobytes()[20:24]))
    outside = [address for address in dict.fromkeys(found) if not address.startswith("127.")]
    return (*outside, "127.0.0.1")


def split_lines(buffer: bytes, data: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Whole messages in ``buffer + data``, and the rest."""
    *lines, rest = (buffer + data).split(b"\n")
    return [json.loads(line) for line in lines], rest


def first_line(connection: socket.socket) -> dict[str, Any] | None:
    """The first message on a connection, without touching what follows; None while it is not whole.

    Raises:
        ValueError: when it is not JSON, too long, or the caller has hung up.
    """
    try:
        seen = connection.recv(4096, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    line, newline, _ = seen.partition(b"\n")
    if not newline:
        if not seen or len(seen) == 4096:
            raise ValueError("not a message")
        return None
    connection.recv(len(line) + 1)
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not a message")
    return message  # type: ignore[reportUnknownVariableType]


def by_node(nodes: Sequence[str]) -> dict[str, list[int]]:
    """Ranks of each machine, in order of rank.

    Args:
        nodes: for each rank, the name of its machine.
    """
    found: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        found.setdefault(node, []).append(rank)
    return found
