"""Sizes that a profile decides, seen through the pipeline: what is chosen, what is refused, what the plan says."""

import dataclasses
import json
from pathlib import Path

import pytest

from gmiflow.hardware import Hardware
from gmiflow.ir.search import Point
from gmiflow.ir.text import mapping_text, sizing_text
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.store import save_workload, source_of
from gmiflow.profiles.workload import Measurement, WorkloadProfile
from gmiflow.profiles.workload_key import key_of

ANT = str(Path(__file__).parents[2] / "examples" / "ant.gmi")
CPU = Hardware(cores=2, gpus=())
RATES = {(1, 256): 900.0, (1, 512): 1000.0, (2, 256): 1200.0, (2, 512): 1500.0, (2, 1024): 1510.0, (4, 512): 1100.0}


def compiled(*settings, stop_after="plan", **options):
    overrides = tuple(tuple(pair.split("=")) for pair in settings)
    chosen = Options(workflow="train", target="cpu", overrides=overrides, **options)
    return compile_file(ANT, chosen, hardware=CPU, stop_after=stop_after)


def measurement(gmis, num_env):
    rate = RATES[gmis, num_env]
    return Measurement(
        point=Point(template="dp_only", gmis=gmis, num_env=num_env, execution="eager", backend="cpu"),
        status="ok",
        steps_per_s=rate,
        steps_per_s_low=0.98 * rate,
        steps_per_s_high=1.03 * rate,
        iteration_s=num_env * 16 / rate,
        stage_s={"simulate": 6.0, "infer": 1.0, "update": 2.0},
        host_memory_bytes=500_000_000 * gmis + 100_000 * num_env,
        iterations=10,
    )


@pytest.fixture(scope="module")
def profile():
    workflow = compiled(stop_after="ir").workflow
    return WorkloadProfile(
        key=key_of(workflow, CPU),
        source=source_of(workflow),
        date="2026-11-30",
        measurements=tuple(measurement(*key) for key in RATES),
    )


@pytest.fixture
def file(profile, tmp_path):
    path = tmp_path / "ant.profile.json"
    path.write_text(profile.to_json())
    return str(path)


def test_auto_becomes_the_best_measured_point(file):
    """1,510 steps/s are within 1 % of 1,500, which need half the environments."""
    done = compiled("num_env=auto", profile=file)
    assert (done.sized.num_env, done.sized.gmi_per_gpu) == (512, 2)
    assert [(s.env_offset, s.num_env) for s in done.sized.slices] == [(0, 256), (256, 256)]
    origins = dict(done.sized.origins)
    assert origins["num_env"] == "measured: the most steps per second of the points that were measured"
    assert done.sized.search.unsliced.steps_per_s.value == 1000.0
    prediction = done.plan.trainings[0].prediction
    assert (prediction.steps_per_s, prediction.origin) == (1500.0, "measured")
    assert (prediction.steps_per_s_low, prediction.steps_per_s_high) == (1470.0, 1545.0)
    assert prediction.iteration_s == pytest.approx(512 * 16 / 1500)
    assert prediction.host_memory_bytes == 1_051_200_000


def test_what_was_given_stays(file):
    done = compiled("num_env=256", "target.gmi_per_gpu=auto", profile=file)
    assert (done.sized.num_env, done.sized.gmi_per_gpu) == (256, 2)
    assert dict(done.sized.origins)["num_env"] == "given"
    done = compiled("num_env=auto", "target.gmi_per_gpu=1", profile=file)
    assert (done.sized.num_env, done.sized.gmi_per_gpu) == (512, 1)
    assert dict(done.sized.origins)["gmi_per_gpu"] == "given"


def test_groups_of_a_split_mapping_get_shares_by_their_measured_work(file):
    """Simulate 6 s, infer 1 s, update 2 s: 7/9 of the device for one GMI, 2/9 for the trainer."""
    settings = ("num_env=256", "target.gmi_per_gpu=2", "target.mapping=ea_t")
    measured = compiled(*settings, profile=file)
    assert [s.share for s in measured.sized.slices] == pytest.approx([7 / 9, 2 / 9])
    assert "gmi: trainer (22 % of a device)" in mapping_text(measured.mapped)
    assert [s.share for s in compiled(*settings).sized.slices] == [0.5, 0.5]


def test_the_text_holds_the_numbers_and_the_reasons(file):
    done = compiled("num_env=auto", profile=file)
    text = sizing_text(done.sized)
    assert "expected 1,500 steps/s (measured, 1,470 to 1,545)" in text
    assert (
        "not 512 environments, 1 GMI, dp_only, eager, cpu: throughput: 1,000 steps/s, 0.67 times the chosen one" in text
    )
    assert (
        "not 1024 environments, 2 GMIs, dp_only, eager, cpu: tie: 1.007 times the chosen one, which is smaller" in text
    )
    assert "from measured times of the roles" in mapping_text(done.mapped)


def test_a_profile_is_found_where_it_was_kept(profile, tmp_path, monkeypatch):
    monkeypatch.setenv("GMIFLOW_PROFILES", str(tmp_path))
    save_workload(profile)
    assert compiled("num_env=auto", require_profile=True).sized.num_env == 512
    assert compiled("num_env=auto", use_profiles=False).sized.search is None


def test_a_profile_of_another_processor_is_refused_with_the_field_named(profile, tmp_path):
    other = dataclasses.replace(profile, key=dataclasses.replace(profile.key, processor="Other CPU", cores=64))
    path = tmp_path / "other.json"
    path.write_text(other.to_json())
    (problem,) = compiled("num_env=auto", profile=str(path)).diagnostics
    assert problem.code == "E0507"
    assert problem.message == f"{path} was not measured with what would run: processor, cores differ"
    assert problem.notes[0].startswith("processor: Other CPU in the profile, ")
    assert problem.notes[1] == "cores: 64 in the profile, 2 here"


def test_a_stale_profile_does_not_decide_and_names_the_field(profile, tmp_path, monkeypatch):
    monkeypatch.setenv("GMIFLOW_PROFILES", str(tmp_path))
    save_workload(dataclasses.replace(profile, key=dataclasses.replace(profile.key, torch="1.0")))
    done = compiled("num_env=auto")
    assert done.sized.search is None
    assert done.evidence.stale == ("torch",)
    assert "no profile" in dict(done.sized.origins)["num_env"]
    (problem,) = compiled("num_env=auto", require_profile=True).diagnostics
    assert (problem.code, problem.notes[0]) == ("E0507", "the nearest profile differs in torch")


def test_sizes_of_a_split_mapping_are_not_decided_by_a_profile():
    """A profile of them tells how fast they are; where one has to decide, that is said."""
    split = ("target.mapping=e_at", "target.gmi_per_gpu=2")
    (problem,) = compiled("num_env=auto", *split, require_profile=True).diagnostics
    assert (problem.code, problem.message) == ("E0507", "no profile decides sizes of mapping `e_at`")
    assert problem.notes == ("give `num_env`, and `gmi_per_gpu` or `agents`",)
    (problem,) = compiled("num_env=64", split[0], require_profile=True).diagnostics  # how many pairs is open
    assert problem.notes == ("give `num_env`, and `gmi_per_gpu` or `agents`",)
    assert not compiled("num_env=64", *split, require_profile=True).diagnostics
    done = compiled("num_env=auto", *split)
    assert not done.diagnostics
    assert dict(done.sized.origins)["num_env"] == "default: sizes of mapping `e_at` are not searched"


def test_what_is_given_in_full_needs_no_profile():
    assert not compiled("num_env=256", "target.gmi_per_gpu=2", require_profile=True).diagnostics


@pytest.mark.parametrize("content", ["", "{}", json.dumps({"format": 99})])
def test_a_file_that_is_no_profile_is_an_error_and_no_crash(content, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(content)
    (problem,) = compiled(profile=str(path)).diagnostics
    assert problem.code == "E0507"
    (problem,) = compiled(profile=str(tmp_path / "missing.json")).diagnostics
    assert problem.message.endswith("missing.json: no such file or directory")


def test_algorithm_1_can_be_asked_for(file):
    """Two GMIs: 256 are remembered, Sat = 0.25 / 0.025 = 10 at 512, and 0.0067 / 0.0487 = 0.14 at 1,024: 1,510."""
    done = compiled("num_env=auto", profile=file, algorithm="paper")
    assert (done.sized.num_env, done.sized.gmi_per_gpu) == (1024, 2)
    assert any("did not end" in note for note in done.sized.search.notes)
