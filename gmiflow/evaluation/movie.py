"""Movies of trained policies: what ``gmiflow render --policy`` draws, in a process of its own.

The body is simulated by MuJoCo on the CPU, wherever the policy was trained; without exploration.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from gmiflow.evaluation.subject import Subject, find_subjects, make_act, task_class
from gmiflow.runtime.failure import NOT_SUPPORTED, error
from gmiflow.tasks.catalog import TaskInfo
from gmiflow.tasks.render import draw, frames, make_task, run_for_parent, write_frames

__all__ = ["policy_subject", "render_policy"]

MOVIE_STEPS, PICTURE_STEPS = 500, 200


def policy_subject(run: Path, training: str | None = None) -> tuple[Subject, TaskInfo]:
    """The training to be drawn, and its task; of several trainings the first.

    Raises:
        GMIError: E0707 when there is no such run, training or checkpoint; E0710 when its simulator is no benchmark
            task, so that nothing says what to draw.
    """
    subject = find_subjects(run, training)[0]
    task = task_class(subject.training)
    if task is None:
        told = "`gmiflow tasks list` shows what can be drawn; `gmiflow eval` says what a policy does in any simulator"
        raise error(NOT_SUPPORTED, f"{subject.simulator.entry} is no benchmark task: nothing says how to draw it", told)
    return subject, task.info


def render_policy(run: Path, path: Path, *, training: str | None = None, steps: int = 0, seed: int = 1) -> None:
    """Draw what a trained policy does.

    Args:
        run: a run directory, or one checkpoint in it.
        path: ``.png`` for a picture of the last step, ``.mp4`` or ``.gif`` for a movie.
        training: one of the run; of several the first by default.
        steps: control steps; 0 for 500 of a movie and 200 before a picture.
        seed: of the start.

    Raises:
        GMIError: E0707, E0710; see `policy_subject`.
        RenderError: unknown suffix, no headless OpenGL, or a missing package.
    """
    subject, info = policy_subject(run, training)
    count = steps or (PICTURE_STEPS if path.suffix == ".png" else MOVIE_STEPS)
    place = (str(subject.checkpoint), subject.training.name)
    draw(
        f"{info.name} of {run}",
        path,
        "gmiflow.evaluation.movie",
        lambda file: (*place, str(file), str(count), str(seed)),
    )


def main(arguments: list[str] | None = None) -> int:
    """Draw in this process; `render_policy` starts it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("training")
    parser.add_argument("path", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    subject, info = policy_subject(given.checkpoint, given.training)
    act = make_act(subject, torch.device("cpu"))
    with torch.no_grad():
        images = frames(make_task(info.name, given.seed), act, given.steps, last_alone=given.path.suffix == ".png")
        write_frames(given.path, images)
    return 0


if __name__ == "__main__":
    run_for_parent(main)
