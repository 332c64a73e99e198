"""What follows the physics in a step of Ant or Humanoid, as one Triton kernel instead of some sixty operations.

The torch operations of `gmiflow.tasks.locomotion` are the definition; a test on a GPU compares the two.
"""

# ruff: noqa: ANN001, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

from collections.abc import Mapping, Sequence

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

__all__ = ["finish"]

_ROWS = 16
"""Environments of a program, which is one warp."""


@triton.jit
def _finish_kernel(
    qpos,
    qvel,
    warmstart,
    action,
    sensors,
    actuator,
    passive,
    constraint,
    noise,
    joints,  # rows of J: scale, offset, gear ratio, lower, upper, lowest start angle
    last_place,  # five rows of num_env: target x, y, distance, own x, y
    episode_step,
    sound_steps,
    obs,
    reward,
    terminated,
    truncated,
    num_env,
    QPOS_STRIDE: tl.constexpr,
    QVEL_STRIDE: tl.constexpr,
    WARMSTART_STRIDE: tl.constexpr,
    ACTION_STRIDE: tl.constexpr,
    SENSOR_STRIDE: tl.constexpr,
    FORCE_STRIDE: tl.constexpr,
    J: tl.constexpr,
    S: tl.constexpr,
    FORCES: tl.constexpr,
    TARGET_X: tl.constexpr,
    TARGET_Y: tl.constexpr,
    TARGET_DISTANCE: tl.constexpr,
    START_HEIGHT: tl.constexpr,
    ANGLE_NOISE: tl.constexpr,
    RATE_NOISE: tl.constexpr,
    SPIN_SCALE: tl.constexpr,
    RATE_SCALE: tl.constexpr,
    FORCE_SCALE: tl.constexpr,
    ALIVE: tl.constexpr,
    DEATH: tl.constexpr,
    FALLEN: tl.constexpr,
    UP_WEIGHT: tl.constexpr,
    UP_THRESHOLD: tl.constexpr,
    HEADING_WEIGHT: tl.constexpr,
    HEADING_THRESHOLD: tl.constexpr,
    ACTION_COST: tl.constexpr,
    ENERGY_COST: tl.constexpr,
    LIMIT_COST: tl.constexpr,
    LIMIT_THRESHOLD: tl.constexpr,
    LIMIT_GROWS: tl.constexpr,
    PER_SECOND: tl.constexpr,
    EPISODE_LENGTH: tl.constexpr,
    DIVERGED_SQUARED: tl.constexpr,
    OBS: tl.constexpr,
    J_TILE: tl.constexpr,
    S_TILE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Observe, judge and restart ROWS environments."""
    env = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = env < num_env
    # The torso: rotation matrix from the quaternion, then the twelve numbers.
    q, v = qpos + env * QPOS_STRIDE, qvel + env * QVEL_STRIDE
    x = tl.load(q, mask=valid, other=0.0)
    y = tl.load(q + 1, mask=valid, other=0.0)
    height = tl.load(q + 2, mask=valid, other=1.0)
    qw = tl.load(q + 3, mask=valid, other=1.0)
    qx = tl.load(q + 4, mask=valid, other=0.0)
    qy = tl.load(q + 5, mask=valid, other=0.0)
    qz = tl.load(q + 6, mask=valid, other=0.0)
    vx = tl.load(v, mask=valid, other=0.0)
    vy = tl.load(v + 1, mask=valid, other=0.0)
    vz = tl.load(v + 2, mask=valid, other=0.0)
    spin_x = tl.load(v + 3, mask=valid, other=0.0) * SPIN_SCALE
    spin_y = tl.load(v + 4, mask=valid, other=0.0) * SPIN_SCALE
    spin_z = tl.load(v + 5, mask=valid, other=0.0) * SPIN_SCALE
    r00 = 1.0 - 2.0 * (qy * qy + qz * qz)
    r01 = 2.0 * (qx * qy - qw * qz)
    r02 = 2.0 * (qx * qz + qw * qy)
    r10 = 2.0 * (qx * qy + qw * qz)
    r11 = 1.0 - 2.0 * (qx * qx + qz * qz)
    r12 = 2.0 * (qy * qz - qw * qx)
    r20 = 2.0 * (qx * qz - qw * qy)
    r21 = 2.0 * (qy * qz + qw * qx)
    r22 = 1.0 - 2.0 * (qx * qx + qy * qy)
    ahead = r00 * vx + r10 * vy + r20 * vz
    left = r01 * vx + r11 * vy + r21 * vz
    upwards = r02 * vx + r12 * vy + r22 * vz
    target_x, target_y = TARGET_X - x, TARGET_Y - y
    distance = tl.sqrt(target_x * target_x + target_y * target_y)
    forward = r00 * target_x + r10 * target_y
    aside = r00 * target_y - r10 * target_x
    yaw = libdevice.atan2(r10, r00)
    roll = libdevice.atan2(r21, r22)
    angle = libdevice.atan2(aside, forward)
    heading = forward / distance
    # Joints, feet and action.
    wide = valid[:, None]
    j = tl.arange(0, J_TILE)[None, :]
    has_joint = wide & (j < J)
    scale = tl.load(joints + j, mask=j < J, other=0.0)
    offset = tl.load(joints + J + j, mask=j < J, other=0.0)
    gear = tl.load(joints + 2 * J + j, mask=j < J, other=0.0)
    position = tl.load(q[:, None] + 7 + j, mask=has_joint, other=0.0) * scale + offset
    rate = tl.load(v[:, None] + 6 + j, mask=has_joint, other=0.0) * RATE_SCALE
    acted = tl.load(action + env[:, None] * ACTION_STRIDE + j, mask=has_joint, other=0.0)
    s = tl.arange(0, S_TILE)[None, :]
    has_sensor = wide & (s < S)
    felt = tl.load(sensors + env[:, None] * SENSOR_STRIDE + s, mask=has_sensor, other=0.0) * FORCE_SCALE
    length = height * height + ahead * ahead + left * left + upwards * upwards
    length += spin_x * spin_x + spin_y * spin_y + spin_z * spin_z
    length += yaw * yaw + roll * roll + angle * angle + r22 * r22 + heading * heading
    length += tl.sum(position * position + rate * rate + acted * acted, 1) + tl.sum(felt * felt, 1)
    force = position
    if FORCES:
        at = env[:, None] * FORCE_STRIDE + 6 + j
        force = tl.load(actuator + at, mask=has_joint, other=0.0) + tl.load(passive + at, mask=has_joint, other=0.0)
        force = (force + tl.load(constraint + at, mask=has_joint, other=0.0)) * FORCE_SCALE
        length += tl.sum(force * force, 1)
    # Reward and ends.
    if LIMIT_GROWS:
        limit = gear * tl.maximum(tl.abs(position) - LIMIT_THRESHOLD, 0.0) / (1.0 - LIMIT_THRESHOLD)
    else:
        limit = tl.where(position > LIMIT_THRESHOLD, 1.0, 0.0)
    cost = ENERGY_COST * tl.abs(acted * rate) * gear + ACTION_COST * acted * acted + LIMIT_COST * limit
    place = last_place + env
    last_x = tl.load(place, mask=valid, other=0.0)
    last_y = tl.load(place + num_env, mask=valid, other=0.0)
    last_distance = tl.load(place + 2 * num_env, mask=valid, other=1.0)
    moved_x = x - tl.load(place + 3 * num_env, mask=valid, other=0.0)
    moved_y = y - tl.load(place + 4 * num_env, mask=valid, other=0.0)
    towards = moved_x * (last_x + target_x) + moved_y * (last_y + target_y)
    progress = towards / (last_distance + distance) * PER_SECOND
    paid = ALIVE + HEADING_WEIGHT / HEADING_THRESHOLD * tl.minimum(heading, HEADING_THRESHOLD)
    paid += tl.where(r22 > UP_THRESHOLD, UP_WEIGHT, 0.0) + progress - tl.sum(tl.where(has_joint, cost, 0.0), 1)
    fallen = height < FALLEN
    sound = length < DIVERGED_SQUARED  # false for a NaN
    paid = tl.where(sound, tl.where(fallen, DEATH, paid), 0.0)
    ends = fallen | (sound == 0)
    steps = tl.load(episode_step + env, mask=valid, other=0)
    cut = (steps >= EPISODE_LENGTH) & (ends == 0)
    done = ends | cut
    known = tl.load(sound_steps + env, mask=valid, other=0) + sound.to(tl.int64)
    # The start of the next episode.
    lower = tl.load(joints + 3 * J + j, mask=j < J, other=0.0)
    upper = tl.load(joints + 4 * J + j, mask=j < J, other=0.0)
    lowest = tl.load(joints + 5 * J + j, mask=j < J, other=0.0)
    random = noise + env[:, None] * (2 * J) + j
    start = lowest + 2.0 * ANGLE_NOISE * tl.load(random, mask=has_joint, other=0.0)
    start = tl.minimum(tl.maximum(start, lower), upper)
    start_rate = 2.0 * RATE_NOISE * tl.load(random + J, mask=has_joint, other=0.0) - RATE_NOISE
    over = done[:, None]
    # Everything has been read; rows that other lanes of this warp hold may be overwritten.
    tl.debug_barrier()
    tl.store(reward + env, paid, mask=valid)
    tl.store(terminated + env, ends, mask=valid)
    tl.store(truncated + env, cut, mask=valid)
    tl.store(episode_step + env, tl.where(done, 0, steps), mask=valid)
    tl.store(sound_steps + env, known, mask=valid)
    tl.store(place, tl.where(done, TARGET_X, target_x), mask=valid)
    tl.store(place + num_env, tl.where(done, TARGET_Y, target_y), mask=valid)
    tl.store(place + 2 * num_env, tl.where(done, TARGET_DISTANCE, distance), mask=valid)
    tl.store(place + 3 * num_env, tl.where(done, 0.0, x), mask=valid)
    tl.store(place + 4 * num_env, tl.where(done, 0.0, y), mask=valid)
    o = obs + env * OBS
    tl.store(o, tl.where(done, START_HEIGHT, height), mask=valid)
    tl.store(o + 1, tl.where(done, 0.0, ahead), mask=valid)
    tl.store(o + 2, tl.where(done, 0.0, left), mask=valid)
    tl.store(o + 3, tl.where(done, 0.0, upwards), mask=valid)
    tl.store(o + 4, tl.where(done, 0.0, spin_x), mask=valid)
    tl.store(o + 5, tl.where(done, 0.0, spin_y), mask=valid)
    tl.store(o + 6, tl.where(done, 0.0, spin_z), mask=valid)
    tl.store(o + 7, tl.where(done, 0.0, yaw), mask=valid)
    tl.store(o + 8, tl.where(done, 0.0, roll), mask=valid)
    tl.store(o + 9, tl.where(done, 0.0, angle), mask=valid)
    tl.store(o + 10, tl.where(done, 1.0, r22), mask=valid)
    tl.store(o + 11, tl.where(done, 1.0, heading), mask=valid)
    o = o[:, None] + 12
    tl.store(o + j, tl.where(over, start * scale + offset, position), mask=has_joint)
    tl.store(o + J + j, tl.where(over, start_rate * RATE_SCALE, rate), mask=has_joint)
    o += 2 * J
    if FORCES:
        tl.store(o + j, tl.where(over, 0.0, force), mask=has_joint)
        o += J
    tl.store(o + s, tl.where(over, 0.0, felt), mask=has_sensor)
    tl.store(o + S + j, tl.where(over, 0.0, acted), mask=has_joint)
    # The state of those that start again: torso upright at rest over the origin.
    again = valid & done
    tl.store(q, 0.0, mask=again)
    tl.store(q + 1, 0.0, mask=again)
    tl.store(q + 2, START_HEIGHT, mask=again)
    tl.store(q + 3, 1.0, mask=again)
    tl.store(q + 4, 0.0, mask=again)
    tl.store(q + 5, 0.0, mask=again)
    tl.store(q + 6, 0.0, mask=again)
    tl.store(q[:, None] + 7 + j, start, mask=has_joint & over)
    free = tl.arange(0, 8)[None, :]
    at_rest = tl.zeros((ROWS, 8), tl.float32)
    no_joint = tl.zeros((ROWS, J_TILE), tl.float32)
    w = warmstart + env * WARMSTART_STRIDE
    tl.store(v[:, None] + free, at_rest, mask=again[:, None] & (free < 6))
    tl.store(v[:, None] + 6 + j, start_rate, mask=has_joint & over)
    tl.store(w[:, None] + free, at_rest, mask=again[:, None] & (free < 6))
    tl.store(w[:, None] + 6 + j, no_joint, mask=has_joint & over)


def finish(
    tensors: Mapping[str, Tensor], forces: Sequence[Tensor], constants: Mapping[str, float | int | bool]
) -> None:
    """Launch the kernel.

    Args:
        tensors: the kernel's tensor arguments by name but for the forces; row-major where they have two axes, except
            last_place, which is [5, num_env].
        forces: the three parts of the joint forces, each [num_env, nv], or nothing when they are not observed.
        constants: the kernel's other constants by their names in small letters.
    """
    num_env, joints, sensors = tensors["reward"].shape[0], tensors["action"].shape[1], tensors["sensors"].shape[1]
    actuator, passive, constraint = forces or [tensors["qvel"]] * 3
    _finish_kernel[(triton.cdiv(num_env, _ROWS),)](
        **tensors,
        actuator=actuator,
        passive=passive,
        constraint=constraint,
        num_env=num_env,
        QPOS_STRIDE=tensors["qpos"].stride(0),
        QVEL_STRIDE=tensors["qvel"].stride(0),
        WARMSTART_STRIDE=tensors["warmstart"].stride(0),
        ACTION_STRIDE=tensors["action"].stride(0),
        SENSOR_STRIDE=tensors["sensors"].stride(0),
        FORCE_STRIDE=actuator.stride(0),
        J=joints,
        S=sensors,
        FORCES=bool(forces),
        OBS=tensors["obs"].shape[1],
        J_TILE=triton.next_power_of_2(joints),
        S_TILE=triton.next_power_of_2(sensors),
        ROWS=_ROWS,
        **{name.upper(): value for name, value in constants.items()},
        num_warps=1,
    )
