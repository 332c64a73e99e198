"""The command channel to one MPS control daemon: `nvidia-cuda-mps-control` run as a subprocess.

Everything that is ever said to a daemon goes through `MPSControl`. It addresses exactly one pipe
directory, so it cannot reach a daemon of somebody else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BINARY: Final = "nvidia-cuda-mps-control"
COMMAND_TIMEOUT_S: Final = 10.0


class MPSControlError(Exception):
    """The daemon did not answer, or answered with an error; the text says which command and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticPartition:
    """A fixed set of SMs of one GPU.

    Attributes:
        id: what a client puts into CUDA_MPS_SM_PARTITION.
        chunks: its size in the driver's unit.
    """

    id: str
    chunks: int


def find_binary() -> str | None:
    """Path of `nvidia-cuda-mps-control`, or None where the driver's tools are not installed."""
    return shutil.which(BINARY)


def binary_version(binary: str) -> int:
    """What the binary says to `-v`, as CUDA counts versions (13010 for 13.1); 0 when it does not say."""
    try:
        answer = subprocess.run([binary, "-v"], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    number = re.search(r"\b(\d{4,6})\b", answer.stdout + answer.stderr)
    return int(number[1]) if number else 0


class MPSControl:
    """Talks to the daemon that listens in one pipe directory."""

    def __init__(self, binary: str, pipe_directory: Path, log_directory: Path) -> None:
        """Address the daemon of ``pipe_directory``; nothing is started."""
        self.binary = binary
        self.pipe_directory = pipe_directory
        self.log_directory = log_directory

    def environment(self) -> dict[str, str]:
        """The variables that tell daemon, tool and clients which daemon is meant."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_directory),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log_directory),
        }

    def start_daemon(self, extra: Mapping[str, str], *, static_partitions: bool = False) -> None:
        """Start the daemon in the background; returns when it has detached itself.

        Args:
            extra: further variables of the daemon, CUDA_VISIBLE_DEVICES above all.
            static_partitions: start it in the mode that hands out fixed sets of SMs.

        Raises:
            MPSControlError: it did not start.
        """
        arguments = [self.binary, "-d", *(["-S"] if static_partitions else [])]
        # The daemon keeps the output it inherits, so a pipe would never end: it gets a file.
        transcript = self.log_directory / "start.log"
        with transcript.open("wb") as output:
            try:
                code = subprocess.run(
                    arguments,
                    env=self._process_environment(extra),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=COMMAND_TIMEOUT_S,
                    check=False,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                raise MPSControlError(f"{BINARY} -d did not start: {error}") from error
        if code != 0:
            said = transcript.read_text(errors="replace").strip() or f"exit status {code}"
            raise MPSControlError(f"{BINARY} -d did not start: {said}")

    def command(self, text: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Send one command; return what the daemon prints.

        Raises:
            MPSControlError: no daemon, no answer in time, or an error.
        """
        try:
            answer = subprocess.run(
                [self.binary],
                input=text + "\n",
                env=self._process_environment({}),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MPSControlError(f"`{text}`: {error}") from error
        said = (answer.stdout + answer.stderr).strip()
        if answer.returncode != 0 or "Cannot find MPS control daemon process" in said:
            raise MPSControlError(f"`{text}`: {said or f'exit status {answer.returncode}'}")
        return answer.stdout.strip()

    def servers(self) -> tuple[int, ...]:
        """Process ids of the servers; none before the first client."""
        return _numbers(self.command("get_server_list"))

    def start_server(self, uid: int) -> None:
        """Start the server now instead of at the first client, so that its start is not in the client's time."""
        self.command(f"start_server -uid {uid}")

    def server_status(self, server: int) -> str:
        """State of a server in upper case, for example "ACTIVE" or "FAULT"."""
        return self.command(f"get_server_status {server}").upper()

    def clients(self, server: int) -> tuple[int, ...]:
        """Process ids of the clients that are connected to a server."""
        return _numbers(self.command(f"get_client_list {server}"))

    def attached(self, pid: int) -> int | None:
        """The server that process ``pid`` is a client of, or None when it runs without MPS."""
        return next((server for server in self.servers() if pid in self.clients(server)), None)

    def terminate_client(self, server: int, client: int) -> None:
        """Take a client's work off the GPU without a fault for the others; the client gets error 810."""
        self.command(f"terminate_client {server} {client}")

    def quit(self, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        """Ask the daemon to end; it waits for its servers."""
        self.command("quit", timeout_s)

    def add_static_partition(self, uuid: str, chunks: int) -> StaticPartition:
        """Reserve ``chunks`` chunks of a GPU's SMs.

        Raises:
            MPSControlError: the daemon is not in that mode, or has too few chunks left.
        """
        answer = self.command(f"sm_partition add {uuid} {chunks}")
        made = re.search(rf"({re.escape(uuid)}/\S+)", answer)
        if made is None:
            raise MPSControlError(f"`sm_partition add`: {answer or 'no answer'}")
        return StaticPartition(id=made[1], chunks=chunks)

    def _process_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """This process's variables without any that would change what the daemon sees."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
        return {**kept, **self.environment(), **extra}


def _numbers(text: str) -> tuple[int, ...]:
    """One process id per line; the tool prints other words when there is nothing to list."""
    return tuple(int(line) for line in text.split() if line.isdigit())
