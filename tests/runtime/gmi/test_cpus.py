"""Assignment of CPUs on machines made up for the purpose; expected sets were worked out by hand."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmiflow.runtime.gmi.cpus import Core, CPUDemand, Topology, assign_cpus, gpu_node, parse_cpu_list, read_topology

LAPTOP = Topology(cores=(Core(cpus=(0, 2)), Core(cpus=(1, 3))), distances={})
"""Two cores with two hardware threads each."""

SERVER = Topology(
    cores=tuple(Core(cpus=(i, i + 8), node=i // 4) for i in range(8)),
    distances={(0, 1): 21, (1, 0): 21},
)
"""Two sockets of four cores, two hardware threads each."""


def demands(*pairs):
    return [CPUDemand(cores=cores, node=node) for cores, node in pairs]


def test_gmis_get_whole_cores_of_their_own():
    assert assign_cpus(LAPTOP, demands((1, None), (1, None))) == ((0, 2), (1, 3))


def test_more_gmis_than_cores_share_evenly():
    given_cpus = assign_cpus(LAPTOP, demands(*[(1, None)] * 4))
    assert given_cpus == ((0, 2), (1, 3), (0, 2), (1, 3))


def test_a_demand_above_the_machine_gets_all_of_it():
    assert assign_cpus(LAPTOP, demands((16, None))) == ((0, 1, 2, 3),)


def test_cores_near_the_gpu_come_first():
    near_second, near_first = assign_cpus(SERVER, demands((2, 1), (2, 0)))
    assert near_second == (4, 5, 12, 13)
    assert near_first == (0, 1, 8, 9)


def test_free_cores_of_another_node_beat_shared_cores_of_the_near_one():
    first, second = assign_cpus(SERVER, demands((3, 1), (2, 1)))
    assert first == (4, 5, 6, 12, 13, 14)
    assert second == (0, 7, 8, 15)


def test_who_has_a_gpu_chooses_before_who_has_none():
    anywhere, with_gpu = assign_cpus(SERVER, demands((4, None), (4, 0)))
    assert with_gpu == (0, 1, 2, 3, 8, 9, 10, 11)
    assert anywhere == (4, 5, 6, 7, 12, 13, 14, 15)


def test_without_a_gpu_a_gmi_is_not_split_over_nodes_needlessly():
    first, second = assign_cpus(SERVER, demands((3, None), (3, None)))
    assert first == (0, 1, 2, 8, 9, 10)
    assert second == (4, 5, 6, 12, 13, 14)


def test_the_nearer_of_two_other_nodes_is_preferred():
    ring = Topology(
        cores=tuple(Core(cpus=(i,), node=i) for i in range(3)),
        distances={(0, 1): 32, (0, 2): 16},
    )
    assert assign_cpus(ring, demands((2, 0))) == ((0, 2),)


@given(
    cores=st.integers(1, 24),
    nodes=st.integers(1, 4),
    wanted=st.lists(st.tuples(st.integers(1, 8), st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=12),
)
def test_every_gmi_gets_its_number_and_sharing_is_even(cores, nodes, wanted):
    topology = Topology(cores=tuple(Core(cpus=(i,), node=i % nodes) for i in range(cores)), distances={})
    result = assign_cpus(topology, demands(*wanted))
    assert [len(cpus) for cpus in result] == [min(count, cores) for count, _ in wanted]
    assert all(len(set(cpus)) == len(cpus) for cpus in result)
    users = [sum(core in cpus for cpus in result) for core in range(cores)]
    assert max(users) - min(users) <= 1


def make_sysfs(root, siblings, nodes, distances):
    for cpu, text in siblings.items():
        directory = root / f"devices/system/cpu/cpu{cpu}/topology"
        directory.mkdir(parents=True)
        (directory / "thread_siblings_list").write_text(text + "\n")
    for node, cpus in nodes.items():
        directory = root / f"devices/system/node/node{node}"
        directory.mkdir(parents=True)
        (directory / "cpulist").write_text(cpus + "\n")
        (directory / "distance").write_text(distances[node] + "\n")


def test_topology_is_read_from_sysfs_within_the_affinity(tmp_path):
    make_sysfs(
        tmp_path,
        siblings={0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"},
        nodes={0: "0-1,4-5", 1: "2-3,6-7"},
        distances={0: "10 21", 1: "21 10"},
    )
    topology = read_topology([0, 1, 2, 4, 7], tmp_path)
    assert topology.cores == (
        Core(cpus=(0, 4), node=0),
        Core(cpus=(1,), node=0),
        Core(cpus=(2,), node=1),
        Core(cpus=(7,), node=1),
    )
    assert topology.distance(0, 1) == 21
    assert topology.distance(1, 1) == 10


def test_a_machine_without_sysfs_still_has_its_cpus(tmp_path):
    assert read_topology([3, 5], tmp_path).cores == (Core(cpus=(3,)), Core(cpus=(5,)))


def test_this_machine_is_covered_exactly():
    topology = read_topology()
    assert sorted(cpu for core in topology.cores for cpu in core.cpus) == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(("text", "node"), [("1", 1), ("-1", None)])
def test_gpu_node_reads_nvml_bus_ids(tmp_path, text, node):
    directory = tmp_path / "bus/pci/devices/0000:1b:00.0"
    directory.mkdir(parents=True)
    (directory / "numa_node").write_text(text + "\n")
    assert gpu_node("00000000:1B:00.0", tmp_path) == node
    assert gpu_node("00000000:2C:00.0", tmp_path) is None


def test_cpu_lists():
    assert parse_cpu_list("0-2,8") == (0, 1, 2, 8)
    assert parse_cpu_list("") == ()
