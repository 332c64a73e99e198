"""What `mpirun` or `srun` starts: a rank, which starts and watches one process of the plan.

    python -m gmiflow.runtime.launchers.agent RUN_DIR

It loads no torch. The process that it forks joins MPI in its place when the run spans machines. The first
rank of each machine also makes the slices there (the MPS daemons, for example) and takes them away again.

The launcher asks:

    {"do": "prepare", "gmis": [0, 1]}                    to the first rank of a machine
    {"do": "spawn", ...fields of SpawnRequest}
    {"do": "signal", "gmi": 0, "signal": 15}

and hears, besides what the fork server tells:

    {"event": "prepared", "rendezvous": "...", "environment": {"0": {...}}, "cpus": {"0": [0]}}
    {"event": "alive", "gmi": 0, "state": "S", "ticks": 120, "stages": {"0": 1}}    twice a second
    {"event": "failure", "failure": {...}, "reason": "..."}

When the launcher hangs up or dies, the rank ends and takes its process with it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from gmiflow.plan import Backend, GMIPlan, LaunchPlan
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.forkserver import Keeper, SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.launchers.contact import LAUNCH_FILE, Contact, call_launcher, own_rank
from gmiflow.runtime.leftovers import MARK, clean_stale, new_token
from gmiflow.runtime.linux import adopt_orphans, kill_children, processor_ticks
from gmiflow.runtime.processes import assign_cpus, environment
from gmiflow.runtime.rendezvous import Progress, Rendezvous

logger = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""How long a rank looks for its launcher."""
ALIVE_MS = 500
LAST_WORDS_S = 0.2
"""Between the end of a process and the news of it: what the process sent itself shall arrive first."""


@dataclass
class Agent(Keeper):
    """One rank.

    Attributes:
        plan: of the run.
        run_dir: of the run.
        failed: whether a process of this rank did not end well.
    """

    plan: LaunchPlan = field(kw_only=True)
    run_dir: Path = field(kw_only=True)
    failed: bool = False
    period_ms: int = ALIVE_MS

    def __post_init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._token = new_token()
        self._backends: dict[str, GMIBackend] = {}
        self._progress: Progress | None = None
        self._gmis: tuple[int, ...] = ()

    def handle(self, do: str, request: dict[str, Any]) -> None:
        """Do what the launcher asks for."""
        if do != "prepare":
            super().handle(do, request)
            return
        try:
            self._prepare(request["gmis"])
        except GMIError as problem:
            self.tell(event="failure", failure=dataclasses.asdict(problem.failure), reason="could not start")

    def spawn(self, request: SpawnRequest) -> int:
        """Fork the process."""
        self._gmis = tuple(gmi.id for gmi in self.plan.processes()[request.gmi])
        place = request.arguments[len(request.arguments) - request.arguments[::-1].index("--rendezvous")]
        self._progress = Rendezvous.join(Path(place)).progress()
        return super().spawn(request)

    def become_child(self, parent: int) -> None:
        """Let go of what belongs to the rank, its handling of signals too."""
        super().become_child(parent)
        os.environ[MARK] = self._token  # what the process starts is found when this rank is killed
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def reap(self, descriptor: int) -> int:
        """Tell that the process has ended, after everything else."""
        time.sleep(LAST_WORDS_S)
        self._tell_alive()
        status = super().reap(descriptor)
        self.failed = self.failed or status != 0
        return status

    def tick(self) -> None:
        """Show that this rank is there, and look after the devices."""
        self._tell_alive()
        for backend in self._backends.values():
            failure = backend.check()
            if failure is not None:
                self.tell(event="failure", failure=dataclasses.asdict(failure), reason="the device failed")

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on to the process; its end is what counts."""
        del frame
        for child, _ in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, number)

    def close(self) -> None:
        """Leave nothing running and nothing behind."""
        self.kill_children()
        for child, _ in self.children.values():
            os.waitpid(child, 0)
        self._stack.close()  # before the rest: a daemon of a backend is among the children, and ends in order
        kill_children()
        if self._backends:  # the first rank of its machine: the launcher may have been killed there
            clean_stale()

    def _tell_alive(self) -> None:
        stages = {gmi: self._progress.stage(gmi) for gmi in self._gmis} if self._progress is not None else {}
        for gmi, (child, _) in self.children.items():
            looked = processor_ticks(child)
            if looked is not None:
                self.tell(event="alive", gmi=gmi, state=looked[0], ticks=looked[1], stages=stages)

    def _prepare(self, ids: list[int]) -> None:
        """Make what the GMIs of this machine need: a place to meet and their slices.

        Devices are counted over the whole run; the ones of this machine are its GPUs in the same order, and
        processes find theirs by UUID.
        """
        clean_stale()
        rendezvous = Rendezvous.create(len(self.plan.gmis))
        self._stack.callback(rendezvous.remove)
        contact = Contact.read(self.run_dir / LAUNCH_FILE)
        contact.write(rendezvous.contact)
        gmis = here(self.plan, ids)
        names: list[Backend] = [gmi.backend for gmi in gmis]
        for name in dict.fromkeys(names):
            backend = make_backend(name)
            self._stack.callback(backend.release)
            backend.prepare([gmi for gmi in gmis if gmi.backend == name], self.run_dir)
            self._backends[name] = backend
        variables = {
            first: environment([gmi for gmi in gmis if gmi.id in {member.id for member in members}], self._backends)
            for first, members in self.plan.processes().items()
            if first in ids
        }
        cpus = assign_cpus(gmis)
        self.tell(event="prepared", rendezvous=str(rendezvous.path), environment=variables, cpus=cpus)


def here(plan: LaunchPlan, ids: list[int]) -> list[GMIPlan]:
    """The GMIs ``ids`` as a plan of their machine alone would have them: its first device is 0."""
    gmis = [plan.gmis[number] for number in ids]
    devices = sorted({gmi.device for gmi in gmis})
    return [dataclasses.replace(gmi, device=devices.index(gmi.device)) for gmi in gmis]


def main() -> int:
    """Be a rank; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gmiflow.runtime.launchers.agent", description="A rank of a run; `mpirun` or `srun` starts it."
    )
    parser.add_argument("run_dir", type=Path, help="run directory that `gmiflow run` has made")
    run_dir: Path = parser.parse_args().run_dir.resolve()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    try:
        rank = own_rank(os.environ)
        connection = call_launcher(run_dir / LAUNCH_FILE, PATIENCE_S, rank=rank, node=socket.gethostname())
        plan = LaunchPlan.from_json((run_dir / "plan.json").read_text(encoding="utf-8"))
    except GMIError as problem:
        sys.stderr.write("\n".join([f"error: {problem}", *problem.failure.notes]) + "\n")
        return 1
    adopt_orphans()
    agent = Agent(connection, plan=plan, run_dir=run_dir)
    signal.signal(signal.SIGTERM, agent.forward)
    signal.signal(signal.SIGINT, agent.forward)
    try:
        agent.serve()
    except (ConnectionError, json.JSONDecodeError) as gone:
        logger.warning("the launcher has gone: %s", gone)
    finally:
        agent.close()
    return 1 if agent.failed else 0


if __name__ == "__main__":
    sys.exit(main())
