"""The benchmark tasks in numbers: what ``gmiflow tasks list`` and ``gmiflow tasks show`` print.

This module imports neither torch nor a simulator, so the compiler side may read it. The task
classes take their sizes from here, so the table and the code cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.tasks.goals import (
    HELD_BALL,
    OPENING,
    RUNNING,
    RUNNING_ON_TWO_FEET,
    TRACKING,
    TURNED_CUBE,
    UPRIGHT,
    Goal,
)

ENGINES = ("mujoco", "mjwarp")
"""MuJoCo on the CPU; MuJoCo Warp on a GPU and, for tests, on the CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskInfo:
    """One benchmark task.

    Attributes:
        name: what the command line calls it.
        entry: "module:Class" of the simulator.
        model: file name of the MJCF body in ``gmiflow/tasks/assets``.
        observation_size: floats per observation.
        action_size: floats per action, each clamped to -1..1.
        control_dt: seconds between two actions.
        substeps: physics steps per action; the MJCF's timestep is ``control_dt / substeps``.
        episode_length: control steps after which an episode is truncated.
        num_env: default number of environments over the whole run.
        horizon: default rollout length in control steps.
        reward_scale: factor that the reference training settings put on the reward. The
            simulator gives the unscaled reward.
        solved: what a trained policy does, in one sentence.
        goal: the same in numbers, and what an evaluation measures.
        description: the task in one or two sentences.
        observation: the parts of the observation in order, each with its size.
        reward: the terms of the unscaled reward of one step, each with its formula. ``a`` is the
            clamped action; joint positions and velocities are the scaled ones of the observation.
        start: the distribution of first states, one part a line.
        end: what terminates an episode before its time.
        engines: physics engines that the task runs on.
    """

    name: str
    entry: str
    model: str
    observation_size: int
    action_size: int
    control_dt: float
    substeps: int
    episode_length: int
    num_env: int
    horizon: int
    reward_scale: float
    solved: str
    goal: Goal
    description: str
    observation: tuple[tuple[str, int], ...]
    reward: tuple[tuple[str, str], ...]
    start: tuple[str, ...]
    end: str
    engines: tuple[str, ...] = ENGINES

    @property
    def module(self) -> str:
        """Module of the standard library that declares the simulator, for example "std.tasks.ant"."""
        return f"std.tasks.{self.entry.split(':')[0].rsplit('.', 1)[1]}"

    @property
    def stage(self) -> str:
        """Name of the simulator in that module."""
        return self.entry.split(":")[1]


CARTPOLE = TaskInfo(
    name="cartpole",
    entry="gmiflow.tasks.cartpole:CartPole",
    model="cartpole.xml",
    observation_size=4,
    action_size=1,
    control_dt=0.02,
    substeps=2,
    episode_length=500,
    num_env=256,
    horizon=16,
    reward_scale=1.0,
    solved="The pole stays up for the whole episode: return 500.",
    goal=Goal(mean_return=475.0, survival=0.9, measures=(UPRIGHT,)),
    description="Keep a 1 m pole upright by pushing its cart with up to 10 N.",
    observation=(("cart position", 1), ("cart velocity", 1), ("pole angle", 1), ("pole velocity", 1)),
    reward=(("alive", "1"),),
    start=("every position and velocity: +-0.05, uniform; the pole upright",),
    end="the pole leans more than 12 degrees, or the cart is more than 2.4 m from the middle",
)

CARTPOLE_SWING_UP = TaskInfo(
    name="cartpole_swing_up",
    entry="gmiflow.tasks.cartpole:CartPoleSwingUp",
    model="cartpole.xml",
    observation_size=5,
    action_size=1,
    control_dt=0.02,
    substeps=2,
    episode_length=500,
    num_env=256,
    horizon=16,
    reward_scale=1.0,
    solved="The pole is up after two to three seconds and stays there: return above 350.",
    goal=Goal(mean_return=350.0, survival=0.9, measures=(UPRIGHT,)),
    description="Swing a hanging pole up by moving its cart, then keep it upright.",
    observation=(
        ("cart position", 1),
        ("cart velocity", 1),
        ("cosine of pole angle", 1),
        ("sine of pole angle", 1),
        ("pole velocity", 1),
    ),
    reward=(("height", "(1 + cos(pole angle)) / 2"), ("action", "-0.001 a^2")),
    start=("every position and velocity: +-0.05, uniform; the pole hanging down",),
    end="the cart is more than 2.4 m from the middle",
)

ANT = TaskInfo(
    name="ant",
    entry="gmiflow.tasks.ant:Ant",
    model="ant.xml",
    observation_size=60,
    action_size=8,
    control_dt=0.0166,
    substeps=2,
    episode_length=1000,
    num_env=4096,
    horizon=16,
    reward_scale=0.01,
    solved="The ant runs towards +x without falling.",
    goal=Goal(mean_return=4000.0, survival=0.8, measures=(RUNNING,)),
    description="A four-legged body of 8 joints learns to run towards a far target.",
    observation=(
        ("torso height", 1),
        ("torso linear velocity, torso frame", 3),
        ("torso angular velocity, torso frame", 3),
        ("yaw", 1),
        ("roll", 1),
        ("angle to target", 1),
        ("up projection", 1),
        ("heading projection", 1),
        ("joint positions, scaled to -1..1", 8),
        ("joint velocities x 0.2", 8),
        ("foot forces and torques x 0.1", 24),
        ("previous action", 8),
    ),
    reward=(
        ("progress", "metres per second towards (1000, 0)"),
        ("alive", "0.5"),
        ("upright", "0.1 if up projection > 0.93"),
        ("heading", "0.5 if heading projection > 0.8, else 0.5 heading projection / 0.8"),
        ("actions", "-0.005 sum a^2"),
        ("energy", "-0.05 sum |a joint velocity|"),
        ("limits", "-0.1 for every joint position > 0.99"),
        ("death", "-2 instead of all that, if the episode terminates"),
    ),
    start=(
        "torso upright at rest at a height of 0.44 m",
        "joint angles: the angle in the limits nearest to 0, +-0.2 rad, uniform, kept in the limits",
        "joint velocities: +-0.1 rad/s, uniform",
    ),
    end="the torso is below 0.31 m",
)

HUMANOID = TaskInfo(
    name="humanoid",
    entry="gmiflow.tasks.humanoid:Humanoid",
    model="humanoid.xml",
    observation_size=108,
    action_size=21,
    control_dt=0.0166,
    substeps=2,
    episode_length=1000,
    num_env=4096,
    horizon=32,
    reward_scale=0.01,
    solved="The humanoid runs towards +x on its two feet.",
    goal=Goal(mean_return=4000.0, survival=0.8, measures=(RUNNING_ON_TWO_FEET,)),
    description="A body of 21 joints and about 40 kg learns to run on two feet towards a far target.",
    observation=(
        ("torso height", 1),
        ("torso linear velocity, torso frame", 3),
        ("torso angular velocity x 0.25, torso frame", 3),
        ("yaw", 1),
        ("roll", 1),
        ("angle to target", 1),
        ("up projection", 1),
        ("heading projection", 1),
        ("joint positions, scaled to -1..1", 21),
        ("joint velocities x 0.1", 21),
        ("joint forces x 0.01", 21),
        ("foot forces and torques x 0.01", 12),
        ("previous action", 21),
    ),
    reward=(
        ("progress", "metres per second towards (1000, 0)"),
        ("alive", "2"),
        ("upright", "0.1 if up projection > 0.93"),
        ("heading", "0.5 if heading projection > 0.8, else 0.5 heading projection / 0.8"),
        ("actions", "-0.01 sum a^2"),
        ("energy", "-0.05 sum |a joint velocity| gear / 135"),
        ("limits", "-0.25 sum (|joint position| - 0.98) / 0.02 gear / 135, where it is > 0.98"),
        ("death", "-1 instead of all that, if the episode terminates"),
    ),
    start=(
        "torso upright at rest at a height of 1.34 m",
        "joint angles: the angle in the limits nearest to 0, +-0.2 rad, uniform, kept in the limits",
        "joint velocities: +-0.1 rad/s, uniform",
    ),
    end="the torso is below 0.8 m",
)

BALL_BALANCE = TaskInfo(
    name="ball_balance",
    entry="gmiflow.tasks.ball_balance:BallBalance",
    model="ball_balance.xml",
    observation_size=24,
    action_size=3,
    control_dt=0.01,
    substeps=2,
    episode_length=500,
    num_env=4096,
    horizon=16,
    reward_scale=0.1,
    solved="The falling ball is caught and comes to rest in the middle of the tray.",
    goal=Goal(mean_return=280.0, survival=0.9, measures=HELD_BALL),
    description="A tray on three legs catches a falling ball and brings it to rest in the middle.",
    observation=(
        ("actuated joint positions", 3),
        ("actuated joint velocities", 3),
        ("ball position", 3),
        ("ball velocity", 3),
        ("tray force at leg 0, torques at legs 0, 1, 2, / 20", 12),
    ),
    reward=(("rest at the goal", "1 / (1 + |ball - (0, 0, 0.7)|) x 1 / (1 + |ball velocity|)"),),
    start=(
        "tray at rest",
        "ball 0.001..0.5 m from the axis in a uniform direction, 1..2 m high, both uniform",
        "ball velocity: -5 m/s vertically; inwards 0..5 m/s, uniform, times the distance's fraction of its range",
    ),
    end="the ball is below 0.15 m",
)

ANYMAL = TaskInfo(
    name="anymal",
    entry="gmiflow.tasks.anymal:Anymal",
    model="anymal.xml",
    observation_size=48,
    action_size=12,
    control_dt=0.02,
    substeps=2,
    episode_length=2500,
    num_env=4096,
    horizon=24,
    reward_scale=1.0,
    solved="The robot walks and turns at the commanded velocities for the whole episode.",
    goal=Goal(mean_return=50.0, survival=0.9, measures=TRACKING),
    description="A quadruped of 12 drives and 52 kg learns to move at commanded velocities.",
    observation=(
        ("base linear velocity x 2, base frame", 3),
        ("base angular velocity x 0.25, base frame", 3),
        ("direction of gravity, base frame", 3),
        ("commands: forwards x 2, left x 2, turning x 0.25", 3),
        ("joint positions - default", 12),
        ("joint velocities x 0.05", 12),
        ("previous action", 12),
    ),
    reward=(
        ("tracking", "0.02 exp(-|velocity error|^2 / 0.25), m/s, horizontal"),
        ("turning", "0.01 exp(-(turning error)^2 / 0.25), rad/s"),
        ("torques", "-0.02 x 2.5e-5 sum torque^2, N m"),
        ("floor", "at least 0"),
    ),
    start=(
        "base level at rest at a height of 0.62 m",
        "joint angles: default x 0.5..1.5, uniform",
        "joint velocities: +-0.1 rad/s, uniform",
        "commands, for the whole episode: +-2 m/s forwards, +-1 m/s left, +-1 rad/s turning, uniform",
    ),
    end="the base or a thigh touches the floor with more than 1 N",
)

FRANKA_CABINET = TaskInfo(
    name="franka_cabinet",
    entry="gmiflow.tasks.franka_cabinet:FrankaCabinet",
    model="franka_cabinet.xml",
    observation_size=23,
    action_size=9,
    control_dt=0.0166,
    substeps=2,
    episode_length=500,
    num_env=4096,
    horizon=16,
    reward_scale=0.01,
    solved="The hand takes the handle and pulls the drawer open.",
    goal=Goal(mean_return=1000.0, measures=OPENING),
    description="A Panda arm learns to pull a cabinet's drawer open by its handle.",
    observation=(
        ("arm and finger positions, scaled to -1..1", 9),
        ("arm and finger velocities x 0.1", 9),
        ("from gripper to handle", 3),
        ("drawer position q", 1),
        ("drawer velocity", 1),
    ),
    reward=(
        ("distance", "2 / (1 + d^2)^2 with the gripper's distance d to the handle; twice that if d <= 0.02"),
        ("alignment", "0.25 (r1 |r1| + r2 |r2|) with the cosines r of the hand's forward and up axes to the handle's"),
        ("straddling", "0.125 if the left finger is above and the right finger below the handle"),
        ("opening", "7.5 q, and 3.75 q more if straddling"),
        ("fingers", "5 ((0.04 - |dz left|) + (0.04 - |dz right|)) if straddling"),
        ("bonuses", "0.5 if q > 0.01; if straddling also 0.5 if q > 0.2 and 1 if q > 0.39"),
        ("actions", "-0.01 sum a^2"),
    ),
    start=(
        "arm and fingers at rest at their default positions +-0.125, uniform, kept in the limits",
        "drawer closed",
    ),
    end="the drawer is open by more than 0.39 m",
)

SHADOW_HAND = TaskInfo(
    name="shadow_hand",
    entry="gmiflow.tasks.shadow_hand:ShadowHand",
    model="shadow_hand.xml",
    observation_size=211,
    action_size=20,
    control_dt=0.01667,
    substeps=2,
    episode_length=600,
    num_env=16384,
    horizon=8,
    reward_scale=0.01,
    solved="The hand turns the cube to one goal after the other without dropping it.",
    goal=Goal(mean_return=1500.0, measures=(TURNED_CUBE,)),
    description="A hand of 24 joints learns to turn a cube to one given orientation after the other.",
    observation=(
        ("joint positions, scaled to -1..1", 24),
        ("joint velocities x 0.2", 24),
        ("joint forces x 10", 24),
        ("cube position", 3),
        ("cube orientation, quaternion w x y z", 4),
        ("cube linear velocity", 3),
        ("cube angular velocity x 0.2", 3),
        ("goal position", 3),
        ("goal orientation", 4),
        ("turn from goal to cube, quaternion", 4),
        ("5 fingertips: position 3, orientation 4, linear velocity 3, angular velocity 3", 65),
        ("5 fingertips: force and torque x 10", 30),
        ("previous action", 20),
    ),
    reward=(
        ("distance", "-10 |cube - goal position|"),
        ("turn", "1 / (angle between cube and goal + 0.1)"),
        ("goal reached", "250 if the angle <= 0.1; then a new goal is drawn"),
        ("actions", "-0.0002 sum a^2"),
    ),
    start=(
        "joint angles: 0.2 of the lower to 0.2 of the upper limit, uniform; coupled joints alike",
        "cube at rest 0.1 m over the hand's axis, +-0.01 m in each direction, uniform",
        "cube and goal turned about y, then about x, by +-pi each, uniform",
    ),
    end="the cube is 0.24 m or more from the goal's position",
)

TASKS: dict[str, TaskInfo] = {
    info.name: info
    for info in (CARTPOLE, CARTPOLE_SWING_UP, ANT, HUMANOID, BALL_BALANCE, ANYMAL, FRANKA_CABINET, SHADOW_HAND)
}
"""Every task by name, in the order in which lists show them."""
