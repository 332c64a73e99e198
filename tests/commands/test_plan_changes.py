"""What differs between two plans, in the words of the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from gmiflow.commands.plan_changes import changes, predicted_ratio
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import PredictionPlan
from gmiflow.profiles import plans

ANT = str(Path(__file__).parents[2] / "examples" / "ant.gmi")


def planned(*settings, target="h200"):
    overrides = tuple(tuple(setting.split("=")) for setting in settings)
    compiled = compile_file(ANT, Options(workflow="train", target=target, overrides=overrides), stop_after="plan")
    assert compiled.plan is not None, compiled.diagnostics
    return compiled.plan


def words(before, after):
    return [str(change) for change in changes(before, after)]


@pytest.fixture(scope="module")
def plain():
    return planned()


def predicted(plan, steps_per_s):
    prediction = PredictionPlan(
        steps_per_s=steps_per_s, steps_per_s_low=steps_per_s, steps_per_s_high=steps_per_s, iteration_s=1.0, stage_s={},
        device_memory_bytes=0, host_memory_bytes=0, origin="measured",
    )  # fmt: skip
    trainings = tuple(replace(training, prediction=prediction) for training in plan.trainings)
    return replace(plan, trainings=trainings)


def test_a_plan_is_itself(plain):
    assert changes(plain, planned()) == ()


def test_comments_measurements_and_versions_are_no_changes(plain):
    other = replace(plain, generator="gmiflow 99", source=replace(plain.source, sha256="0" * 64, file="other.gmi"))
    assert changes(predicted(plain, 1e6), predicted(other, 2e6)) == ()


def test_what_a_setting_changes_is_named_once(plain):
    assert words(plain, planned("num_env=8192")) == ["num_env 4096 -> 8192"]
    assert words(plain, planned("lr=0.001")) == ["learner.lr 0.0003 -> 0.001"]
    sliced = words(plain, planned("num_env=8192", "target.gmi_per_gpu=2", "target.cores=2"))
    assert "num_env 4096 -> 8192" in sliced
    assert "gmi_per_gpu 1 -> 2" in sliced
    assert not any("of GMI" in word and "num_env" in word for word in sliced)


def test_a_way_back_is_the_change_turned_round(plain):
    after = planned("target.devices=2", "workflow.horizon=32")
    there, back = changes(plain, after), changes(after, plain)
    assert [(c.name, c.before, c.after) for c in there] == [(c.name, c.after, c.before) for c in back]
    assert {c.name for c in there} >= {"devices", "horizon"}


def test_replicas_are_counted_and_common_changes_told_once(plain):
    two = planned("workflow.replicas=2")
    assert "trainings 1 -> 2" in words(plain, two)
    assert words(two, planned("workflow.replicas=2", "workflow.horizon=32")) == ["horizon 16 -> 32"]
    seeds = words(two, planned("workflow.replicas=2", "workflow.seed=5"))
    assert seeds == ["train.0: seed 0 -> 5", "train.1: seed 1 -> 6"]


def test_the_device_and_shares_count(plain):
    assert "device cuda -> cpu" in words(plain, planned(target="cpu"))
    smaller = replace(plain, gmis=(replace(plain.gmis[0], share=0.5),))
    assert words(plain, smaller) == ["share of GMI 0 1 -> 0.5"]


def test_predictions_are_compared_over_all_trainings(plain):
    assert predicted_ratio(predicted(plain, 2e6), predicted(plain, 2.42e6)) == pytest.approx(1.21)
    assert predicted_ratio(plain, predicted(plain, 2e6)) is None
    two = planned("workflow.replicas=2")
    assert predicted_ratio(predicted(plain, 2e6), predicted(two, 1.5e6)) == pytest.approx(1.5)


def test_the_last_plan_is_kept_by_file_workflow_and_target(plain, tmp_path, monkeypatch):
    monkeypatch.setenv("GMIFLOW_PROFILES", str(tmp_path))
    assert plans.load_plan(plain) is None
    path = plans.save_plan(plain)
    assert path.is_relative_to(tmp_path)
    assert plans.load_plan(planned("num_env=8192")) == plain  # settings do not make another workflow
    assert plans.load_plan(planned(target="cpu")) is None
    path.write_text("{}")
    assert plans.load_plan(plain) is None
