"""`rp` (with gloo in NCCL's place) and the two-level compositions; members are threads."""

import os
import threading
from datetime import timedelta

import numpy as np
import pytest
import torch

from gmiflow.runtime.comm.collectives.exchange import HostExchange
from gmiflow.runtime.comm.collectives.hybrid import (
    HybridCollective,
    Levels,
    connect_rings,
    paper_layout,
    two_level_layout,
)
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.comm.collectives.rp import RingCollective, multi_rank_enabled, multi_rank_environment
from gmiflow.runtime.failure import GMIError

CPU = torch.device("cpu")
TWO_BY_THREE = ["a", "a", "a", "b", "b", "b"]


def together(size, work):
    results = [None] * size

    def run(rank):
        try:
            results[rank] = work(rank)
        except Exception as failure:
            results[rank] = failure

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, GMIError):
            raise result
    return results


def test_two_level_layout_has_one_leader_per_gpu():
    assert two_level_layout(TWO_BY_THREE) == Levels(((0, 1, 2), (3, 4, 5)), (0, 3), (0, 3))
    assert two_level_layout(["a", "b", "a"]) == Levels(((0, 2),), (0,), (0, 1))  # uneven, interleaved
    assert two_level_layout(["a", "a"]) == Levels(((0, 1),), (0,), (0,))
    assert two_level_layout(["a", "b"]) == Levels((), (), (0, 1))


def test_paper_layout_has_k_rings_with_leaders_on_different_gpus():
    assert paper_layout(TWO_BY_THREE, 0) == Levels((), (), (0, 1, 2, 3, 4, 5))
    assert paper_layout(TWO_BY_THREE, 1) == Levels(((0, 3),), (0,), (0, 1, 2, 4, 5))
    assert paper_layout(TWO_BY_THREE, 2) == Levels(((0, 3), (1, 4)), (0, 4), (0, 2, 4, 5))
    with pytest.raises(ValueError, match="k is 4"):
        paper_layout(TWO_BY_THREE, 4)
    with pytest.raises(ValueError, match="same number"):
        paper_layout(["a", "a", "b"], 1)


@pytest.mark.parametrize(
    "levels",
    [two_level_layout(TWO_BY_THREE), two_level_layout(["a", "b", "b", "c", "d", "d"]), paper_layout(TWO_BY_THREE, 1),
     paper_layout(TWO_BY_THREE, 3)],
    ids=["two-level", "uneven", "paper k=1", "paper k=m"],
)  # fmt: skip
def test_compositions_reduce_and_broadcast_like_one_group(tmp_path, levels):
    def ring(name, ranks, rank):
        return RingCollective(name, ranks, ranks.index(rank), CPU, tmp_path / f"{name}{ranks[0]}", timeout_s=120)

    def work(rank):
        group = levels.inner_of(rank)
        inner = ring("inner", group, rank) if group else None
        upper = ring("upper", levels.upper, rank) if rank in levels.upper else None
        whole = HybridCollective("train.gradient", tuple(range(10, 16)), rank, levels, inner, upper)
        seen = []
        for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
            flat = torch.arange(101).to(dtype) * (rank + 1)
            whole.all_reduce(flat)
            seen.append(flat.double().numpy())
        flat = torch.tensor([rank, -rank])
        whole.all_reduce(flat, "min")
        seen.append(flat.double().numpy())
        for root in range(6):
            flat = torch.tensor([float(rank)])
            whole.broadcast(flat, root)
            seen.append(flat.double().numpy())
        whole.barrier()
        whole.close()
        return np.concatenate(seen)

    expected = np.concatenate([np.tile(np.arange(101) * 21.0, 4), [0, -5], np.arange(6)])
    for result in together(6, work):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("rings", [1, 2])
def test_the_papers_compositions_are_joined_from_where_the_members_are(tmp_path, rings):
    """Two GPUs with two GMIs each; with as many rings as that the results go through a ring, else through the host."""
    hosts = {
        ranks: LocalGroup(str(ranks), ranks, 120.0) for ranks in [(0, 1, 2, 3), *([(0, 1, 3)] if rings == 1 else [])]
    }

    def work(rank):
        def host(ranks):
            return hosts[ranks].member(ranks.index(rank))

        whole = connect_rings(
            "train.gradient", (4, 5, 6, 7), rank, CPU, rings, host, host, tmp_path.joinpath, timeout_s=120,
            place="ab"[rank // 2],
        )  # fmt: skip
        flat = torch.arange(33.0) * 10**rank
        whole.all_reduce(flat)
        whole.close()
        return flat.numpy()

    for result in together(4, work):
        np.testing.assert_array_equal(result, np.arange(33.0) * 1111)
    levels = paper_layout(["a", "a", "b", "b"], rings)
    assert levels.upper == ((0, 1, 3) if rings == 1 else (0, 3))


def test_several_members_of_a_gpu_are_admitted_by_a_new_nccl_only(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 28, 9))
    with pytest.raises(GMIError, match=r"NCCL 2\.28\.9 takes one; NCCL 2\.30 and newer can"):
        RingCollective("g", (4, 9), 0, CPU, tmp_path / "store", uuids=["x", "x"], several_per_gpu=True)
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 30, 7))
    for name in ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_MAX_CTAS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "what was set")

    def work(rank):
        ring = RingCollective(
            "g", (4, 9), rank, CPU, tmp_path / "other", uuids=["x", "x"], several_per_gpu=True, timeout_s=120
        )
        ring.close()

    together(2, work)
    seen = [os.environ[f"NCCL_{name}"] for name in ("MULTI_RANK_GPU_ENABLE", "MAX_CTAS", "NVLS_ENABLE")]
    assert seen == ["1", "8", "what was set"]
    for name in ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_MAX_CTAS"):
        monkeypatch.delenv(name)


def test_a_member_that_leaves_a_ring_is_an_error_of_ours(tmp_path):
    def work(rank):
        ring = RingCollective("train.gradient", (7, 8), rank, CPU, tmp_path / "store", timeout_s=120)
        if rank == 0:
            ring._group._set_default_timeout(timedelta(seconds=1))  # both have come: now it may be short
            ring.all_reduce(torch.ones(4))
        return ring

    failure, _ = together(2, work)
    assert isinstance(failure, GMIError) and failure.failure.code in ("E0704", "E0705")
    assert "GMI 8" in str(failure) and "train.gradient" in str(failure)


def test_two_members_on_one_gpu_are_refused_unless_nccl_admits_them(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 28, 9))
    with pytest.raises(GMIError, match="GMI 4, GMI 9 of g share a GPU"):
        RingCollective("g", (4, 5, 9), 0, CPU, tmp_path / "store", uuids=["x", "y", "x"])
    assert multi_rank_environment((2, 28, 9)) is None
    environment = multi_rank_environment((2, 30, 7))
    assert environment is not None and environment["NCCL_NVLS_ENABLE"] == "0"
    assert multi_rank_enabled((2, 30, 7), environment) and not multi_rank_enabled((2, 30, 7), {})


def test_exchange_carries_messages_in_rank_order():
    group = LocalGroup("host", (0, 1, 2), 120.0)

    def work(rank):
        exchange = HostExchange(group.member(rank))
        got = exchange.gather({"rank": rank, "bytes": "ff" * 64, "word": "ünï"})
        exchange.barrier()
        return got

    for got in together(3, work):
        assert got == [{"rank": rank, "bytes": "ff" * 64, "word": "ünï"} for rank in range(3)]


def test_exchange_refuses_what_does_not_fit():
    exchange = HostExchange(LocalGroup("host", (0,)).member(0))
    with pytest.raises(GMIError, match="too long"):
        exchange.gather({"word": "x" * 3000})
