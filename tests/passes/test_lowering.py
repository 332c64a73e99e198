"""Mapping, sizing and communication lowering, seen through the pipeline."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmiflow.hardware import GPU, Hardware
from gmiflow.ir.text import sizing_text
from gmiflow.passes.slicing import cut
from gmiflow.pipeline import Options, compile_file

ANT = str(Path(__file__).parents[2] / "examples" / "ant.gmi")
CPU = Hardware(cores=4, gpus=())
GPUS = Hardware(
    cores=8,
    gpus=tuple(
        GPU(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
        for i in range(2)
    ),
)


def lower(hardware=CPU, target="cpu", workflow="train", **overrides):
    pairs = tuple((path.replace("__", "."), str(value)) for path, value in overrides.items())
    return compile_file(ANT, Options(workflow=workflow, target=target, overrides=pairs), hardware=hardware)


def slices(compilation):
    return [(s.env_offset, s.num_env) for s in compilation.sized.slices]


def codes(compilation):
    return [d.code for d in compilation.diagnostics if d.severity == "error"]


@given(
    strata=st.integers(1, 300),
    stratum=st.sampled_from([1, 2, 4, 8, 16]),
    parts=st.integers(1, 12),
)
def test_a_cut_covers_everything_once_in_whole_strata(strata, stratum, parts):
    if strata < parts:
        return
    ranges = cut(strata * stratum, stratum, parts)
    assert len(ranges) == parts
    covered = [env for offset, count in ranges for env in range(offset, offset + count)]
    assert covered == list(range(strata * stratum))
    counts = [count for _, count in ranges]
    assert all(count % stratum == 0 for count in counts)
    assert max(counts) - min(counts) <= stratum


def test_environments_are_cut_evenly():
    assert slices(lower(num_env=256, target__gmi_per_gpu=2)) == [(0, 128), (128, 128)]


def test_uneven_shards_are_whole_strata_and_said():
    compilation = lower(num_env=80, target__gmi_per_gpu=2)
    assert slices(compilation) == [(0, 48), (48, 32)]
    assert [d.code for d in compilation.diagnostics] == ["W0502"]


def test_too_few_strata_is_an_error_with_the_nearest_legal_numbers():
    compilation = lower(num_env=64, target__gmi_per_gpu=5)
    assert codes(compilation) == ["E0502"]
    notes = " ".join(compilation.diagnostics[-1].notes)
    assert "num_env = 80" in notes and "4 GMIs" in notes


def test_auto_on_the_cpu_is_one_gmi_per_core_at_most_ten():
    assert lower(num_env=4096).sized.gmi_per_gpu == 4
    many = Hardware(cores=64, gpus=())
    assert lower(many, num_env=4096).sized.gmi_per_gpu == 10


def test_auto_num_env_is_marked_as_a_default():
    sized = lower(num_env="auto").sized
    assert dict(sized.origins)["num_env"] == "default: no profile of this workload on this machine"
    assert sized.num_env > 0


def test_every_template_that_was_not_taken_has_a_reason():
    mapped = lower().mapped
    assert mapped.template == "dp_only"
    reasons = {r.choice: r.reason for r in mapped.rejected}
    assert set(reasons) == {"dp_mp", "e_at", "ea_t", "mp_dp"}
    # Ant: 60 observations and 8 actions and a reward of 4 bytes, two flags of 1 byte: 278 bytes, of 4,096
    # environments in 16 steps.
    assert f"{278 * 4096 * 16 / 1e6:.3g} MB more" in reasons["e_at"]


@pytest.mark.parametrize(("workflow", "mapping"), [("train", "mp_dp"), ("train_async", "e_at")])
def test_templates_of_other_modes_are_refused_by_name(workflow, mapping):
    compilation = lower(workflow=workflow, target__mapping=mapping)
    assert codes(compilation) == ["E0501"]
    assert mapping in compilation.diagnostics[-1].message


@pytest.mark.parametrize(
    ("mapping", "groups"),
    [
        ("dp_only", [("simulator", "agent", "trainer")]),
        ("ea_t", [("simulator", "agent"), ("trainer",)]),
        ("e_at", [("simulator",), ("agent", "trainer")]),
        ("dp_mp", [("simulator",), ("agent",), ("trainer",)]),
    ],
)
def test_every_template_of_sync_can_be_asked_for(mapping, groups):
    mapped = lower(target__mapping=mapping).mapped
    assert (mapped.template, mapped.origin, list(mapped.groups)) == (mapping, "given", groups)


def test_a_gpu_gets_graphs_and_async_gets_overlap():
    assert lower(GPUS, "h200").sized.execution == "graph"
    assert lower(GPUS, "h200", workflow="train_async").sized.execution == "overlap"
    assert lower(CPU, "cpu").sized.execution == "eager"


@pytest.mark.parametrize(
    ("target", "overrides"),
    [
        ("cpu", {"workflow__execution": "graph"}),
        ("h200", {"workflow__execution": "overlap"}),
        ("cpu", {"target__backend": "mps"}),
        ("h200", {"target__backend": "cpu"}),
    ],
)
def test_what_the_target_cannot_do_is_an_error(target, overrides):
    assert codes(lower(GPUS, target, **overrides)) == ["E0503"]


def test_one_collective_for_all_trainers_of_a_training():
    comm = lower(target__gmi_per_gpu=4).comm
    assert [(c.name, c.kind, c.members) for c in comm.collectives] == [("train.gradient", "ip", (0, 1, 2, 3))]
    assert lower(target__gmi_per_gpu=1).comm.collectives == ()


def test_replicas_are_trainings_of_their_own():
    compilation = lower(workflow__replicas=3, target__gmi_per_gpu=2, num_env=64)
    plan = compilation.plan
    assert [t.seed for t in plan.trainings] == [0, 1, 2]
    assert len({t.name for t in plan.trainings}) == 3
    assert [len(plan.members(t.name)) for t in plan.trainings] == [2, 2, 2]
    assert {c.training for c in plan.collectives} == {t.name for t in plan.trainings}
    assert all(t.num_env == 64 for t in plan.trainings)


def test_replicas_on_several_gpus_take_turns(tmp_path):
    text = Path(ANT).read_text().replace("targets.h200(gpus = 1)", "targets.h200(gpus = 2)")
    options = Options(workflow="train", target="lab", overrides=(("workflow.replicas", "4"),))
    compilation = compile_file(ANT, options, text=text, hardware=GPUS)
    assert [g.device for g in compilation.plan.gmis] == [0, 1, 0, 1]
    alone = compile_file(ANT, Options(workflow="train", target="lab"), text=text, hardware=GPUS)
    assert [(g.device, g.num_env) for g in alone.plan.gmis] == [(0, 2048), (1, 2048)]


@pytest.mark.parametrize(
    ("devices", "overrides", "kind"),
    [
        (1, {"target__gmi_per_gpu": 4}, "ipc"),
        (1, {"target__gmi_per_gpu": 4, "target__backend": "timeshare"}, "ip"),
        (1, {"target__gmi_per_gpu": 4, "target__backend": "mig"}, "ip"),
        (1, {"target__gmi_per_gpu": 2, "target__backend": "green"}, "local"),
        (2, {}, "rp"),
        (2, {"target__gmi_per_gpu": 2}, "hybrid"),
        (2, {"target__gmi_per_gpu": 2, "target__backend": "green"}, "hybrid"),
        (2, {"target__gmi_per_gpu": 2, "target__backend": "mig"}, "ip"),
    ],
)
def test_gpus_reduce_over_the_shortest_way_that_works(devices, overrides, kind):
    compilation = lower(hardware=GPUS, target="lab", num_env=4096, target__devices=devices, **overrides)
    (group,) = compilation.comm.collectives
    assert group.kind == kind
    crowded = compilation.sized.gmi_per_gpu > 1
    shown = {"local", "ipc", "hybrid", "ip"} | ({"nccl_multirank"} if crowded else set())
    # Several GMIs on each of several GPUs go by rings as a `hybrid`.
    assert {item.choice for item in group.rejected} | {kind} == shown | (set() if crowded and devices > 1 else {"rp"})
    assert all(item.reason for item in group.rejected)


def test_replicas_of_one_gpu_are_threads_of_one_process():
    compilation = lower(hardware=GPUS, target="lab", num_env=4096, train__replicas=3)
    assert compilation.sized.backend == "timeshare"
    assert [gmi.host for gmi in compilation.plan.gmis] == [0, 0, 0]
    assert {first: len(gmis) for first, gmis in compilation.plan.processes().items()} == {0: 3}
    assert "in the process of gmi 0" in sizing_text(compilation.sized)


def test_replicas_on_two_gpus_have_a_process_per_gpu():
    compilation = lower(hardware=GPUS, target="lab", num_env=4096, train__replicas=4, target__devices=2)
    assert [(gmi.device, gmi.host) for gmi in compilation.plan.gmis] == [(0, 0), (1, 1), (0, 0), (1, 1)]


def test_replicas_that_are_told_to_be_clients_of_mps_have_a_process_each():
    compilation = lower(hardware=GPUS, target="lab", num_env=4096, train__replicas=3, target__backend="mps")
    assert [(gmi.backend, gmi.host) for gmi in compilation.plan.gmis] == [("mps", None)] * 3


def test_green_gmis_cannot_outlive_each_other():
    compilation = lower(
        hardware=GPUS,
        target="lab",
        num_env=4096,
        target__gmi_per_gpu=2,
        target__backend="green",
        train__on_failure="restart",
    )
    assert codes(compilation) == ["E0503"]
    assert "use `backend = mps`" in compilation.diagnostics[0].notes
