import mujoco
import numpy as np
import torch

from gmiflow.tasks.rotation import RotationMatrix


def test_quarter_turn_about_z():
    half = 0.5**0.5
    matrix = RotationMatrix(torch.device("cpu"))(torch.tensor([[half, 0.0, 0.0, half]]))
    torch.testing.assert_close(matrix[0], torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))


def test_random_quaternions_match_mujoco_in_float64():
    generator = np.random.default_rng(3)
    quaternions = generator.normal(size=(50, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    expected = np.empty((50, 9))
    for row, quaternion in zip(expected, quaternions, strict=True):
        mujoco.mju_quat2Mat(row, quaternion)
    matrix = RotationMatrix(torch.device("cpu"))(torch.tensor(quaternions, dtype=torch.float32))
    np.testing.assert_allclose(matrix.reshape(50, 9).numpy(), expected, atol=1e-6)
