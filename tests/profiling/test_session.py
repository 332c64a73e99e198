"""A session measures what is asked for, within its budget, and the next one goes on where it ended."""

import json
import os
import signal

import pytest
from small import MACHINE, MEMORY_ERROR, PACE, make_project, point, workflow_of

from gmiflow.profiles import store
from gmiflow.profiles.workload import Measurement, WorkloadProfile
from gmiflow.profiles.workload_key import key_of
from gmiflow.profiling.session import Request, profile_workflow, today, with_measurement


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def request_for(project, tmp_path, monkeypatch):
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    workflow, options = workflow_of(project)

    def make(**fields):
        given = {"workflow": workflow, "options": options, "hardware": MACHINE, "pace": PACE, **fields}
        return Request(**given)

    return make


def asks(*points):
    """Proposes these points in order, a round for each, never one that is known."""

    def proposer(measurements, late):
        known = {item.point for item in measurements}
        return tuple(each for each in points if each not in known)[:1]

    return proposer


def test_what_another_session_measures_meanwhile_is_kept(request_for):
    request = request_for(budget_s=0.01)
    key = key_of(request.workflow, MACHINE)
    empty = WorkloadProfile(key=key, source=store.source_of(request.workflow), date=today(), measurements=())
    other = Measurement(point=point(48), status="failed", message="measured by the other one")

    def meanwhile(step):
        if step.measurement is None:
            store.change_workload(empty, lambda profile: with_measurement(profile, other))

    outcome = profile_workflow(request, meanwhile, asks(point(32)))
    assert outcome.path.read_text() == outcome.profile.to_json()
    assert outcome.profile.at(point(48)) == other and outcome.profile.at(point(32)).status == "ok"


def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(request_for, tmp_path):
    (tmp_path / "file").touch()
    steps = []
    with pytest.raises(NotADirectoryError):
        profile_workflow(request_for(output=tmp_path / "file" / "small.profile.json"), steps.append, asks(point(32)))
    assert steps == []


def test_a_session_keeps_what_it_measured_and_the_next_goes_on(request_for, project, tmp_path):
    steps = []
    output = tmp_path / "kept" / "small.profile.json"
    wanted = asks(point(32), point(MEMORY_ERROR), point(48))

    # The first point is always measured, whatever the budget.
    first = profile_workflow(request_for(budget_s=0.01), steps.append, wanted)
    assert (first.ended, first.new, first.path.parent) == ("budget", 1, tmp_path / "cache")
    assert [(step.point, step.measurement is None) for step in steps] == [(point(32), True), (point(32), False)]
    assert WorkloadProfile.from_json(first.path.read_text()) == first.profile

    second = profile_workflow(request_for(budget_s=200, output=output), steps.append, wanted)
    assert (second.ended, second.new, second.path) == ("complete", 2, output)
    assert {item.point.num_env: item.status for item in second.profile.measurements} == {
        32: "ok", MEMORY_ERROR: "out_of_memory", 48: "ok",
    }  # fmt: skip
    assert [step.measured for step in steps[2:]] == [1, 2, 2, 3]
    assert output.read_text() == first.path.read_text() == second.profile.to_json()
    known = store.look_up(workflow_of(project, workflow__num_env=64)[0], MACHINE).valid
    assert known is not None and known.profile.measurements

    fresh = profile_workflow(request_for(fresh=True), proposer=asks(point(64)))
    assert [item.point for item in fresh.profile.measurements] == [point(64)]


def test_a_signal_ends_a_session_and_keeps_what_was_measured(request_for):
    def interrupt(step):
        if step.measurement is None and step.point == point(48):
            os.kill(os.getpid(), signal.SIGTERM)

    outcome = profile_workflow(request_for(), interrupt, asks(point(32), point(48), point(64)))
    assert (outcome.ended, outcome.signal, outcome.new) == ("interrupted", signal.SIGTERM, 1)
    assert json.loads(outcome.path.read_text())["measurements"][0]["point"]["num_env"] == 32
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
