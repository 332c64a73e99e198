"""The file of rows: what is whole counts, what was torn is made again."""

import json

import pytest
from bench_support import job, row

from gmiflow.bench.jobs import JobError, Limits, make_jobs
from gmiflow.bench.rows import Rows
from gmiflow.bench.training import Progress
from gmiflow.tasks.catalog import TASKS


def test_rows_are_lines_that_the_next_call_finds(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = Rows(path)
    rows.add([row(seed=0), row(seed=1)])
    rows.add([row(seed=2, row="failed")])
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1, 2]
    again = Rows(path)
    assert again.done == rows.done == {"ant-gmiflow-0", "ant-gmiflow-1"}
    assert [found["seed"] for found in again.finished(["ant-gmiflow-1", "nobody", "ant-gmiflow-0"])] == [1, 0]


def test_a_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "rows.jsonl"
    Rows(path).add([row(seed=0), row(seed=1)])
    path.write_bytes(path.read_bytes()[:-40])
    rows = Rows(path)
    assert rows.done == {"ant-gmiflow-0"}
    rows.add([row(seed=1)])
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "humanoid"},
        {"side": "rsl_rl"},
        {"num_env": 128},
        {"target": None},
        {"settings": ("workflow.horizon=8",)},
        {"limits": Limits(seconds=3.0)},
        {"limits": Limits(iterations=3, stop_at_return=5.0)},
        {"seeds": (0, 1)},
        {"source": "1" * 64},
    ],
)
def test_everything_that_decides_the_numbers_is_in_the_key(changes):
    assert job().key(0) == job().key(0)
    assert job(**changes).key(0) != job().key(0)


def test_seeds_have_keys_of_their_own_and_the_goal_has_none():
    assert job().key(0) != job().key(1)
    assert job(goal=2.0).key(0) == job().key(0)


def jobs(tasks=("ant",), sides=("gmiflow", "rsl_rl"), seeds=(4, 5), **changes):
    values = {"num_env": None, "target": "cpu", "settings": (), "limits": Limits(seconds=60.0), "goal": None}
    return make_jobs(tasks, sides, seeds, **{**values, "replicas": False, **changes})


def test_sides_of_a_seed_come_after_each_other():
    made = jobs(("ant", "cartpole"))
    assert [(one.task, one.side, one.seeds) for one in made[:4]] == [
        ("ant", "gmiflow", (4,)),
        ("ant", "rsl_rl", (4,)),
        ("ant", "gmiflow", (5,)),
        ("ant", "rsl_rl", (5,)),
    ]
    assert {one.num_env for one in made} == {256}
    assert {(one.task, one.goal) for one in made} == {
        (name, TASKS[name].goal.mean_return) for name in ("ant", "cartpole")
    }
    assert len({one.name for one in made}) == len(made)


def test_replicas_are_one_job():
    made = jobs(replicas=True)
    assert [(one.side, one.seeds) for one in made] == [("gmiflow", (4, 5)), ("rsl_rl", (4,)), ("rsl_rl", (5,))]
    plan = made[0].plan()
    assert [(training.name, training.seed) for training in plan.trainings] == [("train.0", 4), ("train.1", 5)]


def test_the_plan_is_the_example_with_the_limits():
    (one,) = jobs(("ball_balance",), ("gmiflow",), (3,), settings=("workflow.horizon=8",), limits=Limits(iterations=7))
    (training,) = one.plan().trainings
    assert (training.num_env, training.horizon, training.seed, training.iterations) == (256, 8, 3, 7)
    (own,) = jobs(("ball_balance",), ("gmiflow",), (3,), limits=Limits(stop_at_return=9.0))
    assert own.limits == Limits(iterations=250, stop_at_return=9.0)


def test_what_does_not_compile_is_said():
    with pytest.raises(JobError, match=r"E0\d\d\d: "):
        jobs(settings=("workflow.horizn=8",))


def event(iteration, mean_return, seconds=0.5):
    return {
        "iteration": iteration,
        "seconds": seconds,
        "env_steps": 100,
        "total_env_steps": 100 * iteration,
        "mean_return": mean_return,
    }


def test_progress_adds_up_and_knows_when_it_is_enough():
    progress = Progress()
    for iteration, value in enumerate((None, 3.0, "nan", 5.0), 1):
        progress.add(event(iteration, value))
    assert progress.curve == [(1.0, 200, 3.0), (2.0, 400, 5.0)]
    assert (progress.seconds, progress.env_steps, progress.iterations) == (2.0, 400, 4)
    assert progress.enough(Limits(seconds=2.1, iterations=5, stop_at_return=5.5)) == ""
    assert progress.enough(Limits(seconds=2.0)) == "seconds"
    assert progress.enough(Limits(iterations=4)) == "iterations"
    assert progress.enough(Limits(seconds=1.0, stop_at_return=5.0)) == "return"


def test_the_first_third_of_the_iterations_counts_for_no_speed():
    progress = Progress()
    for iteration, seconds in enumerate((10.0, 10.0, 0.5, 0.2, 0.5, 1.0), 1):
        progress.add(event(iteration, None, seconds))
    assert progress.steps_per_s == 200.0  # the median of 200, 500, 200, 100
