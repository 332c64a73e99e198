"""MIG: choosing among existing instances, and the commands that are only ever printed."""

import pytest
from gpus import gmi, gpu, hardware

from gmiflow.runtime.failure import LAUNCH_FAILED, GMIError
from gmiflow.runtime.gmi.mig import MIGBackend, choose_instances, unfit
from gmiflow.runtime.gmi.mig_geometry import (
    MIGInstance,
    MIGProfile,
    MIGState,
    even_geometry,
    geometry_commands,
    geometry_problem,
    read_mig,
)

PROFILES = tuple(
    MIGProfile(id=number, name=name, sm_count=sms, memory_mib=memory, slices=slices, most=most)
    for number, name, sms, memory, slices, most in (
        (19, "1g.18gb", 16, 16_384, 1, 7),
        (15, "1g.35gb", 16, 33_792, 1, 4),
        (14, "2g.35gb", 32, 33_792, 2, 3),
        (9, "3g.71gb", 60, 71_424, 3, 2),
        (5, "4g.71gb", 64, 71_424, 4, 1),
        (0, "7g.141gb", 132, 143_104, 7, 1),
    )
)


def instance(number, slices, memory_mib):
    return MIGInstance(
        uuid=f"MIG-{number}", gpu_uuid="GPU-0", sm_count=16 * slices, memory_mib=memory_mib, slices=slices
    )


def state(*instances, enabled=True):
    return MIGState(index=3, uuid="GPU-0", supported=True, enabled=enabled, instances=instances, profiles=PROFILES)


SEVEN = state(*(instance(number, 1, 16_384) for number in range(7)))
MIXED = state(instance(0, 1, 16_384), instance(1, 2, 33_792), instance(2, 4, 71_424))


def chosen(gmis, where):
    result = choose_instances(gmis, where)
    return None if result is None else {number: found.uuid for number, found in result.items()}


def test_every_gmi_gets_an_instance_of_its_own():
    gmis = [gmi(index, backend="mig", share=1 / 7) for index in range(7)]
    assert len(set(chosen(gmis, SEVEN).values())) == 7


def test_the_smallest_instance_that_is_large_enough_is_taken():
    gmis = [gmi(0, share=0.1), gmi(1, share=0.55), gmi(2, share=0.25)]
    assert chosen(gmis, MIXED) == {0: "MIG-0", 1: "MIG-2", 2: "MIG-1"}


def test_memory_counts_too():
    assert chosen([gmi(0, share=0.1, memory_mib=20_000)], MIXED) == {0: "MIG-1"}


def test_what_does_not_fit_is_not_squeezed_in():
    assert chosen([gmi(0, share=0.25)], SEVEN) is None
    assert chosen([gmi(index, share=0.1) for index in range(8)], SEVEN) is None


def test_commands_switch_the_mode_on_only_when_it_is_off():
    assert geometry_commands(state(enabled=False), ["3g.71gb", "3g.71gb"]) == (
        "nvidia-smi -i 3 -mig 1",
        "nvidia-smi mig -i 3 -cgi 9,9 -C",
    )
    assert geometry_commands(SEVEN, ["2g.35gb", "1g.18gb"]) == (
        "nvidia-smi mig -i 3 -dci",
        "nvidia-smi mig -i 3 -dgi",
        "nvidia-smi mig -i 3 -cgi 14,19 -C",
    )


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["1g.20gb"], "no profile 1g.20gb"),
        (["3g.71gb"] * 3, "at most 2 fit"),
        (["4g.71gb", "3g.71gb", "1g.18gb"], "8 slices, but the GPU has 7"),
    ],
)
def test_impossible_geometries_are_refused(wanted, words):
    assert words in geometry_problem(SEVEN, wanted)
    with pytest.raises(ValueError, match=words):
        geometry_commands(SEVEN, wanted)


def test_an_even_cut_takes_the_largest_profile_that_fits():
    assert even_geometry(SEVEN, 1) == ("7g.141gb",)
    assert even_geometry(SEVEN, 2) == ("3g.71gb", "3g.71gb")
    assert even_geometry(SEVEN, 3) == ("2g.35gb",) * 3
    assert even_geometry(SEVEN, 4) == ("1g.35gb",) * 4
    assert even_geometry(SEVEN, 7) == ("1g.18gb",) * 7
    assert even_geometry(SEVEN, 7, memory_mib=20_000) == ()
    assert even_geometry(SEVEN, 8) == ()


def test_the_error_prints_the_administrators_commands_and_runs_none():
    failure = unfit(0, state(enabled=False), [gmi(0), gmi(1)]).failure
    assert failure.code == LAUNCH_FAILED
    assert "MIG mode is off on GPU 0" in failure.notes
    assert "    nvidia-smi mig -i 3 -cgi 9,9 -C" in failure.notes


def test_without_a_driver_there_is_no_mig(monkeypatch, tmp_path):
    monkeypatch.setattr("gmiflow.runtime.gmi.gpu.detect", lambda: hardware(gpu(0)))
    with pytest.raises(GMIError):  # no GPU of that name, or none with MIG
        MIGBackend().prepare([gmi(0, backend="mig")], tmp_path)


@pytest.mark.gpu
def test_geometry_is_read_from_the_gpu():
    from gmiflow.hardware import detect

    found = read_mig(detect().gpus[0].uuid)
    assert found is not None
    if found.supported and found.profiles:
        assert found.slices == max(profile.slices for profile in found.profiles)
        assert all(profile.sm_count > 0 and profile.memory_mib > 0 for profile in found.profiles)
