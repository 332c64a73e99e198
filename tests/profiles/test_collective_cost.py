"""Expected numbers are worked out by hand from the formulas in the paper, for S bytes and B1 = 1, B2 = 10 bytes/s."""

import pytest

from gmiflow.profiles.collective_cost import Calibration, project

# n = 4, one GMI per GPU: ip = 2 (3/4) S / B1 = 1.5 S, rp = 2 (3/4) S / B2 = 0.15 S; S = 100
FOUR = Calibration(bytes=100, gpus=4, ip_s=150.0, rp_s=15.0, ipc_s={2: 1.0, 3: 2.0})


def seconds(projections, composition, form, k=0):
    return next(p.seconds for p in projections if (p.composition, p.form, p.k) == (composition, form, k))


def test_four_gpus_with_three_gmis_each():
    projections = project(4, 3, FOUR)
    # ip: 2 (11/12) 100 = 183.33; published (12 - 1) / (3 x 3) x 150 is the same number
    assert seconds(projections, "ip", "corrected") == pytest.approx(183.3333, abs=1e-3)
    assert seconds(projections, "ip", "published") == pytest.approx(183.3333, abs=1e-3)
    # rp: a ring of 4 (15 s), then one of 3: 2 (2/3) 100 / 10 = 13.33; published 2 x 15
    assert seconds(projections, "rp", "corrected", 3) == pytest.approx(28.3333, abs=1e-3)
    assert seconds(projections, "rp", "published", 3) == pytest.approx(30.0)
    # hybrid, k = 1: 15 + 2 (P - 1) / P x 100 with P = 4 x 2 + 1 = 9; published (1/4 + 2) 150 + 15
    assert seconds(projections, "hybrid", "corrected", 1) == pytest.approx(15 + 177.7778, abs=1e-3)
    assert seconds(projections, "hybrid", "published", 1) == pytest.approx(352.5)
    # two levels: in, ring, back
    assert seconds(projections, "two_level", "corrected") == pytest.approx(2 + 15 + 2)
    assert projections[0].composition == "two_level"


def test_one_gpu_has_the_host_and_ipc():
    calibration = Calibration(bytes=100, gpus=1, ip_s=100.0, rp_s=None, ipc_s={4: 0.5})
    projections = project(1, 4, calibration)
    assert {p.composition for p in projections} == {"ip", "ipc"}
    assert seconds(projections, "ipc", "corrected") == 0.5
    assert seconds(projections, "ip", "corrected") == pytest.approx(150.0)  # measured with 2 members, (3/4) / (1/2)


def test_what_cannot_be_projected_says_why():
    projections = project(2, 3, Calibration(bytes=100, gpus=2, ip_s=1.0, rp_s=1.0, ipc_s={}))
    reasons = {p.composition: p.reason for p in projections if p.seconds is None}
    assert reasons == {"rp": "3 rings need 3 GPUs", "two_level": "`ipc` was not measured with 3 GMIs"}
    with pytest.raises(ValueError, match="calibration is of 4 GPUs"):
        project(2, 1, FOUR)
