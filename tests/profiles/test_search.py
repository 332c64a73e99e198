"""The improved search on machines that are formulas: how well it chooses, how soon, and what it never does."""

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_support import GIB, best_rate, cpu_space, doublings, formula, gpu_space, measured, profile, search

from gmiflow.hardware import Hardware
from gmiflow.ir.search import Point
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.objective import critical_batch, efficiency
from gmiflow.profiles.ranking import TIE
from gmiflow.profiles.search import choose, propose
from gmiflow.profiles.space import space_of
from gmiflow.profiles.walls import SATURATION

MACHINES = st.builds(
    formula,
    latency=st.floats(1e-3, 2e-2),
    divided=st.floats(1e-6, 3e-4),
    shared=st.floats(1e-5, 3e-4),
    each=st.floats(0.0, 1e-2),
)
"""Machines whose GMIs divide some of the work, share the rest, and cost something each."""

FEW = settings(max_examples=15, deadline=None, derandomize=True)


def point(gmis, num_env, execution="eager", backend="cpu"):
    return Point(template="dp_only", gmis=gmis, num_env=num_env, execution=execution, backend=backend)


def rates(found):
    return {m.point: m.steps_per_s for m in found if m.status == "ok"}


@FEW
@given(machine=MACHINES)
def test_the_choice_is_within_5_percent_of_the_exhaustive_best_with_few_points(machine):
    space = cpu_space()
    seen = search(space, machine)
    assert len(seen) <= 16
    chosen = choose(space, profile(seen)).chosen
    assert machine(chosen.point).steps_per_s >= 0.95 * best_rate(space, machine)


@pytest.mark.parametrize("shared", [3e-7, 3e-6])
def test_lowerings_and_backends_of_a_gpu_are_searched_within_the_budget(shared):
    space = gpu_space()
    machine = formula(0.02, 3e-7, shared, 2e-3)
    seen = search(space, machine)
    assert len(seen) <= space.max_points < len(list(space.points())) / 10
    assert {m.point.execution for m in seen} == {"graph", "eager"}
    assert {m.point.backend for m in seen} == {"timeshare", "mps", "green"}
    chosen = choose(space, profile(seen)).chosen
    assert chosen.point.execution == "graph"
    assert machine(chosen.point).steps_per_s >= 0.95 * best_rate(space, machine)


@FEW
@given(machine=MACHINES)
def test_the_unsliced_plan_is_measured_first_and_with_as_many_environments_as_the_chosen_one(machine):
    space = cpu_space()
    seen = search(space, machine)
    assert seen[0].point == point(1, 256)
    found = choose(space, profile(seen))
    assert found.unsliced is not None
    assert (found.unsliced.point.gmis, found.unsliced.point.num_env) == (1, found.chosen.point.num_env)
    assert found.unsliced.steps_per_s.origin == "measured"


def test_with_a_free_batch_the_choice_is_compared_with_the_best_unsliced_plan():
    """1,200 steps/s with two GMIs and 1,024 environments; alone 900 with as many, and 1,000 with 256."""
    known = profile(
        [measured(point(2, 1024), 1200.0), measured(point(1, 1024), 900.0), measured(point(1, 256), 1000.0)]
    )
    compared = {fixed: choose(cpu_space(batch_fixed=fixed), known).unsliced for fixed in (True, False)}
    assert {fixed: found.point for fixed, found in compared.items()} == {True: point(1, 1024), False: point(1, 256)}


@FEW
@given(machine=MACHINES, noise=st.integers(0, 1000), order=st.randoms(use_true_random=False))
def test_the_choice_is_never_worse_than_the_best_measured_and_does_not_depend_on_the_order(machine, noise, order):
    spread = random.Random(noise)
    space = cpu_space()
    seen = search(space, lambda p: measured(p, machine(p).steps_per_s * spread.uniform(0.8, 1.2)))
    chosen = choose(space, profile(seen)).chosen
    assert chosen.steps_per_s.value >= (1 - TIE) * max(rates(seen).values())
    order.shuffle(seen)
    assert choose(space, profile(seen)).chosen == chosen
    assert propose(space, seen) is None


@FEW
@given(machine=MACHINES, limit=st.floats(0.5, 12))
def test_a_point_out_of_memory_is_a_wall(machine, limit):
    """Nothing with as many GMIs and as many environments as a point that ran out of memory is tried."""
    space = gpu_space(gmis=(1, 2, 4), num_env=tuple(2**p for p in range(6, 13)), reference=256, memory_bytes=0)

    def run(wanted):
        needs = (0.5 * wanted.gmis + 2e-3 * wanted.num_env) * GIB
        ok = needs <= limit * GIB
        return measured(wanted, machine(wanted).steps_per_s, needs, "ok" if ok else "out_of_memory")

    seen = search(space, run)
    walls = []
    for measurement in seen:
        assert not any(
            measurement.point.gmis >= wall.gmis and measurement.point.num_env >= wall.num_env for wall in walls
        )
        walls += [measurement.point] if measurement.status == "out_of_memory" else []
    if rates(seen):
        found = choose(space, profile(seen))
        assert found.chosen.point in rates(seen)
        assert all(v.term == "memory" for v in found.verdicts if v.candidate.point in walls)


@FEW
@given(machine=MACHINES, first=st.floats(1, 12), more=st.floats(0, 12))
def test_more_memory_never_gives_fewer_environments_or_steps(machine, first, more):
    """Everything is measured, with one GMI, and only the memory of the target differs."""

    def chosen(gib):
        space = cpu_space(gmis=(1,), memory_bytes=round(gib * GIB))
        everything = [measured(p, machine(p).steps_per_s, (0.5 + 2e-3 * p.num_env) * GIB) for p in space.points()]
        return choose(space, profile(everything)).chosen

    small, large = chosen(first), chosen(first + more)
    assert large.point.num_env >= small.point.num_env
    assert large.steps_per_s.value >= (1 - TIE) * small.steps_per_s.value
    assert small.host_memory.value <= first * GIB


@FEW
@given(machine=MACHINES)
def test_a_saturated_row_is_not_followed(machine):
    """Except to compare the chosen plan with the unsliced one."""
    space = cpu_space()
    seen = search(space, machine)
    chosen = choose(space, profile(seen)).chosen.point
    for index, last in enumerate(seen):
        if (last.point.gmis, last.point.num_env) == (1, chosen.num_env):
            continue
        row = sorted(m.point for m in seen[:index] if m.point.gmis == last.point.gmis)
        known = rates(seen)
        for before, after in itertools.pairwise(row):
            gain = (known[after] / known[before]) ** (1 / doublings(before, after)) - 1
            assert gain >= SATURATION or last.point.num_env <= after.num_env


def test_ties_go_to_fewer_gmis_then_fewer_environments_then_the_simpler_lowering():
    space = gpu_space(gmis=(1, 2), num_env=(1024, 2048), reference=1024)
    equal = [measured(p, 1000.0) for p in space.points()]
    found = choose(space, profile(equal))
    assert found.chosen.point == point(1, 1024, "eager", "timeshare")
    assert {v.term for v in found.verdicts[1:]} == {"tie"}
    better = [measured(p, 1000.0 + (20 if p.gmis == 2 else 0)) for p in space.points()]
    assert choose(space, profile(better)).chosen.point == point(2, 1024, "eager", "mps")


def test_memory_beyond_what_the_target_leaves_is_not_chosen():
    space = cpu_space(gmis=(1,), memory_bytes=3 * GIB)
    everything = [measured(p, float(p.num_env), p.num_env / 512 * GIB) for p in space.points()]
    found = choose(space, profile(everything))
    assert found.chosen.point.num_env == 1024  # 2 GiB; 2,048 need 4
    reasons = {v.candidate.point.num_env: v.reason for v in found.verdicts}
    assert reasons[2048] == "it needs 4.00 GiB, and there are 3.00 GiB"


def test_a_lowering_that_fails_is_left_alone():
    space = gpu_space()
    machine = formula(0.02, 3e-7, 1e-6, 2e-3)

    def run(wanted):
        if wanted.execution == "graph":
            return measured(wanted, 1.0, status="failed")
        return machine(wanted)

    seen = search(space, run)
    assert sum(m.status == "failed" for m in seen) == 1
    assert choose(space, profile(seen)).chosen.point.execution == "eager"


def test_what_the_user_gives_is_a_constraint_and_the_rest_is_modelled_from_the_neighbours():
    """Measured at 256 and 1,024 environments; 512 were never measured."""
    machine = formula(0.01, 1e-4, 1e-4, 1e-3)
    known = [machine(point(gmis, num_env)) for gmis in (1, 2) for num_env in (256, 1024)]
    found = choose(cpu_space(num_env=(512,), reference=512, gmis=(2,)), profile(known))
    assert found.chosen.point == point(2, 512)
    assert found.chosen.steps_per_s.origin == "modelled"
    truth = machine(point(2, 512)).steps_per_s
    assert found.chosen.steps_per_s.low <= truth <= found.chosen.steps_per_s.high
    assert found.chosen.steps_per_s.value == pytest.approx(truth, rel=0.05)
    assert found.unsliced is None  # the user said two GMIs


def test_nothing_measured_gives_the_defaults_and_says_so():
    assert choose(cpu_space(), None).chosen.point == point(2, 256)  # a GMI per core
    found = choose(gpu_space(), None)
    assert found.chosen.point == point(1, 4096, "graph", "timeshare")
    assert found.chosen.steps_per_s.origin == "modelled"
    assert "nothing was measured" in found.notes[0]


@pytest.mark.parametrize(("cores", "trainings"), [(1, 1), (2, 1), (4, 1), (4, 2), (16, 1)])
def test_by_the_defaults_more_gmis_than_cores_are_never_faster_than_as_many(cores, trainings):
    space = cpu_space(gmis=tuple(range(1, 11)), cores=cores, trainings=trainings)
    rate = {(v.candidate.point.gmis, v.candidate.point.num_env): v.candidate.steps_per_s.value
            for v in choose(space, None).verdicts}  # fmt: skip
    own = cores // trainings
    assert all(
        rate[gmis, num_env] < rate[own, num_env] for gmis, num_env in rate if own < gmis and (own, num_env) in rate
    )


def test_several_devices_add_their_steps_and_pay_for_the_longer_all_reduce():
    """1,000 steps/s of 1,024 x 16 steps are 16.384 s an iteration; 1 s more on four devices: 65,536 / 17.384."""
    space = gpu_space(gmis=(1,), num_env=(1024,), reference=1024, devices=4, communicate_s=((1, 0.0, 1.0),))
    found = choose(space, profile([measured(point(1, 1024, "graph", "timeshare"), 1000.0)]))
    assert found.chosen.steps_per_s.value == pytest.approx(65536 / 17.384)
    assert found.chosen.steps_per_s.origin == "modelled"


def test_time_to_reward_prefers_a_batch_that_still_teaches():
    """With B_crit = 16,384 samples a step of 4,096 x 16 counts a fifth, one of 256 x 16 four fifths: 4,000 x 0.2
    against 1,500 x 0.8."""
    assert efficiency(65536, 16384) == pytest.approx(0.2)
    space = cpu_space(gmis=(1,), num_env=(256, 4096), objective="time_to_reward", critical_batch=16384)
    known = profile([measured(point(1, 256), 1500.0), measured(point(1, 4096), 4000.0)])
    found = choose(space, known)
    assert found.chosen.point.num_env == 256
    assert found.chosen.score == pytest.approx(1200)
    assert choose(cpu_space(gmis=(1,), num_env=(256, 4096)), known).chosen.point.num_env == 4096


def test_the_critical_batch_follows_from_two_trainings():
    """S = 1000 (1 + B / 100): 1,100 samples at 10 and 3,000 at 200."""
    assert critical_batch((10, 1100), (200, 3000)) == pytest.approx(100)
    assert critical_batch((10, 1100), (200, 1100)) is None  # the batch did not matter
    assert critical_batch((10, 1100), (20, 9000)) is None  # worse than in proportion


@pytest.mark.parametrize(
    ("mapping", "groups", "gmis"),
    [
        ("ea_t", {}, (2, 4)),  # one of either kind at least
        ("ea_t", {"agents": 2, "trainers": 1}, (3,)),
        ("ea_t", {"agents": 2}, (2, 4)),
        ("e_at", {}, (2,)),  # pairs
        ("dp_mp", {}, (3,)),  # a pair, and one that trains
        ("dp_mp", {"simulators": 2, "trainers": 2}, (6,)),
        ("dp_only", {}, (1, 2, 4)),
    ],
)
def test_a_split_mapping_leaves_open_what_the_target_does_not_say(mapping, groups, gmis):
    """Two cores."""
    given = {"mapping": mapping, **groups}
    overrides = tuple((f"target.{name}", str(value)) for name, value in given.items())
    example = str(Path(__file__).parents[2] / "examples" / "ant.gmi")
    machine = Hardware(cores=2, gpus=())
    workflow = compile_file(
        example, Options(workflow="train", target="cpu", overrides=overrides), hardware=machine, stop_after="check"
    ).workflow
    assert space_of(workflow, machine).gmis == gmis
