"""Splitting SMs among green contexts: the arithmetic anywhere, the split itself on a GPU."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmiflow.runtime.gmi.green import GreenBackend, GreenPartition, minimum_group, share_groups


@pytest.mark.parametrize(
    ("groups", "shares", "expected"),
    [
        (16, [0.25] * 4, (4, 4, 4, 4)),
        (16, [0.5, 0.25, 0.25], (8, 4, 4)),
        (16, [1 / 3] * 3, (6, 5, 5)),  # 5.33 each; the group that is left goes to the first
        (16, [0.5, 0.3], (8, 4)),  # 12.8 groups asked for: the rest of the device stays free
        (16, [0.65, 0.35], (10, 6)),  # 10.4 and 5.6
        (16, [0.98, 0.01, 0.01], (14, 1, 1)),  # too small a part is rounded up at the expense of the largest
        (16, [1.0], (16,)),
    ],
)
def test_groups_follow_shares(groups, shares, expected):
    assert share_groups(groups, shares) == expected


@pytest.mark.parametrize("shares", [[0.6, 0.6], [0.5, 0.0], [1 / 17] * 17])
def test_shares_that_do_not_fit_are_refused(shares):
    with pytest.raises(ValueError):
        share_groups(16, shares)


@given(st.integers(4, 64), st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_parts_never_exceed_the_device_and_none_is_empty(groups, weights):
    shares = [weight / sum(weights) for weight in weights]
    parts = share_groups(groups, shares)
    assert sum(parts) == groups
    assert min(parts) >= 1


def test_groups_of_eight_from_hopper_on():
    assert [minimum_group(capability) for capability in ((7, 5), (8, 0), (9, 0), (10, 0))] == [2, 4, 8, 8]


SMID = """
extern "C" __global__ void record(int* seen, int ticks) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long start = clock64();
    while (clock64() - start < ticks) {}
    if (threadIdx.x == 0) atomicAdd(seen + sm, 1);
}
"""


def used_sms(stream):
    """The SMs that blocks of a kernel ran on: enough of them, and long enough, to fill every SM."""
    import torch
    from cuda.bindings import driver, nvrtc

    def call(answer):
        code, *results = answer
        assert int(code) == 0, code
        return results[0] if len(results) == 1 else results

    major, minor = torch.cuda.get_device_capability()
    program = call(nvrtc.nvrtcCreateProgram(SMID.encode(), b"record.cu", 0, [], []))
    call(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()]))
    code = b" " * call(nvrtc.nvrtcGetCUBINSize(program))
    call(nvrtc.nvrtcGetCUBIN(program, code))
    library = call(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))  # belongs to no context
    kernel = driver.CUfunction(int(call(driver.cuLibraryGetKernel(library, b"record"))))
    seen = torch.zeros(256, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    arguments = ((seen.data_ptr(), 20_000), (ctypes.c_void_p, ctypes.c_int))
    call(driver.cuLaunchKernel(kernel, 4096, 1, 1, 256, 1, 1, 0, stream.cuda_stream, arguments, 0))
    torch.cuda.synchronize()
    return set(seen.nonzero().flatten().tolist())


@pytest.mark.gpu
def test_parts_are_disjoint_sets_of_sms():
    import torch

    partition = GreenPartition([0.5, 0.25, 0.25])
    try:
        used = [used_sms(part.make_stream()) for part in partition.parts]
        assert [len(sms) for sms in used] == [part.sm_count for part in partition.parts]
        assert len(set.union(*used)) == sum(map(len, used))
        groups = torch.cuda.get_device_properties(0).multi_processor_count // partition.group_sms
        smallest = min(share_groups(groups, [0.5, 0.25, 0.25]))
        assert min(part.sm_count for part in partition.parts) >= (smallest - 1) * partition.group_sms
        assert partition.parts[0].sm_count > partition.parts[1].sm_count == partition.parts[2].sm_count
    finally:
        partition.close()


@pytest.mark.gpu
def test_the_backend_opens_proves_and_releases(tmp_path):
    from gpus import gmi

    gmis = [gmi(index, backend="green", share=0.25) for index in range(4)]
    backend = GreenBackend()
    backend.prepare(gmis, tmp_path)
    parts = backend.open(gmis)
    proofs = [backend.prove(one) for one in gmis]
    assert [proof["sm_count"] for proof in proofs] == [part.sm_count for part in parts.values()]
    spread = max(proof["sm_count"] for proof in proofs) - min(proof["sm_count"] for proof in proofs)
    assert spread <= proofs[0]["group_sms"]
    backend.release()
