"""Which training a benchmark measures, and its plan as the compiler makes it. No torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan

SOURCE = Path(__file__).with_name("train.gmi")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes and hyper-parameters, the same for every side.

    Attributes:
        task: "ant", "humanoid", "ball_balance" or "point_mass".
        precision: of matrix products; rsl_rl runs with TF32 for "tf32".
    """

    task: str
    num_env: int = 4096
    horizon: int = 16
    epochs: int = 4
    minibatches: int = 4
    hidden: tuple[int, ...] = (256, 128, 64)
    lr: float = 3e-4
    kl_target: float = 0.008
    reward_scale: float = 0.01
    seed: int = 0
    device: str = "cuda"
    precision: str = "tf32"

    @property
    def samples(self) -> int:
        """Environment steps per iteration."""
        return self.num_env * self.horizon

    def overrides(self) -> tuple[tuple[str, str], ...]:
        """The `--set` pairs of `gmiflow` that make train.gmi this training."""
        params = {name: str(getattr(self, name)) for name in ("lr", "kl_target", "epochs", "minibatches")}
        params |= {"reward_scale": str(self.reward_scale), "hidden": str(list(self.hidden))}
        for name in ("num_env", "horizon", "seed", "precision"):
            params[f"workflow.{name}"] = str(getattr(self, name))
        return tuple(params.items())

    def plan(self, execution: str = "eager", max_staleness: int = 0) -> LaunchPlan:
        """The launch plan of one GMI on this setting's device.

        Args:
            execution: "eager", "graph" or "overlap".
            max_staleness: 0 makes `overlap` wait, so that its numbers are those of `eager`.
        """
        cuda = self.device == "cuda"
        place = {
            "workflow.execution": "graph" if cuda else "eager",
            "target.gmi_per_gpu": "1",
            "target.backend": "timeshare" if cuda else "cpu",
        }
        target = None if cuda else "cpu"
        options = Options(workflow=f"train_{self.task}", target=target, overrides=(*self.overrides(), *place.items()))
        made = compile_file(str(SOURCE), options, stop_after="plan")
        if made.plan is None:
            raise ValueError("; ".join(f"{d.code}: {d.message}" for d in made.diagnostics))
        # Set here, because an overlap without staleness and one on the CPU are tests that no workflow asks for.
        training = dataclasses.replace(
            made.plan.trainings[0],
            execution=execution,
            mode="async" if max_staleness else "sync",
            max_staleness=max_staleness,
            iterations=1_000_000_000,
        )
        return dataclasses.replace(made.plan, trainings=(training,))


SPEED = {
    "ant": Setting(task="ant"),
    "humanoid": Setting(task="humanoid"),
    "ball_balance": Setting(task="ball_balance", reward_scale=0.1),
}
"""One shape of update for all tasks: horizon 16, 4 epochs of 4 minibatches, hidden 256-128-64."""

TASK = {
    "ant": Setting(task="ant", minibatches=2),
    "humanoid": Setting(task="humanoid", horizon=32, epochs=5, minibatches=4, hidden=(400, 200, 100), lr=5e-4),
    "ball_balance": Setting(task="ball_balance", epochs=8, minibatches=8, reward_scale=0.1),
}
"""Each task's usual settings, as in examples/."""

SETTINGS = {"speed": SPEED, "task": TASK}

BASELINES = ("rsl_rl", "rsl_rl_graphed", "rsl_rl_compiled")
"""Names of the sides that are not gmiflow."""
