"""The choice of collectives by cost, seen through `lower_comm` with profiles made for the purpose."""

from dataclasses import replace
from pathlib import Path

import pytest

from gmiflow.commands.compile import emitted
from gmiflow.hardware import GPU, Hardware
from gmiflow.passes.comm_lowering import lower_comm
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.calibration import CollectiveProfile, Curve, built_in
from gmiflow.profiles.volumes import ASSUMED_BYTES, gradient_bytes

ANT = str(Path(__file__).parents[2] / "examples" / "ant.gmi")
GPUS = tuple(
    GPU(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
    for i in range(2)
)
MACHINE = Hardware(cores=8, gpus=GPUS)
BYTES = 456_580
"""Ant: 60-256-128-64 twice, heads of 8 and 1, 8 deviations, 16 statistics, 4 bytes each:
2 (61 x 256 + 257 x 128 + 129 x 64) + 65 x 9 + 8 + 16 = 114,145."""


def compiled(gmis, devices=1, **overrides):
    chosen = {"num_env": "4096", "target.gmi_per_gpu": gmis, "target.devices": devices, **overrides}
    options = Options(workflow="train", target="lab", overrides=tuple((k, str(v)) for k, v in chosen.items()))
    compilation = compile_file(ANT, options, hardware=MACHINE, stop_after="comm")
    assert not compilation.failed, compilation.diagnostics
    return compilation


def profile(**curves):
    """Flat curves: collective and layout, as "ipc_1x4", to microseconds."""
    made = []
    for name, us in curves.items():
        collective, _, layout = name.rpartition("_")
        gpus, gmis = layout.split("x")
        point = ((BYTES, us * 1e-6),)
        made.append(Curve(collective=collective, gpus=int(gpus), gmis_per_gpu=int(gmis), points=point))
    return CollectiveProfile(machine="a test", origin="measured", date="2026-11-29", curves=tuple(made))


def choice(sized, known):
    (group,) = lower_comm(sized, known).collectives
    return group


@pytest.mark.parametrize(
    ("gmis", "devices", "curves", "kind"),
    [
        (4, 1, {"ipc_1x4": 20, "ip_1x4": 600}, "ipc"),
        (4, 1, {"ipc_1x4": 700, "ip_1x4": 600}, "ip"),
        (1, 2, {"rp_2x1": 30, "ip_2x1": 200}, "rp"),
        (1, 2, {"rp_2x1": 300, "ip_2x1": 200}, "ip"),
        (2, 2, {"rp_2x1": 30, "ip_2x2": 200, "ipc_1x2": 10}, "hybrid"),  # projected: 10 + 30 + 10
        (2, 2, {"rp_2x1": 30, "ip_2x2": 40, "ipc_1x2": 10}, "ip"),
        (2, 2, {"rp_2x1": 30, "ip_2x2": 40, "ipc_1x2": 10, "two_level_2x2": 35}, "hybrid"),  # measured
    ],
)
def test_the_cheapest_that_can_work_is_taken(gmis, devices, curves, kind):
    group = choice(compiled(gmis, devices).sized, profile(**curves))
    assert group.kind == kind
    assert [item.name for item in group.candidates if not item.reason] == [{"hybrid": "two_level"}.get(kind, kind)]
    assert group.profile == "measured on 2026-11-29: a test"


def test_reasons_give_the_ratio_or_the_obstacle():
    group = choice(compiled(4).sized, profile(ipc_1x4=20, ip_1x4=600))
    reasons = {item.name: item.reason for item in group.candidates}
    assert reasons["ip"] == "`ipc` is 30 times as fast"
    assert reasons["rp"] == "NCCL takes one member per GPU"
    assert reasons["ipc"] == ""


def test_the_papers_compositions_are_shown_in_both_forms():
    group = choice(compiled(2, 2).sized, built_in("cuda", "NVIDIA H200"))
    paper = next(item for item in group.candidates if item.name == "hybrid, k = 1")
    host = next(item for item in group.candidates if item.name == "ip")
    assert (paper.kind, paper.rings) == ("hybrid", 1)
    assert paper.reason == f"`two_level` is {paper.corrected_s / group.candidates[0].corrected_s:.3g} times as fast"
    # published (k/n + m - k) ip + rp = 1.5 ip + rp; corrected rp + ip x (4/3) / 1, with P = n (m - k) + k = 3
    assert paper.published_s - paper.corrected_s == pytest.approx((1.5 - 4 / 3) * host.corrected_s / 1.5)
    assert group.candidates[0].name == "two_level"


def test_the_size_of_the_buffer_follows_from_the_networks():
    component = compiled(4).workflow.components[0]
    assert gradient_bytes(component) == (BYTES, "networks of actor")
    assert ASSUMED_BYTES == 1 << 20


def test_the_table_marks_what_was_measured(monkeypatch):
    known = profile(ipc_1x4=20, ip_1x2=400)
    monkeypatch.setattr("gmiflow.profiles.store.collectives_for", lambda *_: known)
    lines = emitted(compiled(4), "comm").splitlines()
    assert lines[2] == "    about 456,580 bytes per call (networks of actor); times measured on 2026-11-29: a test"
    assert lines[4] == "    ipc                      -        20.0  measured  chosen"
    assert "    ip                   600.0       600.0  modelled  not taken: `ipc` is 30 times as fast" in lines


def wished(gmis, devices, **wishes):
    """What a target with wishes gets: kind and rings, or the message of E0503."""
    chosen = {"num_env": "4096", "target.gmi_per_gpu": gmis, "target.devices": devices}
    chosen |= {f"target.{name}": value for name, value in wishes.items()}
    options = Options(workflow="train", target="lab", overrides=tuple((k, str(v)) for k, v in chosen.items()))
    made = compile_file(ANT, options, hardware=MACHINE, stop_after="comm")
    if made.comm is None:
        (found,) = [d for d in made.diagnostics if d.severity == "error"]
        assert found.code == "E0503" and found.span.text == str(wishes.get("rings", wishes.get("collective")))
        return found.message.partition(": ")[2]
    (group,) = made.comm.collectives
    return group.kind, group.rings


@pytest.mark.parametrize(
    ("gmis", "devices", "wishes", "found"),
    [
        (2, 2, {}, ("hybrid", 0)),
        (2, 2, {"collective": "ip"}, ("ip", 0)),
        (2, 2, {"collective": "rp"}, ("hybrid", 2)),  # all by rings, and a ring of the results
        (1, 2, {"collective": "rp"}, ("rp", 0)),
        (2, 2, {"rings": 1}, ("hybrid", 1)),
        (2, 2, {"rings": 0, "collective": "hybrid"}, ("hybrid", 0)),
        (4, 1, {"collective": "nccl_multirank"}, ("nccl_multirank", 0)),
        (3, 2, {"rings": 3}, "3 rings need 3 GPUs"),
        (2, 2, {"rings": 3}, "a GPU has 2 GMIs, which are at most 2 rings"),
        (2, 2, {"rings": 1, "collective": "rp"}, "`rp` takes all 2 GMIs of each GPU, which is `rings = 2`"),
        (4, 1, {"rings": 1}, "rings join GPUs, and there is one"),
        (2, 2, {"rings": 1, "collective": "ip"}, "only a `hybrid` has rings"),
        (1, 2, {"collective": "nccl_multirank"}, "with one GMI per GPU it is `rp`"),
        (2, 2, {"collective": "ipc"}, "`ipc` works inside one GPU"),
    ],
)
def test_a_target_asks_for_a_collective(gmis, devices, wishes, found):
    assert wished(gmis, devices, **wishes) == found


def test_what_was_measured_of_rings_and_of_several_members_on_a_gpu_counts():
    """200 us through the host, 90 in one ring and the host, 80 in NCCL with four members on two GPUs."""
    known = [*profile(ip_2x2=200, rp_2x1=190, nccl_multirank_2x2=80).curves]
    known.append(Curve(collective="rings", gpus=2, gmis_per_gpu=2, points=((BYTES, 90e-6),), k=1))
    group = choice(compiled(2, 2).sized, replace(profile(), curves=tuple(known)))
    times = {item.name: round(item.corrected_s * 1e6) for item in group.candidates if item.corrected_s is not None}
    assert (group.kind, times["nccl_multirank"], times["hybrid, k = 1"]) == ("nccl_multirank", 80, 90)
    group = choice(compiled(2, 2).sized, replace(profile(), curves=(known[0], known[1], known[3])))
    assert (group.kind, group.rings) == ("hybrid", 1)
    assert next(c for c in group.candidates if c.name == "nccl_multirank").reason.startswith("experimental in NCCL")
