"""The kernels of `ipc`, run on CPU threads: results, order of memory accesses, failures."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import emulator
import numpy as np
import pytest
from emulator import Call, Group, aligned

from gmiflow.runtime.comm.collectives import ipc_layout as layout

HALF = 4096
REDUCE = {"sum": np.sum, "max": np.max, "min": np.min}


def random_calls(members, count, seed):
    """Calls of random length, type, operation and algorithm, and what each must give, in float64."""
    random = np.random.default_rng(seed)
    calls, expected = [], []
    for _ in range(count):
        length = int(random.integers(1, 2 * HALF // 4 + 3))  # up to more than two launches, with tails
        dtype = random.choice(["float32", "float64", "int32", "int64"])
        op = str(random.choice(list(REDUCE)))
        arrays = [aligned((random.standard_normal(length) * 100).astype(dtype)) for _ in range(members)]
        expected.append(REDUCE[op](np.stack(arrays).astype(np.float64), 0))
        calls.append(Call(arrays, op, one_shot_bytes=int(random.choice([0, 512, HALF]))))
    return calls, expected


@pytest.mark.parametrize("members", [2, 3, 4, 7])
def test_reductions_equal_float64_on_all_members_under_random_delays(kernels, members):
    calls, expected = random_calls(members, 40, seed=members)
    group = Group(kernels(members), members, HALF, ctas=2)
    group.run(calls, delays_us=200)
    assert [group.failure(rank) for rank in range(members)] == [None] * members
    for call, want in zip(calls, expected, strict=True):
        for got in call.arrays:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
            assert got.tobytes() == call.arrays[0].tobytes()


def test_a_thousand_calls_keep_their_epochs(kernels):
    group = Group(kernels(3), 3, HALF, ctas=2)
    arrays = [aligned(np.array([rank + 1, 10 * (rank + 1), 5], np.int64)) for rank in range(3)]
    # sum, then max: 6 60 15 after the first pair; every further pair triples
    calls = [Call(arrays, "sum" if turn % 2 == 0 else "max", one_shot_bytes=HALF * (turn % 3)) for turn in range(20)]
    group.run(calls)
    assert arrays[1].tolist() == [6 * 3**9, 60 * 3**9, 15 * 3**9]
    for _ in range(49):
        for array in arrays:
            array[:] = 1
        group.run(calls)
        assert [array.tolist() for array in arrays] == [[3**10] * 3] * 3
    assert group.states[0][layout.CALLS] == 1000


def test_nan_wins_in_max_and_min(kernels):
    group = Group(kernels(2), 2, HALF)
    for op in ("max", "min"):
        for one_shot_bytes in (0, HALF):
            values = [np.full(21, 1.0, np.float32), np.full(21, 2.0, np.float32)]
            values[0][3], values[1][7], values[0][20] = np.nan, np.nan, np.nan
            arrays = [aligned(value) for value in values]
            group.run([Call(arrays, op, one_shot_bytes=one_shot_bytes)])
            for array in arrays:
                assert np.flatnonzero(np.isnan(array)).tolist() == [3, 7, 20]
                assert array[0] == (2.0 if op == "max" else 1.0)


def test_broadcast_moves_bytes_of_any_count(kernels):
    group = Group(kernels(3), 3, HALF)
    calls = []
    for root in range(3):
        for count in (1, 15, 16, 17, 4095, 9001):
            calls.append(Call([aligned(np.full(count, 40 + r, np.uint8)) for r in range(3)], broadcast=True, root=root))
    group.run(calls, delays_us=100)
    for call in calls:
        assert all((array == 40 + call.root).all() for array in call.arrays)


def test_reduce_gives_the_result_to_the_root_alone(kernels):
    group = Group(kernels(3), 3, HALF)
    for one_shot_bytes in (0, HALF):
        arrays = [aligned(np.full(301, rank + 1.0)) for rank in range(3)]
        group.run([Call(arrays, root=1, one_shot_bytes=one_shot_bytes)])
        assert (arrays[1] == 6).all() and (arrays[0] == 1).all() and (arrays[2] == 3).all()


def test_phases_with_meetings_of_the_hosts_between_them(kernels):
    group = Group(kernels(3), 3, HALF)
    for algorithm, one_shot_bytes in ((layout.TWO_SHOT, 0), (layout.ONE_SHOT, HALF)):
        for _ in range(4):
            arrays = [aligned(np.arange(501, dtype=np.float32) * (rank + 1)) for rank in range(3)]
            for phases in layout.host_phases(algorithm):  # `run` returns when all members have ended
                group.run([Call(arrays, one_shot_bytes=one_shot_bytes, phases=phases)])
            assert all((array == np.arange(501) * 6).all() for array in arrays)


@pytest.mark.parametrize("one_shot_bytes", [0, HALF])
def test_a_member_that_does_not_come_is_named_by_all_others(kernels, one_shot_bytes):
    group = Group(kernels(4), 4, HALF)
    arrays = [aligned(np.ones(100, np.float32)) for _ in range(4)]
    group.run([Call(arrays)])
    group.timeout_ns = 2 * 10**9
    group.run([Call(arrays, one_shot_bytes=one_shot_bytes, missing=(2,))])
    for rank in (0, 1, 3):
        failure = group.failure(rank)
        assert failure is not None and failure.failure.code == "E0705"
        assert "GMI 12 did not come to the collective test.group" in str(failure)
    assert group.failure(2) is None

    group.run([Call(arrays)])  # the late one is told, and nobody waits again
    assert "gave up waiting for this GMI in the collective test.group" in str(group.failure(2))


SANITIZED = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from test_ipc_kernels import HALF, Group, random_calls
calls, _ = random_calls(3, 12, 5)
for library in sys.argv[2:]:
    print("== library", file=sys.stderr, flush=True)
    Group(ctypes.CDLL(library), 3, HALF, ctas=2).run(calls, delays_us=200)
"""
MUTATIONS = {
    "none": ("", ""),
    "one half for all calls": ("(call & 1) * a.half_bytes", "0 * a.half_bytes"),
    "no second meeting": ("if (!meet(a, call, 1)) return;", ""),
    "unordered flags": ("std::memory_order_release", "std::memory_order_relaxed"),
}


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """What the thread sanitizer says of each mutation, from one process, and the exit code of that."""
    runtime = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_absolute() or shutil.which("setarch") is None:
        pytest.skip("no thread sanitizer on this machine")
    original = emulator.kernel_source()
    libraries = []
    for before, after in MUTATIONS.values():
        assert before in original
        source = original.replace(before, after) if before else original
        folder = tmp_path_factory.mktemp("sanitized")
        libraries.append(emulator.build(folder, 3, "-fsanitize=thread", "-g", source=source))
    command = ["setarch", "-R", sys.executable, "-c", SANITIZED, str(Path(__file__).parent), *map(str, libraries)]
    environment = {**os.environ, "LD_PRELOAD": runtime, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    _, *said = result.stderr.split("== library\n")
    return dict(zip(MUTATIONS, said, strict=True)), result.returncode


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_thread_sanitizer_finds_no_race_and_would_find_one(sanitized, mutation):
    said, code = sanitized
    races = said[mutation].count("WARNING: ThreadSanitizer: data race")
    assert (races == 0) == (mutation == "none"), said[mutation][-3000:]
    assert code == 66, "what the sanitizer ends a process with in which it found races"


@pytest.mark.parametrize("members", [2, 5, 48])
def test_the_kernels_compile_for_hopper(tmp_path, members):
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    source = tmp_path / "kernels.cu"
    source.write_text(layout.kernel_source())
    constants = [f"-D{name}={value}" for name, value in layout.kernel_constants(members).items()]
    command = ["nvcc", "-arch=sm_90", "-std=c++17", "-cubin", "-Xptxas", "-v", *constants, "-o", str(tmp_path / "o")]
    result = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("Compiling entry function") == 5
    assert "spill" not in result.stderr or result.stderr.count("0 bytes spill stores") == 5
