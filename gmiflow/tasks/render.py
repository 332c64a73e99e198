"""Pictures of tasks: what ``gmiflow render`` draws.

Drawing runs in a process of its own, without a display (EGL, or OSMesa where there is no EGL): a
rendering context and a simulator in one process can block each other, and the choice of the backend is
an environment variable that must be set before MuJoCo is imported.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

import argparse
import contextlib
import os
import struct
import subprocess
import sys
import threading
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmiflow.tasks.catalog import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from torch import Tensor

    from gmiflow.tasks.base import Task

    Image = np.ndarray[Any, np.dtype[np.uint8]]

__all__ = ["RenderError", "draw", "frames", "make_task", "render", "write_frames"]

WIDTH, HEIGHT = 640, 480
REST_SECONDS = 0.3
MOVIE_STEPS = 200
FRAMES_PER_SECOND = 30
MOVIE_PACKAGES = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio",)}
"""What each kind of movie needs besides what gmiflow needs."""
BACKENDS = ("egl", "osmesa")
TIMEOUT_S = 600.0


class RenderError(Exception):
    """A picture could not be drawn.

    Attributes:
        message: why, in one line without a final full stop.
        notes: what each way of drawing said, and what would help.
    """

    def __init__(self, message: str, *notes: str) -> None:
        """The text of the exception is the message and the notes."""
        super().__init__("; ".join((message, *notes)))
        self.message = message
        self.notes = notes


def render(name: str, path: Path, steps: int = 0, seed: int = 1) -> None:
    """Draw a task into a file.

    Args:
        name: a task of `gmiflow.tasks.catalog.TASKS`.
        path: ``.png`` for a picture, ``.mp4`` or ``.gif`` for a movie (both need imageio).
        steps: control steps with random actions; a picture shows the last one. With 0 a picture shows
            the body at rest, and a movie has 200 steps.
        seed: of the start and of the actions.

    Raises:
        RenderError: unknown task or suffix, no headless OpenGL, or a missing package.
    """
    if name not in TASKS:
        raise RenderError(f"unknown task {name!r}; there are {', '.join(TASKS)}")
    draw(name, path, "gmiflow.tasks.render", lambda file: (name, str(file), str(steps), str(seed)))


def draw(what: str, path: Path, module: str, arguments: Callable[[Path], Sequence[str]]) -> None:
    """Have a module draw into a file, in a process of its own for each way of drawing, until one can.

    The file is there when it is whole; what was there before is kept until then.

    Args:
        what: is drawn, for messages.
        path: of the file.
        module: is run with ``python -m`` and ``arguments``.
        arguments: of the module, for the file that it is to write.

    Raises:
        RenderError: unknown suffix, a place that cannot be written, no headless OpenGL, or a missing package.
    """
    if path.suffix not in (".png", *MOVIE_PACKAGES):
        raise RenderError(f"{path}: the file's name must end in .png, .mp4 or .gif")
    missing = [package for package in MOVIE_PACKAGES.get(path.suffix, ()) if not find_spec(package)]
    if missing:
        raise RenderError(
            f"{path.name} needs the Python package {' and '.join(missing)}",
            "install it by pip install 'gmiflow[render]'",
        )
    unfinished = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        unfinished.touch()
        failures = []
        for backend in BACKENDS:
            failure = _draw(backend, module, arguments(unfinished))
            if failure is None:
                unfinished.replace(path)
                return
            failures.append(f"{backend}: {failure}")
    except OSError as problem:
        raise RenderError(f"{path} cannot be written: {str(problem.strerror).lower()}") from problem
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    raise RenderError(
        f"{what} could not be drawn",
        *failures,
        "drawing without a display needs EGL (Debian package libegl1, with a GPU's driver or libgl1-mesa-dri) or "
        "OSMesa (libosmesa6)",
    )


def _draw(backend: str, module: str, arguments: Sequence[str]) -> str | None:
    """Draw in a process of its own; what went wrong, in a line, or None."""
    variables = {"MUJOCO_GL": backend, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    reading, writing = os.pipe()  # the kernel closes it with this process: see `end_with_parent`
    try:
        finished = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **variables},
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"not ready after {TIMEOUT_S:g} s"
    finally:
        os.close(reading)
        os.close(writing)
    if finished.returncode == 0:
        return None
    # A traceback ends with the exception; what destructors print after it begins with "Exception ignored".
    said = [line for line in finished.stderr.split("Exception ignored")[0].splitlines() if line.strip()]
    return said[-1].strip() if said else f"exit status {finished.returncode}"


def run_for_parent(work: Callable[[], int]) -> None:
    """Do the work of a process that `draw` started, and end with its status.

    It ends too when the process that started it is gone, even by SIGKILL: the other end of stdin closes then.
    """

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
    sys.exit(work())


def encode_png(image: Image) -> bytes:
    """A PNG file of an RGB picture, u8 [height, width, 3] (PNG specification, sections 5 and 11)."""
    height, width, _ = image.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    # Every row starts with its filter: 1 says that each byte is stored as the difference to the pixel on its left.
    rows = image.astype("uint8")
    difference = rows.copy()
    difference[:, 1:] -= rows[:, :-1]
    raw = b"".join(b"\x01" + row.tobytes() for row in difference)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _rest_frame(name: str) -> Image:
    """The body in its rest pose, settled for a moment without control."""
    import mujoco

    from gmiflow.tasks.base import ASSETS

    model = mujoco.MjModel.from_xml_path(str(ASSETS / TASKS[name].model))
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    while data.time < REST_SECONDS:
        mujoco.mj_step(model, data)
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:
        renderer.update_scene(data, "side")
        return renderer.render()


def make_task(name: str, seed: int) -> Task:
    """One environment of a task in MuJoCo, started."""
    import importlib

    from gmiflow.sim.standalone import standalone_context

    module, cls = TASKS[name].entry.split(":")
    task = getattr(importlib.import_module(module), cls)()
    task.setup(standalone_context(1, seed=seed, engine="mujoco"))
    task.reset()
    return task


def random_actions(name: str, seed: int) -> Callable[[Tensor], Tensor]:
    """A policy that looks at nothing: uniform actions, f32 [1, A]."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return lambda observation: torch.rand(1, TASKS[name].action_size, generator=generator) * 2.0 - 1.0


def frames(task: Task, act: Callable[[Tensor], Tensor], steps: int, *, last_alone: bool = False) -> Iterator[Image]:
    """One frame of about every 1/30 s of a task's episodes, and the last one; or the last one alone.

    Args:
        task: with one environment, started.
        act: from the observation, f32 [1, O], to the action, f32 [1, A].
        steps: control steps.
        last_alone: no other frame.
    """
    import mujoco

    model = task.engine.model
    data = mujoco.MjData(model)
    every = max(1, round(1.0 / FRAMES_PER_SECOND / task.info.control_dt))
    observation: Any = task.observe()["obs"]
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:
        for step in range(1, steps + 1):
            observation = task.step({"action": act(observation)})["obs"]
            if step != steps and (last_alone or step % every):
                continue
            data.qpos[:] = task.engine.qpos[0].numpy()
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, "side")
            yield renderer.render()


def write_frames(path: Path, images: Iterator[Image]) -> None:
    """Write a picture of the only frame, or a movie, as the file's suffix says."""
    if path.suffix == ".png":
        (image,) = images
        path.write_bytes(encode_png(image))
        return
    import imageio.v3

    options: dict[str, Any] = {"fps": FRAMES_PER_SECOND}
    if path.suffix == ".gif":
        options = {"duration": 1000 // FRAMES_PER_SECOND, "loop": 0}
    imageio.v3.imwrite(path, list(images), **options)


def main(arguments: list[str] | None = None) -> int:
    """Draw in this process; `render` starts it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("path", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    given = parser.parse_args(arguments)
    picture = given.path.suffix == ".png"
    if picture and not given.steps:
        write_frames(given.path, iter([_rest_frame(given.name)]))
        return 0
    task, act = make_task(given.name, given.seed), random_actions(given.name, given.seed)
    write_frames(given.path, frames(task, act, given.steps or MOVIE_STEPS, last_alone=picture))
    return 0


if __name__ == "__main__":
    run_for_parent(main)
