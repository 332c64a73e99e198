import struct
import zlib

import numpy as np
import pytest

from gmiflow.tasks.catalog import TASKS
from gmiflow.tasks.render import RenderError, encode_png, render


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


@pytest.mark.parametrize("name", TASKS)
def test_a_picture_of_every_task(name, tmp_path):
    path = tmp_path / "body.png"
    render(name, path)
    image = decode_png(path.read_bytes())
    assert image.shape == (480, 640, 3)
    # There is something to see in the middle: more colours than the sky's and the floor's greys.
    middle = image[120:360, 160:480].reshape(-1, 3).astype(int)
    coloured = middle.max(1) - middle.min(1) > 60
    assert coloured.mean() > 0.01


def test_a_picture_after_some_steps_is_another_one(tmp_path):
    render("ant", tmp_path / "rest.png")
    render("ant", tmp_path / "later.png", steps=20)
    render("ant", tmp_path / "again.png", steps=20)
    rest, later, again = ((tmp_path / f"{name}.png").read_bytes() for name in ("rest", "later", "again"))
    assert rest != later
    assert later == again, "the seed decides"


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_movie(suffix, tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    path = tmp_path / f"cart.{suffix}"
    render("cartpole", path, steps=20)
    frames = imageio.imread(path)
    assert frames.shape == (10, 480, 640, 3)


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(RenderError, match="unknown task 'worm'; there are cartpole, "):
        render("worm", tmp_path / "worm.png")
    with pytest.raises(RenderError, match=r"must end in \.png, \.mp4 or \.gif"):
        render("ant", tmp_path / "ant.jpg")
    with pytest.raises(RenderError, match="ant could not be drawn"):
        render("ant", tmp_path / "no such folder" / "ant.png")
