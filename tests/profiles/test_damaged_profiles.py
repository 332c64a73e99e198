"""A profile that no machine can have measured is refused with the place; two sessions at once lose nothing."""

import dataclasses
import json
import multiprocessing
from pathlib import Path

import pytest

from gmiflow.profiles import store
from gmiflow.profiles.calibration import CollectiveProfile, built_in
from gmiflow.profiles.workload import Look, WorkloadProfile

RECORDED = (Path(__file__).parents[1] / "commands" / "ant_h200.profile.json").read_text()


def edited(text, place, value):
    """The text with another value at a place, like ("measurements", 0, "status")."""
    data = json.loads(text)
    inner = data
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("measurements", 3, "steps_per_s"), float("nan"), "profile.measurements[3].steps_per_s cannot be nan"),
        (("measurements", 3, "steps_per_s"), 1e19, "cannot be 1e+19"),
        (("measurements", 3, "steps_per_s"), 0, "took no time or made no steps"),
        (("measurements", 0, "stage_s"), {"update": "long"}, "measurements[0].stage_s.update cannot be 'long'"),
        (("measurements", 0, "stage_s"), {"update": -1.0}, "cannot be -1.0"),
        (("measurements", 0, "point", "gmis"), 0, "a point of 1024 environments, 0 GMI"),
        (("measurements", 0, "point", "num_env"), True, "num_env cannot be True"),
        (("measurements", 0, "looks"), "none", "looks cannot be 'none'"),
        (("measurements", 0, "speed"), 1, "unknown field speed"),
        (("measurements", 0, "status"), ["ok"], "status cannot be ['ok']"),
        (("key", "sources"), {"a": 1}, "key.sources.a cannot be 1"),
        (("date",), 20261130, "date cannot be 20261130"),
        (("measurements",), {}, "measurements cannot be {}"),
    ],
)
def test_each_value_of_a_profile_is_looked_at(place, value, words):
    with pytest.raises(ValueError) as refused:
        WorkloadProfile.from_json(edited(RECORDED, place, value))
    assert str(refused.value).startswith("not a profile of a workload: ") and words in str(refused.value)


def test_a_point_is_there_once_and_nothing_is_missing():
    data = json.loads(RECORDED)
    data["measurements"].append(data["measurements"][0])
    with pytest.raises(ValueError, match="is there twice"):
        WorkloadProfile.from_json(json.dumps(data))
    del data["key"]["cores"]
    with pytest.raises(ValueError, match=r"profile.key lacks cores"):
        WorkloadProfile.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", "", '{"format": 1, "measurements": ' + "[" * 100_000])
@pytest.mark.parametrize("kind", [WorkloadProfile, CollectiveProfile])
def test_what_is_no_profile_at_all_is_refused(kind, text):
    with pytest.raises(ValueError, match="not a profile"):
        kind.from_json(text)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("points", [], "the sizes do not rise"),
        ("points", [[4096, 1e-5], [4096, 2e-5]], "the sizes do not rise"),
        ("points", [[4096, 0.0]], "a time is no time"),
        ("points", [[4096]], "has 1 values, not 2"),
        ("gpus", 0, "is of no GMI"),
        ("collective", "gossip", "collective cannot be 'gossip'"),
    ],
)
def test_each_value_of_a_calibration_is_looked_at(name, value, words):
    text = built_in("cpu", "").to_json()
    assert CollectiveProfile.from_json(text) == built_in("cpu", "")
    with pytest.raises(ValueError) as refused:
        CollectiveProfile.from_json(edited(text, ("curves", 0, name), value))
    assert words in str(refused.value)


def add_looks(number, barrier):
    empty = dataclasses.replace(WorkloadProfile.from_json(RECORDED), measurements=())
    known = WorkloadProfile.from_json(RECORDED).measurements[number]
    barrier.wait()
    for count in range(30):
        look = Look(at_s=float(count), steps_per_s=1.0)

        def change(profile, look=look):
            before = profile.at(known.point) or dataclasses.replace(known, looks=())
            others = [item for item in profile.measurements if item.point != known.point]
            more = dataclasses.replace(before, looks=(*before.looks, look))
            return dataclasses.replace(profile, measurements=(*others, more))

        store.change_workload(empty, change)


def test_processes_that_change_one_profile_at_once_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    workers = [context.Process(target=add_looks, args=(number, barrier)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    (file,) = [path for path in tmp_path.iterdir() if path.name != store.LOCK]
    assert [len(item.looks) for item in WorkloadProfile.from_json(file.read_text()).measurements] == [30, 30, 30]


def test_a_profile_that_cannot_be_written_leaves_nothing_half_done(tmp_path):
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        store.write_whole(tmp_path / "taken.json", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.json"]
