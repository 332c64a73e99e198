"""`gmiflow bench`: micro-benchmarks of this machine."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gmiflow.commands.bench_channel import channel
from gmiflow.commands.bench_train import train_command
from gmiflow.commands.output import replace_output
from gmiflow.commands.report import show
from gmiflow.commands.run_place import unwritable
from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import MULTI_RANK_NCCL, Hardware, detect
from gmiflow.plan import Backend

if TYPE_CHECKING:
    from gmiflow.runtime.comm.measure import Latency, Layout, MeasuredKind

SIZES = "4KiB,64KiB,115000,256KiB,1MiB,4MiB,16MiB"
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_PRIMITIVES = {"ip": "ip", "ipc": "ipc", "rp": "rp", "hybrid": "two_level", "nccl_multirank": "nccl_multirank"}


class Sizes(click.ParamType):
    """Bytes, separated by commas, with KiB, MiB or GiB."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:  # noqa: ANN401
        """Numbers of bytes, rising, each once."""
        if isinstance(value, tuple):
            return value
        found: set[int] = set()
        for word in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(B|KiB|MiB|GiB|)\s*", word)
            size = int(match[1]) * _UNITS[match[2]] if match else 0
            if not match or size < 4 or size % 4:
                self.fail(f"{word.strip()!r} is not a size: give multiples of 4 bytes, like 64KiB or 115000")
            found.add(size)
        return tuple(sorted(found))


class Counts(click.ParamType):
    """Numbers of GMIs, separated by commas."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:  # noqa: ANN401
        """Rising, each once."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isdigit() and 1 <= int(word) <= 48 for word in words):
            self.fail(f"{value!r}: give numbers of GMIs from 1 to 48, like 2,4")
        return tuple(sorted({int(word) for word in words}))


@click.group(name="bench")
def command() -> None:
    """Measure parts of gmiflow on this machine."""


command.add_command(channel)
command.add_command(train_command)


@command.command(name="collective")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="auto: GPUs if any."
)
@click.option("--gmis", type=Counts(), default="2,4", show_default=True, help="GMIs per device.")
@click.option("--sizes", type=Sizes(), default=SIZES, show_default=True, help="Bytes per call.")
@click.option(
    "--batches", type=click.IntRange(min=1), default=7, show_default=True, help="The median of so many counts."
)
@click.option("--calibrate", is_flag=True, help="Keep the result: from now on the compiler chooses by it.")
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw latency and bandwidth as PNG or SVG."
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def collective(
    device: str,
    gmis: tuple[int, ...],
    sizes: tuple[int, ...],
    batches: int,
    calibrate: bool,
    plot: str | None,
    output: str,
) -> None:
    """Time all-reduces by size and layout, beside gloo.

    On the CPU it times `ip`; on GPUs whatever they can do: `ipc` under MPS inside of a GPU, NCCL and two levels
    between them.
    """
    if plot is not None:
        _require_plot(plot)
    hardware = detect()
    cuda = device == "cuda" or (device == "auto" and bool(hardware.gpus))
    if cuda and not hardware.gpus:
        raise click.UsageError("--device cuda: this machine has no NVIDIA GPU")
    work = layouts(hardware, gmis, cuda=cuda)
    if not work:
        raise click.UsageError("--gmis: one GMI has nobody to reduce with; give two or more, like --gmis 2")
    if calibrate:
        _require_writable(hardware, cuda=cuda)
    rows = _measured(work, sizes, batches)
    if not rows:
        raise SystemExit(1)
    click.echo(_json(rows) if output == "json" else table(rows), nl=False)
    if plot is not None:
        replace_output(plot, lambda path: draw(rows, path))
        click.echo(f"wrote {plot}", err=True)
    if calibrate:
        _keep(rows, hardware, cuda=cuda)


def layouts(hardware: Hardware, gmis: Sequence[int], *, cuda: bool) -> list[tuple[Layout, list[MeasuredKind]]]:
    """What to measure on a machine: layouts of two or more GMIs, with the collectives that work there."""
    from gmiflow.runtime.comm.measure import Layout

    host: list[MeasuredKind] = ["ip", "gloo"]
    several = [count for count in gmis if count > 1]
    if not cuda:
        return [(Layout(backend="cpu", gpus=1, gmis_per_gpu=count), host) for count in several]
    mps = shutil.which("nvidia-cuda-mps-control") is not None
    backend: Backend = "mps" if mps else "timeshare"
    inside: list[MeasuredKind] = ["ipc", *host] if mps else host
    found = [(Layout(backend=backend, gpus=1, gmis_per_gpu=count), inside) for count in several]
    for gpus in (2, 4, 8):
        if gpus <= len(hardware.gpus):
            rings: list[MeasuredKind] = ["rp", *host]
            found.append((Layout(backend="timeshare", gpus=gpus, gmis_per_gpu=1), rings))
            for count in several:
                papers = [f"hybrid:{k}" for k in range(1, count + 1) if k < count or k <= gpus]
                both: list[MeasuredKind] = ["hybrid", *papers, *host] if mps else [*papers, *host]
                found.append((Layout(backend=backend, gpus=gpus, gmis_per_gpu=count), both))
    if mps and nccl_version() >= MULTI_RANK_NCCL:
        crowded = [(layout, kinds) for layout, kinds in found if layout.gmis_per_gpu > 1]
        return [*found, *((layout, ["nccl_multirank"]) for layout, _ in crowded)]
    return found


def nccl_version() -> tuple[int, ...]:
    """Version of the NCCL that is installed with torch, () for none."""
    from gmiflow.profiles.versions import version

    found = next((text for cuda in ("cu13", "cu12") if (text := version(f"nvidia-nccl-{cuda}"))), "")
    return tuple(int(part) for part in found.split(".") if part.isdigit())


def _measured(work: Sequence[tuple[Layout, list[MeasuredKind]]], sizes: tuple[int, ...], batches: int) -> list[Latency]:
    """The rows of all layouts; one that fails is reported, and the others are measured."""
    from gmiflow.runtime.comm.measure import measure
    from gmiflow.runtime.failure import GMIError

    rows: list[Latency] = []
    for layout, kinds in work:
        devices = f"{layout.gpus} x " if layout.gpus > 1 else ""
        click.echo(
            f"measuring {', '.join(kinds)} among {devices}{layout.gmis_per_gpu} GMIs ({layout.backend})", err=True
        )
        try:
            rows += measure(layout, kinds, sizes, batches=batches)
        except GMIError as problem:
            failure = problem.failure
            show([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)])
    return rows


def table(rows: Sequence[Latency]) -> str:
    """One line per collective, layout and size."""
    head = f"{'collective':<14} {'layout':<12} {'how':<6} {'bytes':>12}"
    lines = [f"{head} {'us':>10} {'lowest':>10} {'highest':>10} {'GB/s':>8}"]
    for row in rows:
        layout = f"{row.gpus} x {row.gmis_per_gpu} {row.backend}"
        lines.append(
            f"{row.collective:<14} {layout:<12} {row.how:<6} {row.bytes:>12,} {row.seconds * 1e6:>10.1f} "
            f"{row.low_s * 1e6:>10.1f} {row.high_s * 1e6:>10.1f} {row.bytes_per_s / 1e9:>8.2f}"
        )
    return "\n".join(lines) + "\n"


def _json(rows: Sequence[Latency]) -> str:
    """One object per row and line."""
    return "".join(json.dumps({**asdict(row), "bytes_per_s": row.bytes_per_s}) + "\n" for row in rows)


def _require_plot(file: str) -> None:
    """Look whether a plot can be drawn, before there is anything to draw."""
    import importlib.util

    if Path(file).suffix.lower() not in (".png", ".svg"):
        raise click.UsageError(f"--plot {file}: name a file that ends in .png or .svg")
    if not Path(file).parent.is_dir():
        raise click.UsageError(f"--plot {file}: there is no folder {Path(file).parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install matplotlib")


def draw(rows: Sequence[Latency], file: Path) -> None:
    """Latency and bandwidth over size, one line per collective and layout."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    latency, bandwidth = figure.subplots(1, 2)
    lines: dict[str, list[Latency]] = {}
    for row in rows:
        lines.setdefault(f"{row.collective}, {row.gpus} x {row.gmis_per_gpu} GMIs, {row.how}", []).append(row)
    for name, points in lines.items():
        dashes = "--" if name.startswith("gloo") else "-"
        sizes = [row.bytes for row in points]
        latency.plot(sizes, [row.seconds * 1e6 for row in points], dashes, marker=".", label=name)
        bandwidth.plot(sizes, [row.bytes_per_s / 1e9 for row in points], dashes, marker=".")
    for axes, label in ((latency, "microseconds per all-reduce"), (bandwidth, "GB/s (size by time)")):
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel=label)
        axes.grid(which="major", alpha=0.3)
    latency.legend(fontsize="small")
    figure.savefig(file)


def _require_writable(hardware: Hardware, *, cuda: bool) -> None:
    """Try, before minutes of measuring, whether the measurement can be kept.

    Raises:
        click.UsageError: with what is in the way.
    """
    from gmiflow.profiles import store

    file = store.path_of(hardware, "cuda" if cuda else "cpu")
    try:
        store.require_writable(file)
    except OSError as problem:
        raise unwritable("the calibration", file, problem) from problem


def _keep(rows: Sequence[Latency], hardware: Hardware, *, cuda: bool) -> None:
    """Keep the measurement for the compiler; of eager and graph the faster, for that is what runs use."""
    from gmiflow.profiles import store

    machine = f"{len(hardware.gpus)} x {hardware.gpus[0].name}" if cuda else f"{hardware.cores} CPU cores"
    device = "cuda" if cuda else "cpu"
    try:
        path = store.save_collectives(hardware, device, profile_of(rows, machine, time.strftime("%Y-%m-%d")))
    except OSError as problem:
        raise unwritable("the calibration", store.path_of(hardware, device), problem) from problem
    click.echo(f"kept in {path}: `gmiflow explain comm FILE` shows what follows from it", err=True)


def profile_of(rows: Sequence[Latency], machine: str, date: str) -> Any:  # noqa: ANN401 - CollectiveProfile, lazily
    """The curves of a measurement."""
    from gmiflow.profiles.calibration import CollectiveProfile, Curve, Primitive

    best: dict[tuple[Primitive, int, int, int], dict[int, float]] = {}
    for row in rows:
        kind, _, k = row.collective.partition(":")
        primitive: Any = "rings" if k else _PRIMITIVES.get(kind)
        if primitive is not None:
            points = best.setdefault((primitive, row.gpus, row.gmis_per_gpu, int(k or 0)), {})
            points[row.bytes] = min(row.seconds, points.get(row.bytes, row.seconds))
    curves = tuple(
        Curve(collective=primitive, gpus=gpus, gmis_per_gpu=gmis, points=tuple(sorted(points.items())), k=k)
        for (primitive, gpus, gmis, k), points in best.items()
    )
    return CollectiveProfile(machine=machine, origin="measured", date=date, curves=curves)
