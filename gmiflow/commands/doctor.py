"""`gmiflow doctor`: what this machine has for gmiflow, what is missing, and the mend."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gmiflow.commands.report import ERRORS_FOUND

if TYPE_CHECKING:
    from gmiflow.commands.doctor_checks import Check


@click.command(name="doctor")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to write it.",
)
@click.option(
    "--python",
    "interpreters",
    multiple=True,
    metavar="PATH",
    help="Look at this interpreter too, for a simulator that needs its own; may be given several times.",
)
def command(output: str, interpreters: tuple[str, ...]) -> None:
    """Look at this machine: driver, GPUs, MIG, MPS, CUDA IPC, NCCL, green contexts, simulators, MPI, packages.

    Every line is ok, missing with the mend, or not applicable: of use beside a GPU only, and there is none.
    It starts and stops a private MPS daemon and a few short processes; it changes no setting. Exit code 1 when
    something is missing that every run needs, or that an interpreter of --python needs to host a simulator.
    """
    checks = all_checks(interpreters)
    click.echo(as_json(checks) if output == "json" else as_text(checks))
    from gmiflow.commands.doctor_python import interpreter_group

    asked = {interpreter_group(path) for path in interpreters}
    if any(check.status == "missing" and (check.required or check.group in asked) for check in checks):
        sys.exit(ERRORS_FOUND)


def all_checks(interpreters: Sequence[str] = ()) -> tuple[Check, ...]:
    """Every check, slow ones side by side; ``interpreters`` are looked at as well."""
    from concurrent.futures import ThreadPoolExecutor

    from gmiflow.commands import doctor_checks, doctor_gpu, doctor_python
    from gmiflow.hardware import detect

    hardware = detect()
    with ThreadPoolExecutor(max_workers=4) as pool:
        slow = [
            pool.submit(doctor_gpu.torch_checks, hardware.gpus),
            pool.submit(doctor_gpu.mps_checks, hardware.gpus),
            pool.submit(doctor_gpu.ipc_checks, hardware.gpus),
            pool.submit(doctor_checks.mpi_checks),
            *(pool.submit(doctor_python.interpreter_checks, path) for path in interpreters),
        ]
        quick = (
            *doctor_checks.machine_checks(hardware),
            *doctor_checks.package_checks(),
            doctor_python.kernel_check(),
            *doctor_gpu.gpu_checks(hardware.gpus),
        )
        checks = (*quick, *(check for result in slow for check in result.result()))
    has_gpu = bool(hardware.gpus) or doctor_checks.has_nvidia_device()
    return checks if has_gpu else tuple(doctor_checks.without_gpu(check) for check in checks)


def as_json(checks: Sequence[Check]) -> str:
    """One object with all checks and a verdict."""
    data = {
        "usable": not any(check.required and check.status == "missing" for check in checks),
        "checks": [dataclasses.asdict(check) for check in checks],
    }
    return json.dumps(data, indent=2, ensure_ascii=False)


def as_text(checks: Sequence[Check]) -> str:
    """Lines under their headings; a mend stands below the line that needs it."""
    width = max(len(check.name) for check in checks)
    status = max(len(check.status) for check in checks)
    lines: list[str] = []
    for group in dict.fromkeys(check.group for check in checks):
        lines += ["", group] if lines else [group]
        for check in (each for each in checks if each.group == group):
            lines.append(f"  {check.status:<{status}}  {check.name:<{width}}  {check.detail}".rstrip())
            if check.mend:
                lines.append(f"  {'':<{status}}  {'':<{width}}  mend: {check.mend}")
    missing = sum(check.status == "missing" for check in checks)
    needed = sum(check.status == "missing" and check.required for check in checks)
    verdict = f"{needed} of them needed by every run" if needed else "none of them needed by every run"
    lines += ["", f"{missing} missing, {verdict}" if missing else "nothing is missing"]
    return "\n".join(lines)
