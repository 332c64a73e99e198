"""Times between and beyond measurements; expected numbers are worked out by hand."""

import json
import os

import pytest

from gmiflow.cache import user_cache
from gmiflow.hardware import GPU, Hardware
from gmiflow.profiles import store
from gmiflow.profiles.calibration import CollectiveProfile, Curve, built_in
from gmiflow.profiles.candidates import candidates
from gmiflow.syntax import tables

H200 = GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
MACHINE = Hardware(cores=4, gpus=(H200,))


def curve(collective="ipc", gpus=1, gmis=4, points=((1000, 1e-5), (100_000, 1e-3))):
    return Curve(collective=collective, gpus=gpus, gmis_per_gpu=gmis, points=points)


def profile(*curves, origin="measured"):
    return CollectiveProfile(machine="a test", origin=origin, date="2026-11-29", curves=curves)


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (1000, 1e-5),
        (100_000, 1e-3),
        (10_000, 1e-4),  # halfway in logarithms of both
        (10, 1e-5),  # latency
        (1_000_000, 1e-2),  # bandwidth
    ],
)
def test_between_sizes_and_beyond_them(size, seconds):
    assert curve().seconds(size) == pytest.approx(seconds)


def test_other_numbers_of_members_are_scaled_by_their_traffic():
    known = profile(curve("ip", gmis=2, points=((1000, 6e-6),)), curve("ipc", gmis=4, points=((1000, 9e-6),)))
    # ip: 2 (p - 1) / p is 1 for two and 3/2 for four; ipc: 2 (p - 1) bytes in one memory, 1/3 for two instead of four
    assert known.host_s(4, 1000) == pytest.approx(9e-6)
    assert known.inside_s(2, 1000) == pytest.approx(3e-6)
    assert known.ring_s(2, 1000) is None


def test_what_was_measured_on_the_layout_is_marked_so():
    known = profile(curve("ip", gmis=2, points=((1000, 8e-5),)), curve("ipc", gmis=4, points=((1000, 1e-5),)))
    found = {item.name: item for item in candidates(1, 4, 1000, known)}
    assert (found["ipc"].corrected_s, found["ipc"].origin) == (1e-5, "measured")
    assert found["ip"].corrected_s == pytest.approx(8e-5 * 1.5)
    assert found["ip"].origin == "modelled"
    assert found["local"].origin == "modelled"
    assert [item.name for item in candidates(1, 4, 1000, known)][-1] == "ip"


def test_a_measured_composition_beats_its_projection():
    parts = [curve("ip", 2, 1), curve("rp", 2, 1), curve("ipc", 1, 2)]
    modelled = {item.name: item for item in candidates(2, 2, 1000, profile(*parts))}
    assert modelled["two_level"].corrected_s == pytest.approx(3e-5)  # in, across, back
    known = profile(*parts, curve("two_level", 2, 2, ((1000, 2e-5),)))
    measured = {item.name: item for item in candidates(2, 2, 1000, known)}
    assert (measured["two_level"].corrected_s, measured["two_level"].origin) == (2e-5, "measured")
    assert {"hybrid, k = 1", "rp", "ip"} <= measured.keys()


def test_the_h200s_numbers_are_built_in():
    found = {item.name: item for item in candidates(1, 4, 1 << 20, built_in("cuda", "NVIDIA H200"))}
    assert found["ipc"].corrected_s == pytest.approx(22.1e-6)
    assert found["ip"].corrected_s == pytest.approx(631e-6)
    assert {item.origin for item in found.values()} == {"modelled"}
    assert "taken for NVIDIA L4" in built_in("cuda", "NVIDIA L4").machine


def test_a_profile_is_kept_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "profiles"))
    assert store.load_collectives(MACHINE, "cuda") is None
    written = profile(curve())
    path = store.save_collectives(MACHINE, "cuda", written)
    assert path.parent == tmp_path / "profiles"
    assert store.load_collectives(MACHINE, "cuda") == written
    assert store.collectives_for(MACHINE, "cuda", "H200", 1) == written
    # another device, another GPU, more GPUs than there are, another machine: not this measurement
    assert store.load_collectives(MACHINE, "cpu") is None
    assert store.collectives_for(MACHINE, "cuda", "NVIDIA L4", 1).origin == "modelled"
    assert store.collectives_for(MACHINE, "cuda", "H200", 2).origin == "modelled"
    assert store.load_collectives(Hardware(cores=5, gpus=(H200,)), "cuda") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"format": 0}), json.dumps({"format": 1, "curves": [1]})])
def test_a_damaged_profile_is_none(tmp_path, monkeypatch, text):
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    store.path_of(MACHINE, "cpu").write_text(text)
    assert store.load_collectives(MACHINE, "cpu") is None


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv(store.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.folder() == tmp_path / "gmiflow" / "profiles"


def test_a_user_without_a_home_has_profiles_among_the_temporary_files(monkeypatch, tmp_path):
    """As in a container that runs under a number of its own."""

    def nobody(number):
        raise KeyError(number)

    for name in (store.FOLDER_VARIABLE, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert user_cache() is None
    assert store.folder() == tmp_path / f"gmiflow-cache-{os.getuid()}" / "profiles"
    assert tables.load().parse("edition 1\n", start="start")  # without a cache of its tables
