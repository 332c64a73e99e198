"""Hand-written controllers on the tasks' public interface: what a policy is to learn can be done, and pays.

They would fail if gains, scales or limits made the behaviour impossible, or if the reward did not rise towards it.
"""

import math

import mujoco
import numpy as np
import pytest
import torch
from task_support import make_task

from gmiflow.evaluation.episodes import Arena
from gmiflow.tasks.anymal import Anymal
from gmiflow.tasks.ball_balance import TARGET_STEP_RAD, BallBalance
from gmiflow.tasks.franka_cabinet import FrankaCabinet
from gmiflow.tasks.shadow_hand import ShadowHand

on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
"""MuJoCo on the CPU, and MuJoCo Warp on a GPU."""

STEPS_PER_SECOND = 60  # of ShadowHand and FrankaCabinet, nearly


def put(task, **fields):
    """Overwrite parts of the state."""
    state = task.state_dict()
    for name, values in fields.items():
        state[name.replace("__", ".")][:] = values
    task.load_state_dict(state)


def act(task, action):
    """One step of all environments; ``action`` is [num_env, A] or, for all the same, [A]. Ports on the CPU."""
    num_env = task.engine.qpos.shape[0]
    action = action.to(task.engine.qpos.device).expand(num_env, task.info.action_size)
    return {name: values.cpu() for name, values in task.step({"action": action}).items()}


def is_sound(task):
    """Nothing blew up, and MuJoCo Warp's buffers were large enough."""
    found = task.diagnostics()
    return not any(found.get(name) for name in ("diverged", "overflow_contacts", "overflow_constraints"))


# Anymal

LEGS = ((0.0, -1.0), (math.pi, 1.0), (math.pi, -1.0), (0.0, 1.0))
"""Phase of the trot, and which way the knee bends: left front, left hind, right front, right hind."""


def trot(step):
    """Open loop: diagonal legs swing together at 3.9 Hz; a leg is drawn in while it swings forwards."""
    action = torch.zeros(12)
    for leg, (phase, bend) in enumerate(LEGS):
        angle = 2.0 * math.pi * 3.86 * step * Anymal.info.control_dt + phase
        drawn_in = max(0.0, math.cos(angle)) + 0.26 * max(0.0, -math.cos(angle))
        action[3 * leg + 1] = 0.245 - 0.08 * math.sin(angle + 0.46) - 0.9 * bend * drawn_in
        action[3 * leg + 2] = bend * drawn_in
    return action.clamp(-1.0, 1.0)


def walk(device, action_of, *command, num_env=4, steps=200):
    """Reward per step, forward speed in m/s over the second half, and falls."""
    task = make_task(Anymal, num_env, seed=3, device=device)
    task.reset()
    put(task, memory__commands=torch.tensor(command))
    rewards, speeds, falls = [], [], 0
    for step in range(steps):
        out = act(task, action_of(step))
        rewards.append(out["reward"].mean())
        speeds.append(out["obs"][:, 0].mean() / 2.0)
        falls += int(out["terminated"].sum())
    assert is_sound(task)
    return float(sum(rewards) / steps), float(sum(speeds[steps // 2 :]) / (steps // 2)), falls


@on_both
def test_a_trot_in_open_loop_follows_a_slow_command_and_earns_more_than_standing(device):
    trotting, speed, falls = walk(device, trot, 0.4, 0.0, 0.0)
    standing, creeping, _ = walk(device, lambda step: torch.zeros(12), 0.4, 0.0, 0.0)
    assert falls == 0 and 0.25 < speed < 0.55 and abs(creeping) < 0.02
    # The most is 0.03 a step; standing pays 0.02 exp(-0.16 / 0.25) + 0.01 less what its torques cost.
    assert standing < 0.02 * math.exp(-0.64) + 0.01 and trotting > 1.2 * standing
    # Told to stand, the same trot is the worse choice.
    assert walk(device, trot, 0.0, 0.0, 0.0)[0] < walk(device, lambda step: torch.zeros(12), 0.0, 0.0, 0.0)[0]


# BallBalance

LEG_DIRECTIONS = torch.tensor([[math.cos(turn), math.sin(turn)] for turn in (0.0, math.tau / 3, -math.tau / 3)]).T
LEG_RADIUS_M = 0.4
RISE_M_PER_RAD = 0.36 * math.cos(math.pi / 4)
"""Of the tray above a leg with the knee's angle: each of the two parts leans by half of it, from 45 degrees."""
LEVEL_RAD = 0.125
"""Of all three knees when a ball on the tray has its centre 0.7 m high."""
SERVO_LEAD_S = 100.0 / 4000.0
CAUGHT_BELOW_M = 0.84


def balance(obs):
    """Lean against the way of a ball in flight; once it rolls, drive it to the middle by place and speed."""
    angles, rates, ball, velocity = obs[:, :3], obs[:, 3:6], obs[:, 6:9], obs[:, 9:12]
    falls = (ball[:, 2:] > CAUGHT_BELOW_M) & (velocity[:, 2:] < -1.0)
    facing = at_most(0.45 * velocity[:, :2] / velocity[:, 2:].abs().clamp(min=1.0) - 0.6 * ball[:, :2], 0.85)
    driving = at_most(ball[:, :2] + 0.27 * velocity[:, :2], 0.5)
    slope = torch.where(falls, facing, driving)
    wanted = LEVEL_RAD + slope @ LEG_DIRECTIONS * LEG_RADIUS_M / RISE_M_PER_RAD
    return (0.4 * (wanted - angles - SERVO_LEAD_S * rates) / TARGET_STEP_RAD).clamp(-1.0, 1.0)


def at_most(slope, limit):
    """Rows no longer than ``limit``."""
    length = slope.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return slope * (length.clamp(max=limit) / length)


def balanced(device, num_env, noise_deviation=0.0):
    """What one episode in each environment comes to, with Gaussian noise on the actions."""
    arena = Arena(make_task(BallBalance, num_env, seed=3, device=device), num_env=num_env, device=torch.device(device))
    generator = torch.Generator().manual_seed(0)

    def act(obs):
        action = balance(obs.cpu()) + noise_deviation * torch.randn(num_env, 3, generator=generator)
        return action.to(device)

    found = arena.play(act, BallBalance.info.episode_length)
    arena.close()
    return found


@on_both
def test_a_tray_that_tilts_by_place_and_speed_solves_ball_balance(device):
    found = balanced(device, 64)
    assert found.solved, "the bounds of the task are within the body's reach"
    assert found.mean_return > 400.0


@on_both
def test_exploring_with_the_usual_deviation_hides_what_a_balanced_ball_earns(device):
    # Why examples/ball_balance.gmi starts with a deviation of exp(-2).
    usual, small = (balanced(device, 32, noise_deviation=deviation).mean_return for deviation in (1.0, math.exp(-2.0)))
    assert usual < 220.0 and small > 340.0


# FrankaCabinet

APPROACH, ENCLOSE, GRASP, PULL = range(4)
WANTED_AXES = ((0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (-1.0, 0.0, 0.0))
"""Of the gripper, in the world: y is up, z (forward) points into the cabinet, x = y cross z."""
SPRING_LEAD_S = 80.0 / 400.0
"""How far a servo's target is ahead of a joint in steady motion: damping over stiffness."""


class DrawerOpener:
    """Damped least squares towards the handle, then closing fingers, then pulling; one per environment."""

    def __init__(self, task, env):
        self._task, self._env, self.phase, self._held = task, env, APPROACH, 0
        model = self._model = task.engine.model
        self._data, self._jacobian = mujoco.MjData(model), np.zeros((6, model.nv))
        self._handle = model.body("drawer").pos + model.site("handle").pos
        self._targets = task.engine.qpos[env, :9].cpu().numpy().astype(float)
        self._steps = np.array([7.5] * 7 + [0.75] * 2) * task.info.control_dt

    def __call__(self):
        """The action, [9]."""
        joints = self._task.engine.qpos[self._env].cpu().numpy().astype(float)
        position, rotation = self._look(joints)
        handle = np.add(self._handle, [joints[9], 0.0, 0.0])
        self._next_phase(handle - position)
        ahead = 0.1 if self.phase in (APPROACH, PULL) else 0.0  # PULL: the goal is in front of the moving handle
        velocity = np.clip(4.0 * (np.add(handle, [ahead, 0.0, 0.0]) - position), -0.5, 0.5)
        spin = 2.0 * sum(np.cross(rotation[:, axis], WANTED_AXES[axis]) for axis in range(3))
        jacobian = self._jacobian[:, :7]
        twist = np.concatenate((velocity, np.clip(spin, -2.0, 2.0)))
        rates = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-3 * np.eye(6), twist)
        fingers = 1.0 if self.phase in (APPROACH, ENCLOSE) else -1.0
        ask = np.append((joints[:7] + SPRING_LEAD_S * rates - self._targets[:7]) / self._steps[:7], [fingers] * 2)
        action = np.clip(ask, -1.0, 1.0)
        low, high = self._model.jnt_range[:9].T
        self._targets = np.clip(self._targets + self._steps * action, low, high)
        return action

    def _look(self, joints):
        """Gripper's position and axes; fills in the Jacobian."""
        self._data.qpos[:] = joints
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        grip = self._model.site("grip").id
        mujoco.mj_jacSite(self._model, self._data, self._jacobian[:3], self._jacobian[3:], grip)
        return self._data.site_xpos[grip].copy(), self._data.site_xmat[grip].reshape(3, 3)

    def _next_phase(self, gap):
        distance = float(np.linalg.norm(gap + ([0.1, 0.0, 0.0] if self.phase == APPROACH else [0.0, 0.0, 0.0])))
        if (self.phase == APPROACH and distance < 0.03) or (self.phase == ENCLOSE and distance < 0.01):
            self.phase += 1
        elif self.phase == GRASP:
            self._held += 1
            self.phase += self._held > 15


@on_both
def test_an_arm_steered_to_the_handle_opens_the_drawer_and_every_phase_earns_more(device):
    num_env = 4
    task = make_task(FrankaCabinet, num_env, device=device)
    task.reset()
    openers = [DrawerOpener(task, env) for env in range(num_env)]
    earned = [[[] for _ in range(4)] for _ in range(num_env)]
    opened = torch.zeros(num_env, dtype=torch.bool)
    for _ in range(320):
        out = act(task, torch.tensor(np.array([opener() for opener in openers]), dtype=torch.float32))
        for env in (~opened).nonzero().flatten().tolist():
            earned[env][openers[env].phase].append(float(out["reward"][env]))
        opened |= out["terminated"]
        if opened.all():
            break
    assert opened.all() and is_sound(task)
    # TASKS: 2 D + 0.5 R near the front of the handle; D doubled at it; 5 F once the fingers close; then opening,
    # with 0.5 + 2 x 0.5 of bonuses before the last, 7.5 (q H + q) = 4.4 at q = 0.39, and 2 H for being open.
    for approach, enclose, grasp, pull in earned:
        assert approach[0] < 2.0 < approach[-1] < 2.61
        assert enclose[-1] > 4.5 and grasp[-1] > enclose[-1] + 0.2
        assert all(later > earlier for earlier, later in zip(pull[::20], pull[20::20], strict=False))
        assert pull[-1] == pytest.approx(4.9 + 4.39 + 0.5 + 0.5 + 1.0, abs=0.15)


# ShadowHand

RELAXED = torch.zeros(20)


def waves(step):
    """Every joint swings once a second, each with a phase of its own."""
    return 0.6 * torch.sin(2.0 * math.pi * step / STEPS_PER_SECOND + torch.arange(20.0))


def relaxed_hand(device, num_env):
    """A task whose cubes have had a second to fall into the hand."""
    task = make_task(ShadowHand, num_env, device=device)
    task.reset()
    for _ in range(STEPS_PER_SECOND):
        assert not act(task, RELAXED)["terminated"].any()
    return task


@on_both
def test_a_relaxed_hand_keeps_every_cube_and_moving_fingers_turn_them(device):
    task = relaxed_hand(device, 16)
    for _ in range(STEPS_PER_SECOND):
        out = act(task, RELAXED)
        assert not out["terminated"].any()
    assert (out["obs"][:, 79:82].norm(dim=1) < 0.05).all(), "the cubes lie still"
    before = task.engine.qpos[:, 27:31].clone()
    for step in range(STEPS_PER_SECOND):
        act(task, waves(step))
    cosine = (task.engine.qpos[:, 27:31] * before).sum(1).abs().clamp(max=1.0)
    assert float((2.0 * torch.acos(cosine)).median()) > 0.25
    assert is_sound(task)


@on_both
def test_a_goal_that_the_cube_reaches_counts_and_a_new_one_follows(device):
    task = relaxed_hand(device, 4)
    put(task, memory__goal=task.engine.qpos[:, 27:31].clone())
    assert task.diagnostics()["goals_reached"] == 0
    out = act(task, RELAXED)
    assert (out["reward"] > 250.0).all() and not out["terminated"].any()
    assert task.diagnostics()["goals_reached"] == 4
    assert (out["obs"][:, 92].abs() < math.cos(0.05)).all(), "the new goals are elsewhere"
    assert (act(task, RELAXED)["reward"] < 250.0).all()


@on_both
def test_a_cube_beside_the_hand_drops_and_the_episode_starts_anew(device):
    task = make_task(ShadowHand, 2, device=device)
    task.reset()
    state = task.state_dict()
    state["engine.qpos"][0, 24] += 0.15
    task.load_state_dict(state)
    ends = [act(task, RELAXED)["terminated"].tolist() for _ in range(STEPS_PER_SECOND // 2)]
    # 0.24 m from the goal, which lies 0.04 m lower and 0.15 m beside it: after a fall of 0.23 m, so 0.21 s, 13 steps.
    assert [one for one, _ in ends].index(True) == 12
    assert sum(one for one, _ in ends) == 1 and not any(other for _, other in ends)
