"""The key of a workload profile changes with what the measurements depend on, and with nothing else."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from gmiflow.hardware import GPU, Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles import store, versions
from gmiflow.profiles.workload import Measurement, Point, WorkloadProfile
from gmiflow.profiles.workload_key import difference_text, key_of

EXAMPLES = Path(__file__).parents[2] / "examples"
H200 = GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
A100 = dataclasses.replace(H200, name="NVIDIA A100-SXM4-80GB", sm_count=108, memory_bytes=81920 << 20)
CPU = Hardware(cores=2, gpus=())
POINT = Point(template="dp_only", gmis=1, num_env=256, execution="eager", backend="cpu")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A workflow with a simulator of its own, in a folder that may be written."""
    for name in ("own_simulator.gmi", "pendulum.py"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def workflow_of(file="own_simulator.gmi", target=None, hardware=CPU, **overrides):
    settings = tuple((name.replace("__", "."), str(value)) for name, value in overrides.items())
    compiled = compile_file(str(file), Options(target=target, overrides=settings), hardware=hardware, stop_after="ir")
    assert compiled.workflow is not None, compiled.diagnostics
    return compiled.workflow


def profile_of(workflow, hardware=CPU, date="2026-11-30"):
    measured = (Measurement(point=POINT, status="ok", steps_per_s=1000.0, iteration_s=0.5),)
    key = key_of(workflow, hardware)
    return WorkloadProfile(key=key, source=store.source_of(workflow), date=date, measurements=measured)


def test_size_seed_and_slicing_are_not_in_the_key(project):
    key = key_of(workflow_of(), CPU)
    others = workflow_of(train__num_env=512, train__seed=7, train__iterations=3, target__gmi_per_gpu=2)
    assert key_of(others, CPU) == key


@pytest.mark.parametrize("override", [{"train__horizon": 8}, {"train__precision": "bf16"}])
def test_another_training_is_another_workload(project, override):
    assert key_of(workflow_of(**override), CPU).differences(key_of(workflow_of(), CPU)) == ("workload",)


def test_the_source_of_an_entry_is_in_the_key_with_what_it_imports_and_names(project):
    key = key_of(workflow_of(), CPU)
    (project / "helper.py").write_text("GRAVITY = 9.81\n")
    module = project / "pendulum.py"
    module.write_text("from helper import (\n    GRAVITY as G,  # m/s2\n)\nBODY = 'body.xml'\n" + module.read_text())
    changed = key_of(workflow_of(), CPU)
    assert changed.differences(key) == ("sources",)
    (project / "helper.py").write_text("GRAVITY = 1.62\n")
    on_the_moon = key_of(workflow_of(), CPU)
    assert on_the_moon.differences(changed) == ("sources",)
    (project / "body.xml").write_text("<mujoco/>")
    assert key_of(workflow_of(), CPU).differences(on_the_moon) == ("sources",)
    assert difference_text("sources", key, changed) == "other source files of pendulum:Pendulum"


def test_the_simulator_is_the_package_that_the_entry_imports(project):
    assert key_of(workflow_of(EXAMPLES / "quickstart.gmi"), CPU).simulator.startswith("mujoco 4.")
    machine = Hardware(cores=8, gpus=(H200,))
    on_gpu = key_of(workflow_of(EXAMPLES / "quickstart.gmi", "h200", machine), machine).simulator
    assert on_gpu.split()[::2] == ["mujoco", "mujoco-warp", "warp-lang"]


def test_a_profile_is_found_in_the_cache_and_beside_the_file(project):
    workflow = workflow_of()
    assert store.look_up(workflow, CPU) == store.Lookup()
    profile = profile_of(workflow)
    cached = store.save_workload(profile)
    assert cached.parent == project / "cache"
    assert store.look_up(workflow_of(train__num_env=512), CPU).valid == store.Stored(path=cached, profile=profile)
    cached.unlink()
    beside = store.save_workload(profile, Path("own_simulator.laptop.profile.json"))
    assert store.look_up(workflow, CPU).valid == store.Stored(path=beside, profile=profile)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', '{"format": 99}', "\0"])
def test_a_damaged_profile_is_as_good_as_none(project, text):
    (project / "own_simulator.profile.json").write_text(text)
    assert store.look_up(workflow_of(), CPU) == store.Lookup()


def test_a_profile_of_another_gpu_is_refused_with_the_fields_named(project):
    old, new = Hardware(cores=8, gpus=(A100,)), Hardware(cores=8, gpus=(H200,))
    workflow = dataclasses.replace(workflow_of(), target=dataclasses.replace(workflow_of().target, device="cuda"))
    before = profile_of(workflow, old)
    store.save_workload(before, project / "own_simulator.profile.json")
    found = store.look_up(workflow, new)
    fields = found.differences
    assert found.valid is None
    assert fields == ("processor", "sm_count", "memory_bytes")
    texts = [difference_text(name, before.key, key_of(workflow, new)) for name in fields]
    assert texts == [
        "a machine with NVIDIA A100-SXM4-80GB, this is NVIDIA H200",
        "SM count 108, this is 132",
        "a GPU of 81920 MiB, this has 143771 MiB",
    ]


@pytest.mark.parametrize("field", ["torch", "simulator", "driver", "cuda", "cores", "gmiflow"])
def test_every_other_field_makes_a_profile_stale_under_its_name(project, field):
    workflow = workflow_of()
    profile = profile_of(workflow)
    other = 64 if field == "cores" else "0.0.1"
    stale = dataclasses.replace(profile, key=dataclasses.replace(profile.key, **{field: other}))
    store.save_workload(stale)
    found = store.look_up(workflow, CPU)
    assert (found.valid, found.differences) == (None, (field,))
    assert difference_text(field, stale.key, profile.key).split(", this is")[0].endswith(str(other))


def test_the_nearest_stale_profile_is_named(project):
    workflow = workflow_of()
    key = key_of(workflow, CPU)
    far = dataclasses.replace(profile_of(workflow), key=dataclasses.replace(key, torch="1.0", cores=64))
    near = dataclasses.replace(profile_of(workflow), key=dataclasses.replace(key, torch="2.0"))
    store.save_workload(far)
    path = store.save_workload(near)
    found = store.look_up(workflow, CPU)
    assert (found.nearest.path, found.differences) == (path, ("torch",))


def test_versions_come_from_files(tmp_path, monkeypatch):
    import torch

    assert versions.version("torch") == torch.__version__
    assert versions.cuda_of_torch() == (torch.version.cuda or "")
    monkeypatch.setattr(versions, "_DRIVER", tmp_path / "version")
    assert versions.driver() == ""
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.01  Release\n")
    assert versions.driver() == "580.159.01"
