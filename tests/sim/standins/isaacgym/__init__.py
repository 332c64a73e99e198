"""Stand-in for NVIDIA's Isaac Gym: as the real one, it refuses to be imported after torch."""

import sys

if "torch" in sys.modules:
    raise ImportError("PyTorch was imported before isaacgym modules.  Please import torch after isaacgym modules.")
