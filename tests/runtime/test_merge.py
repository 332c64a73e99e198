"""Reports of several GMIs become one event per iteration, by hand-computed numbers."""

from __future__ import annotations

import dataclasses

from plans import apart_plan, launch_plan, training_plan

from gmiflow.runtime.failure import RuntimeFailure
from gmiflow.runtime.merge import TrainingMerger
from gmiflow.runtime.messages import Failed, Progress, decode, encode


def merger() -> TrainingMerger:
    plan = launch_plan(training_plan(), gmis=2)
    return TrainingMerger(plan.trainings[0], plan.gmis)


def report(gmi: int, iteration: int = 1, episodes: int = 0, return_sum: float = 0.0, seconds: float = 1.0) -> Progress:
    return Progress(
        gmi=gmi,
        iteration=iteration,
        env_steps=256,
        iteration_s=seconds,
        collect_s=0.5 * seconds,
        learn_s=0.25 * seconds,
        communicate_s=0.125 * seconds,
        episodes=episodes,
        return_sum=return_sum,
        length_sum=10.0 * episodes,
        stage_s={"sim": 0.25, "runtime": 0.5},
        metrics={"loss": 4.0 + gmi},
        diagnostics={"overflows": 3.0},
    )


def test_an_iteration_is_complete_when_all_have_reported() -> None:
    merging = merger()
    assert merging.add(report(1, episodes=1, return_sum=2.0, seconds=2.0)) is None
    event = merging.add(report(0, episodes=3, return_sum=6.0))
    assert event is not None
    assert (event.env_steps, event.total_env_steps) == (512, 64 * 8)
    assert (event.collect_s, event.learn_s, event.communicate_s, event.seconds) == (0.75, 0.375, 0.1875, 2.0)
    assert (event.episodes, event.mean_return, event.episode_length) == (4, 2.0, 10.0)
    assert event.metrics == {"loss": 4.0}
    assert event.diagnostics == {"overflows": 6.0}
    assert merging.times[1] == {"sim": 0.25, "runtime": 0.5, "communicate": 0.25}


def test_where_some_collect_and_others_train_the_times_are_of_the_busiest_of_each() -> None:
    plan = apart_plan(training_plan(), "dp_mp")  # GMI 0 simulates, 1 acts, 2 trains
    merging = TrainingMerger(plan.trainings[0], plan.gmis)
    nothing = {"env_steps": 0, "learn_s": 0.0, "communicate_s": 0.0}
    waiting = dataclasses.replace(report(2), env_steps=0, collect_s=5.0, learn_s=3.0, stage_s={"learner": 3.0})
    assert merging.add(waiting) is None
    acting = dataclasses.replace(report(1), **(nothing | {"env_steps": 256}), stage_s={"sim": 4.0, "actor": 1.0})
    assert merging.add(acting) is None
    event = merging.add(dataclasses.replace(report(0), **nothing, collect_s=2.0, stage_s={"sim": 2.0}))
    assert event is not None
    assert (event.collect_s, event.learn_s) == (0.5, 3.0)  # of the GMI that acts, and of the one that trains
    assert event.stage_s == {"simulate": 4.0, "infer": 1.0, "update": 3.0, "communicate": 0.125}


def test_a_fast_gmi_may_be_iterations_ahead() -> None:
    merging = merger()
    assert [merging.add(report(0, i)) for i in (1, 2, 3)] == [None, None, None]
    events = [merging.add(report(1, i)) for i in (1, 2, 3)]
    assert [event.iteration for event in events if event is not None] == [1, 2, 3]


def test_means_are_over_the_latest_hundred_episodes() -> None:
    merging = merger()

    def add(iteration: int, episodes: int, value: float):
        merging.add(report(0, iteration, episodes, episodes * value))
        return merging.add(report(1, iteration))

    assert add(1, 0, 0.0).mean_return is None
    assert add(2, 60, 1.0).mean_return == 1.0
    assert add(3, 60, 3.0).mean_return == 2.0  # 60 are too few: both iterations count
    assert add(4, 60, 5.0).mean_return == 4.0  # the latest two hold 120
    assert add(5, 0, 0.0).mean_return == 4.0
    assert add(6, 500, 7.0).mean_return == 7.0


def test_messages_survive_the_socket() -> None:
    failure = RuntimeFailure(code="E0701", message="x", stage="sim", file="a.gmi", line=3, notes=("a", "b"))
    for message in (report(0), Failed(gmi=1, failure=failure)):
        line = encode(message)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert decode(line) == message
