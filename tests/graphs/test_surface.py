"""The search surface: every cell is where it belongs, looks like what it is, and reads well."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from gmiflow.graphs.surface import CELL_HEIGHT, CELL_WIDTH, DARK_FROM, RAMP, Cell, Surface, color, compact, svg

SVG = "{http://www.w3.org/2000/svg}"

SURFACE = Surface(
    title="Search of train",
    subtitle="a test",
    cells=(
        Cell(num_env=1024, gmis=1, kind="measured", steps_per_s=1e6),
        Cell(num_env=4096, gmis=1, kind="measured", steps_per_s=3e6, chosen=True, detail="the best"),
        Cell(num_env=1024, gmis=4, kind="modelled", steps_per_s=2e6),
        Cell(num_env=4096, gmis=4, kind="out_of_memory"),
        Cell(num_env=2048, gmis=4, kind="failed"),
    ),
)


@pytest.fixture(scope="module")
def root():
    return ElementTree.fromstring(svg(SURFACE))


def place(group):
    frame = next(group.iter(f"{SVG}rect"))
    return float(frame.get("x")), float(frame.get("y"))


def cells(root, kind):
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == kind]


def test_environments_grow_to_the_right_and_gmis_upwards(root):
    [x_1024, y_one], [x_4096, same] = (place(group) for group in cells(root, "measured"))
    [[x_modelled, y_four]] = [place(group) for group in cells(root, "modelled")]
    assert x_4096 - x_1024 == 2 * CELL_WIDTH  # 2,048 is between them
    assert y_one == same == y_four + CELL_HEIGHT
    assert x_modelled == x_1024


def test_each_kind_looks_its_own_way(root):
    assert all(not list(group.iter(f"{SVG}path")) for group in cells(root, "measured"))
    for kind, words in (("out_of_memory", "out of memory"), ("failed", "failed")):
        [group] = cells(root, kind)
        assert list(group.iter(f"{SVG}path"))  # the cross
        assert next(group.iter(f"{SVG}text")).text == words
    [modelled] = cells(root, "modelled")
    assert [r.get("class") for r in modelled.iter(f"{SVG}rect")] == ["cell", "over white", None]


def test_the_chosen_cell_alone_is_ringed(root):
    rings = [r for r in root.iter(f"{SVG}rect") if r.get("class") == "ring" and r.get("width") == str(CELL_WIDTH)]
    [chosen] = [group for group in cells(root, "measured") if next(group.iter(f"{SVG}title")).text == "the best"]
    assert [(float(r.get("x")) + 1.5, float(r.get("y")) + 1.5) for r in rings] == [place(chosen)]


def test_numbers_axes_and_legend_are_written(root):
    words = [text.text for text in root.iter(f"{SVG}text")]
    for expected in ("3.00 M", "2.00 M", "1.00 M", "1024", "2048", "4096", "1", "4", "modelled", "chosen"):
        assert expected in words


def test_everything_is_on_the_paper(root):
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.get("x")) <= width
        assert 0 <= float(element.get("y")) <= height
    for element in root.iter(f"{SVG}rect"):
        if element.get("x") is not None:
            assert float(element.get("x")) + float(element.get("width")) <= width
            assert float(element.get("y")) + float(element.get("height")) <= height


def luminance(code):
    """WCAG 2's relative luminance of #rrggbb."""
    channels = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_ramp_falls_in_lightness_and_letters_keep_their_contrast():
    ramp = [luminance(code) for code in RAMP]
    assert ramp == sorted(ramp, reverse=True)
    for step in range(101):
        heat = step / 100
        ink = "#ffffff" if heat >= DARK_FROM else "#000000"
        light, dark = sorted((luminance(color(heat)), luminance(ink)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, heat


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (812, "812"), (999.6, "1.00 k"), (48_120, "48.1 k"), (3_940_000, "3.94 M"), (123.4e6, "123 M")],
)
def test_counts_have_three_digits(number, text):
    assert compact(number) == text


def test_one_cell_and_equal_cells_are_drawn():
    one = Surface(title="t", subtitle="s", cells=(Cell(num_env=64, gmis=1, kind="measured", steps_per_s=5.0),))
    assert one.heat(one.cells[0]) == 1.0
    assert svg(one).count('class="measured"') == 1


def test_a_png_is_the_same_every_time(tmp_path):
    pytest.importorskip("matplotlib")
    from gmiflow.graphs.surface_png import write_png

    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file in files:
        write_png(SURFACE, file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith(b"\x89PNG")


def test_the_svg_is_the_same_every_time():
    assert svg(SURFACE) == svg(SURFACE)
    assert not re.search(r"\d{4}-\d\d-\d\d", svg(SURFACE))
