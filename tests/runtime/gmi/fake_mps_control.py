#!/usr/bin/env python3
"""Speaks the protocol of nvidia-cuda-mps-control, for machines without a GPU.

`-d` detaches a daemon that listens in CUDA_MPS_PIPE_DIRECTORY and logs to CUDA_MPS_LOG_DIRECTORY; without
arguments, commands from standard input are sent to it. There is one pretended server, whose id is the daemon's.
Commands that start with "fake" set the stage: `fake connect PID`, `fake log TEXT`, `fake deaf` (refuse to quit),
`fake status TEXT`.
"""

import os
import signal
import socket
import sys
from pathlib import Path

VERSION = os.environ.get("FAKE_MPS_VERSION", "13000")


def main():
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if "-v" in sys.argv:
        print(f"CUDA MPS Control binary version: {VERSION}")
    elif "-d" in sys.argv:
        if os.environ.get("FAKE_MPS_BROKEN"):
            sys.exit("An instance of this daemon is already running")
        daemonize(pipe)
    else:
        sys.exit(send(pipe, sys.stdin.read().strip()))


def send(pipe, text):
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(pipe / "control"))
    except OSError:
        print("Cannot find MPS control daemon process")
        return 1
    client.sendall(text.encode())
    client.shutdown(socket.SHUT_WR)
    answer = b""
    while part := client.recv(4096):
        answer += part
    sys.stdout.write(answer.decode())
    return 0


def daemonize(pipe):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(pipe / "control"))
    listener.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    (pipe / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    Daemon().serve(listener)


class Daemon:
    def __init__(self):
        self.clients, self.partitions, self.deaf, self.status = [], [], False, "ACTIVE"
        self.log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "server.log"
        self.seen = (Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log").open("a", buffering=1)

    def serve(self, listener):
        while True:
            connection, _ = listener.accept()
            text = b""
            while part := connection.recv(4096):
                text += part
            self.seen.write(text.decode() + "\n")
            answer = self.answer(*text.decode().split(maxsplit=1))
            if answer is not None:
                connection.sendall(answer.encode())
                connection.close()

    def answer(self, command, rest=""):
        if command == "quit":
            if self.deaf:
                return None  # never answers
            os._exit(0)
        if command == "get_server_list":
            return f"{os.getpid()}\n"
        if command == "get_client_list":
            self.clients = [pid for pid in self.clients if Path(f"/proc/{pid}").exists()]
            return "".join(f"{pid}\n" for pid in self.clients)
        if command == "get_server_status":
            return self.status + "\n"
        if command == "terminate_client":
            client = int(rest.split()[1])
            self.clients.remove(client)
            os.kill(client, signal.SIGUSR1)
            return ""
        if command == "sm_partition":
            if "-S" not in sys.argv:
                return "Static partitioning mode is not enabled\n"
            _, uuid, chunks = rest.split()
            self.partitions.append(int(chunks))
            return f"Partition {uuid}/Dx{len(self.partitions):02d}AA created\n"
        if command == "fake":
            return self.stage(*rest.split(maxsplit=1))
        return ""

    def stage(self, what, value=""):
        if what == "connect":
            self.clients.append(int(value))
        elif what == "log":
            with self.log.open("a") as log:
                log.write(value + "\n")
        elif what == "deaf":
            self.deaf = True
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif what == "status":
            self.status = value
        return "ok\n"


if __name__ == "__main__":
    main()
