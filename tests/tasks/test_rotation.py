import mujoco
import numpy as np
import pytest
import torch

from gmiflow.tasks.rotation import MATRIX, RotationEntries

CPU = torch.device("cpu")


def test_quarter_turn_about_z():
    half = 0.5**0.5
    entries = RotationEntries(MATRIX, 1, CPU)(torch.tensor([[half, 0.0, 0.0, half]]))
    expected = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(entries[:, 0].view(3, 3), expected)


@pytest.mark.parametrize("room", [50, 64])
def test_random_quaternions_match_mujoco_in_float64(room):
    generator = np.random.default_rng(3)
    quaternions = generator.normal(size=(50, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    expected = np.empty((50, 9))
    for row, quaternion in zip(expected, quaternions, strict=True):
        mujoco.mju_quat2Mat(row, quaternion)
    entries = RotationEntries(MATRIX, room, CPU)(torch.tensor(quaternions, dtype=torch.float32))
    np.testing.assert_allclose(entries.T.numpy(), expected, atol=1e-6)


def test_entries_may_repeat_and_be_negated():
    quaternion = torch.nn.functional.normalize(torch.tensor([[0.3, -0.2, 0.7, 0.5]]), dim=1)
    matrix = RotationEntries(MATRIX, 1, CPU)(quaternion)[:, 0].view(3, 3)
    chosen = RotationEntries([(2, 1, 1), (1, 0, -1), (0, 0, -1), (1, 0, 1), (2, 1, 1)], 1, CPU)(quaternion)[:, 0]
    torch.testing.assert_close(
        chosen, torch.stack([matrix[2, 1], -matrix[1, 0], -matrix[0, 0], matrix[1, 0], matrix[2, 1]])
    )
