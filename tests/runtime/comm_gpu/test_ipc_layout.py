import pytest

from gmiflow.runtime.comm.collectives import ipc_layout as layout
from gmiflow.runtime.comm.collectives.ipc_layout import ONE_SHOT, TWO_SHOT, Step

MIB = 1 << 20


@pytest.mark.parametrize(
    ("elements", "item_bytes", "expected"),
    [
        (1, 4, [Step(0, 1, 1, ONE_SHOT)]),
        (65_536, 4, [Step(0, 65_536, 32, ONE_SHOT)]),  # 256 KiB are 16,384 packs: more than 32 x 256 threads
        (65_537, 4, [Step(0, 65_537, 17, TWO_SHOT)]),  # 16,385 packs, 4,097 in a shard, 17 blocks of 256
        (3 * MIB, 8, [Step(0, 2 * MIB, 32, TWO_SHOT), Step(2 * MIB, MIB, 32, TWO_SHOT)]),  # 16 MiB each at most
        (0, 4, []),
    ],
)
def test_schedule(elements, item_bytes, expected):
    steps = layout.schedule(elements, item_bytes, members=4, half_bytes=16 * MIB, max_ctas=32, one_shot_bytes=256 << 10)
    assert list(steps) == expected


def test_waiting_blocks_fit_the_gpu_together_wherever_mps_puts_them():
    assert layout.resident_ctas(sm_count=32, ctas_per_sm=4, members=4, limit=64) == 32
    assert layout.resident_ctas(sm_count=16, ctas_per_sm=4, members=8, limit=64) == 8
    assert layout.resident_ctas(sm_count=2, ctas_per_sm=4, members=48, limit=64) == 0
    assert layout.resident_ctas(sm_count=132, ctas_per_sm=4, members=2, limit=64) == 64


def test_the_slab_has_room_for_flags_and_two_halves():
    assert layout.DATA_OFFSET == 8192 + 64 * 64 * 8
    assert layout.slab_bytes(16 * MIB) == 34 * MIB
    assert layout.DATA_OFFSET % 128 == 0


def test_reports():
    assert layout.report_failure("g", [5, 6], 0, [0] * 8) is None
    late = layout.report_failure("g", [5, 6], 0, [1, 7, 1, 0, 1, 3, TWO_SHOT, 0])
    assert str(late) == "GMI 6 did not come to the collective g in time"
    assert late.failure.notes == ("launch 7 of the collective, meeting 1, block 3, two-shot, operation 0",)
    told = layout.report_failure("g", [5, 6, 7], 0, [2, 7, 1, 2, 0, 0, ONE_SHOT, 0])
    assert str(told) == "GMI 7 reported that GMI 6 did not come to the collective g"
