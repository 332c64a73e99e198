"""Drawings of a plan's devices: boxes add up to the device, in the terminal and in SVG, whatever the shares."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmiflow.graphs import devices_svg
from gmiflow.graphs.devices import Device, Tenant, devices
from gmiflow.graphs.devices_text import WIDTH, columns, drawing
from gmiflow.pipeline import Options, compile_file

ANT = str(Path(__file__).parents[2] / "examples" / "ant.gmi")
SVG = "{http://www.w3.org/2000/svg}"


def planned(target, **settings):
    overrides = tuple((name.replace("__", "."), str(value)) for name, value in settings.items())
    compiled = compile_file(ANT, Options(workflow="train", target=target, overrides=overrides), stop_after="plan")
    assert compiled.plan is not None, compiled.diagnostics
    return compiled.plan


def boxes(text):
    """Inner widths of the boxes of the first rule of a drawing."""
    rule = next(line for line in text.splitlines() if line.startswith("\u250c"))
    return [len(part) for part in rule[1:-1].split("\u252c")]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(20, 200))
def test_columns_are_proportional_and_add_up(parts, total):
    shares = [part / sum(parts) for part in parts]
    widths = columns(shares, total)
    assert sum(widths) == total
    assert all(abs(width - share * total) < 1 for width, share in zip(widths, shares, strict=True))


@pytest.mark.parametrize("gmis", [1, 2, 3, 4, 7])
def test_boxes_fill_the_width_of_the_device(gmis):
    text = drawing(devices(planned("h200", num_env=7168, target__gmi_per_gpu=gmis)))
    widths = boxes(text)
    assert len(widths) == gmis
    assert sum(widths) + gmis + 1 == WIDTH
    assert max(widths) - min(widths) <= 1
    assert {len(line) for line in text.splitlines()[1:]} == {WIDTH}


def test_unequal_shares_give_unequal_boxes_and_what_is_left_is_drawn():
    plan = planned("h200", target__gmi_per_gpu=2)
    gmis = tuple(replace(gmi, share=share) for gmi, share in zip(plan.gmis, (0.5, 0.25), strict=True))
    [device] = devices(replace(plan, gmis=gmis))
    assert device.free == 0.25
    text = drawing([device])
    assert boxes(text) == [46, 23, 23]  # 96 columns less 4 walls are 92: a half and two quarters
    assert "free" in text
    assert "25%" in text


def test_a_box_says_who_is_in_it():
    text = drawing(
        devices(planned("h200(gpus = 1)", num_env=8192, target__gmi_per_gpu=2), gpu="NVIDIA H200", sm_count=132)
    )
    assert text.splitlines()[0] == "GPU 0: NVIDIA H200, 132 SMs, 140 GiB"
    for words in ("GMI 0", "GMI 1", "50%", "sim, actor, learner", "4096 env"):
        assert words in text


def test_many_gmis_become_rows():
    lines = drawing(devices(planned("h200", num_env=5120, target__gmi_per_gpu=10))).splitlines()
    assert len(lines) == 11
    assert all(line.count("\u2588") == 3 and line.count("\u2591") == 27 for line in lines[1:])  # a tenth of 30
    assert "GMI 9" in lines[-1]
    assert "512 env" in lines[-1]


def test_equal_devices_are_drawn_once_with_the_gmis_of_all():
    [device] = devices(planned("h200(gpus = 8)", num_env=8192))
    assert device.title.startswith("GPUs 0 to 7, each")
    assert device.tenants[0].title == "GMI 0, 1, 2 .. 7"
    first, second = devices(planned("h200(gpus = 2)", num_env=80, target__gmi_per_gpu=1))  # 48 and 32 environments
    assert [first.title[:5], second.title[:5]] == ["GPU 0", "GPU 1"]


def test_trainings_side_by_side_are_named():
    [device] = devices(planned("h200", workflow__replicas=2))
    assert [tenant.lines[-1] for tenant in device.tenants] == ["train.0", "train.1"]


def test_the_cpu_is_one_device_with_cores():
    [device] = devices(planned("cpu", target__cores=4, target__gmi_per_gpu=2))
    assert device.title == "CPU: 4 cores"
    assert [tenant.lines for tenant in device.tenants] == [("2048 env", "2 cores")] * 2


def test_a_device_without_gmis_is_drawn_empty():
    assert drawing([Device(title="GPU 1", tenants=(), free=1.0)]) == "GPU 1\n  no GMI\n"


@pytest.mark.parametrize("gmis", [1, 3, 10])
def test_the_svg_is_in_scale(gmis):
    found = devices(planned("h200", num_env=7680, target__gmi_per_gpu=gmis))
    root = ElementTree.fromstring(devices_svg.svg("A plan", ["of a test"], found))
    frames = [(float(r.get("x")), float(r.get("width"))) for r in root.iter(f"{SVG}rect") if r.get("class") == "gmi"]
    assert len(frames) == gmis
    assert sum(width + devices_svg.GUTTER for _, width in frames) == pytest.approx(devices_svg.WIDTH, abs=0.1)
    ends = [x + width for x, width in frames]
    assert all(end < start for end, (start, _) in zip(ends, frames[1:], strict=False))
    height, width = float(root.get("height")), float(root.get("width"))
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.get("y")) < height
        assert 0 < float(text.get("x")) < width


def test_stages_have_the_colours_of_their_roles():
    tenant = Tenant(
        title="GMI 0", share=1.0, stages=(("simulator", "world"), ("trainer", "learner")), lines=("16 env",)
    )
    drawn = devices_svg.svg("<A & B>", [], [Device(title="GPU 0", tenants=(tenant,), free=0.0)])
    assert re.findall(r'class="(\w+) chip"', drawn) == ["simulator", "trainer"]
    assert "&lt;A &amp; B&gt;" in drawn


def test_boxes_say_whose_simulator_is_shared():
    """Four replicas on two cores: two and two share a core, and so a simulator."""
    plan = planned("cpu", workflow__replicas=4, workflow__num_env=64, target__gmi_per_gpu=1, target__cores=2)
    (cpu,) = devices(plan)
    assert [[line for line in tenant.lines if "simulator" in line] for tenant in cpu.tenants] == [
        ["1 simulator for GMIs 0, 1"],
        ["1 simulator for GMIs 0, 1"],
        ["1 simulator for GMIs 2, 3"],
        ["1 simulator for GMIs 2, 3"],
    ]
    (alone,) = devices(planned("cpu", workflow__num_env=64, target__gmi_per_gpu=2))
    assert not any("simulator" in line for tenant in alone.tenants for line in tenant.lines)
