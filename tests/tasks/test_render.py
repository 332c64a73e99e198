import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest

from gmiflow.tasks.catalog import TASKS
from gmiflow.tasks.render import BACKENDS, RenderError, encode_png, render


def decode_png(data):
    """RGB pixels of a file that uses filters 0 and 1 only."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, position = {}, 8
    while position < len(data):
        (size,) = struct.unpack(">I", data[position : position + 4])
        kind, body = data[position + 4 : position + 8], data[position + 8 : position + 8 + size]
        assert struct.unpack(">I", data[position + 8 + size : position + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        position += 12 + size
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour) == (8, 2)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    pixels = rows[:, 1:].reshape(height, width, 3)
    assert (rows[:, 0] == 1).all()
    return np.cumsum(pixels, axis=1, dtype=np.uint8)


def test_a_png_holds_its_pixels():
    image = np.random.default_rng(0).integers(0, 256, (7, 11, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode_png(encode_png(image)), image)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with a picture of every task, drawn by one process."""
    folder = tmp_path_factory.mktemp("pictures")
    code = "import sys; from gmiflow.tasks.render import main; [main([n, f'{n}.png', '0', '1']) for n in sys.argv[1:]]"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    for backend in BACKENDS:
        environment = {**os.environ, "MUJOCO_GL": backend, "PYTHONPATH": path}
        if (
            subprocess.run([sys.executable, "-c", code, *TASKS], cwd=folder, env=environment, timeout=300).returncode
            == 0
        ):
            return folder
    raise AssertionError("no backend draws")


@pytest.mark.parametrize("name", TASKS)
def test_a_picture_of_every_task(name, pictures):
    image = decode_png((pictures / f"{name}.png").read_bytes())
    assert image.shape == (480, 640, 3)
    # There is something to see in the middle: more colours than the sky's and the floor's greys.
    middle = image[120:360, 160:480].reshape(-1, 3).astype(int)
    coloured = middle.max(1) - middle.min(1) > 60
    assert coloured.mean() > 0.01


def places(image, colour):
    """Rows and columns of the pixels in which one colour of the bodies dominates."""
    red, green, blue = np.moveaxis(image.astype(int), 2, 0)
    chosen = {
        "blue": (blue > 1.5 * red) & (blue - red > 40),
        "orange": (red > 1.8 * blue) & (red - blue > 60) & (green > 40),
        "red": (red > 180) & (green < 90) & (blue < 90),
    }[colour]
    return np.nonzero(chosen)


def test_the_quadruped_stands_with_its_trunk_over_its_legs(pictures):
    image = decode_png((pictures / "anymal.png").read_bytes())
    trunk, legs = places(image, "blue")[0], places(image, "orange")[0]
    assert trunk.mean() + 50 < legs.mean()
    assert trunk.max() + 100 < legs.max(), "the trunk is off the floor"


def test_the_arm_faces_the_cabinet(pictures):
    image = decode_png((pictures / "franka_cabinet.png").read_bytes())
    arm, cabinet = places(image, "orange"), places(image, "blue")
    assert arm[1].max() < cabinet[1].min()
    # As high as the drawer's front, which is the upper part of the cabinet.
    assert cabinet[0].min() < arm[0].min() < np.median(cabinet[0])


def test_the_hand_holds_the_cube(pictures):
    """The cube's red face looks up, between fingers and thumb."""
    image = decode_png((pictures / "shadow_hand.png").read_bytes())
    fingers, face = places(image, "orange"), places(image, "red")
    assert len(face[0]) > 1000
    assert fingers[1].min() < np.median(face[1]) < fingers[1].max()
    assert fingers[0].min() < np.median(face[0]) < np.median(fingers[0])


def test_a_picture_after_some_steps_is_another_one(tmp_path, pictures):
    render("cartpole", tmp_path / "later.png", steps=20)
    render("cartpole", tmp_path / "again.png", steps=20)
    later, again = ((tmp_path / f"{name}.png").read_bytes() for name in ("later", "again"))
    assert (pictures / "cartpole.png").read_bytes() != later
    assert later == again, "the seed decides"


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_movie(suffix, tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    path = tmp_path / f"cart.{suffix}"
    render("cartpole", path, steps=6)
    frames = imageio.imread(path)
    assert frames.shape == (3, 480, 640, 3)


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(RenderError, match="unknown task 'worm'; there are cartpole, "):
        render("worm", tmp_path / "worm.png")
    with pytest.raises(RenderError, match=r"must end in \.png, \.mp4 or \.gif"):
        render("ant", tmp_path / "ant.jpg")
    with pytest.raises(RenderError, match=r"cartpole\.png cannot be written: no such file or directory"):
        render("cartpole", tmp_path / "no such folder" / "cartpole.png")
