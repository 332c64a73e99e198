"""Profiles carried over to another processor: factors worked out from the data sheets by hand."""

import math
from dataclasses import replace

import pytest

from gmiflow.ir.search import Candidate, Estimate, Point, Search, Verdict
from gmiflow.profiles.projection import project_profile, project_search, projection
from gmiflow.profiles.workload import Measurement, ProfileKey, WorkloadProfile

H200 = ProfileKey(
    device="cuda", processor="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, cores=16, driver="580.159",
    cuda="13.0", torch="2.11.0", simulator="mujoco-warp 4.0", sources={}, workload="w", gmiflow="0.1.0",
)  # fmt: skip
H100 = replace(H200, processor="NVIDIA H100 80GB HBM3", memory_bytes=81559 << 20, driver="")
A100 = replace(H200, processor="NVIDIA A100-SXM4-80GB", sm_count=108, memory_bytes=81920 << 20)
B200 = replace(H200, processor="NVIDIA B200", sm_count=148, memory_bytes=183359 << 20)
CPU = replace(H200, device="cpu", processor="a CPU", sm_count=0, memory_bytes=0, cores=2)

POINT = Point(template="dp_only", gmis=1, num_env=4096, execution="graph", backend="timeshare")
WALL = replace(POINT, num_env=65536)
PROFILE = WorkloadProfile(
    key=H200,
    source="ant.gmi train",
    date="2026-11-29",
    measurements=(
        Measurement(
            point=POINT, status="ok", steps_per_s=2e6, steps_per_s_low=1.9e6, steps_per_s_high=2.1e6, iteration_s=0.032,
            stage_s={"simulate": 0.02, "update": 0.01, "communicate": 0.002}, device_memory_bytes=3 << 30,
        ),
        Measurement(point=WALL, status="out_of_memory"),
    ),
)  # fmt: skip


def test_an_h100_has_the_clock_and_sms_of_an_h200_and_less_bandwidth():
    factor = projection(H200, H100)
    assert factor.low == pytest.approx(3350 / 4800 / 1.1)
    assert factor.high == pytest.approx(1.1)
    assert factor.value == pytest.approx(math.sqrt(3350 / 4800))
    assert "SMs x clock 1.00x" in factor.basis
    assert "bandwidth 0.70x" in factor.basis


def test_an_a100_is_between_its_bandwidth_and_its_clock():
    factor = projection(H200, A100)
    bandwidth, clock, sms = 2039 / 4800, 1410 / 1980, 108 * 1410 / (132 * 1980)
    assert bandwidth < sms < clock
    assert factor.value == pytest.approx(math.sqrt(bandwidth * clock))
    assert (factor.low, factor.high) == pytest.approx((bandwidth / 1.1, clock * 1.1))


def test_there_and_back_is_where_one_was():
    assert projection(H200, A100).value * projection(A100, H200).value == pytest.approx(1.0)


def test_the_same_gpu_is_itself():
    factor = projection(H200, replace(H200, driver="", cores=0))
    assert (factor.value, factor.low, factor.high) == (1.0, 1.0, 1.0)


def test_an_unknown_gpu_goes_by_its_sms_with_wide_bars():
    factor = projection(H200, replace(H200, processor="NVIDIA X1", sm_count=66))
    assert factor.value == pytest.approx(math.sqrt(0.5))
    assert (factor.low, factor.high) == pytest.approx((0.5 / 1.5, 1.5))
    assert "X1 is not in the table" in factor.basis


def test_cores_are_worth_something_between_nothing_and_all():
    factor = projection(CPU, replace(CPU, cores=8))
    assert (factor.value, factor.low, factor.high) == pytest.approx((2.0, 1 / 1.1, 4.4))
    assert projection(CPU, CPU).value == 1.0


def test_a_cpu_says_nothing_of_a_gpu():
    assert projection(CPU, H100) is None
    assert projection(H200, CPU) is None


def test_a_profile_scales_in_speed_and_keeps_memory_and_communication():
    factor = projection(H200, H100)
    there = project_profile(PROFILE, H100, factor)
    measured = there.at(POINT)
    assert there.key == H100
    assert measured.steps_per_s == pytest.approx(2e6 * factor.value)
    assert measured.iteration_s == pytest.approx(0.032 / factor.value)
    assert measured.stage_s["simulate"] == pytest.approx(0.02 / factor.value)
    assert measured.stage_s["communicate"] == 0.002
    assert measured.device_memory_bytes == 3 << 30


def test_what_ran_out_of_memory_still_does_unless_there_is_more():
    assert project_profile(PROFILE, H100, projection(H200, H100)).at(WALL).status == "out_of_memory"
    assert project_profile(PROFILE, B200, projection(H200, B200)).at(WALL) is None


def test_a_projected_search_is_modelled_with_wider_bars():
    factor = projection(H200, H100)

    def estimate(value):
        return Estimate(value=value, low=value * 0.9, high=value * 1.1, origin="measured")

    one = Candidate(
        point=POINT, steps_per_s=estimate(1e6), device_memory=estimate(3e9), host_memory=estimate(1e9),
        iteration=estimate(0.03), terms={"simulate": estimate(0.02), "communicate": estimate(0.002)}, score=1e6,
    )  # fmt: skip
    verdict = Verdict(candidate=one, chosen=True, term="throughput", reason="fastest")
    search = Search(algorithm="improved", objective="throughput", chosen=one, verdicts=(verdict,), unsliced=one)
    there = project_search(search, factor)
    assert there.unsliced is there.chosen is there.verdicts[0].candidate
    speed = there.chosen.steps_per_s
    assert speed.origin == "modelled"
    assert speed.value == 1e6
    assert speed.low == pytest.approx(0.9e6 * factor.low / factor.value)
    assert speed.high == pytest.approx(1.1e6 * factor.high / factor.value)
    term = there.chosen.terms["simulate"]
    assert term.low < 0.018
    assert term.high > 0.022
    assert there.chosen.iteration.high == pytest.approx(0.033 * factor.value / factor.low)
    assert there.chosen.terms["communicate"].low == pytest.approx(0.0018)
    assert {term.origin for term in there.chosen.terms.values()} == {"modelled"}
