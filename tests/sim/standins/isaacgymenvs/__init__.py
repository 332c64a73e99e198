"""Stand-in for IsaacGymEnvs: the interface that it publishes, around a task of a few lines. No physics of Isaac Gym.

What is reproduced: the arguments of `make`; `num_envs`, `num_obs`, `num_acts`, `rl_device`, `gym` and `sim`; `reset`,
which gives observations that no step has filled in; `step`, which clips actions, gives (dict of observations, reward,
reset as integers, extras with "time_outs"), and starts an ended environment anew at the end of the next step.
"""

import torch
from isaacgym import gymapi

EPISODE_STEPS = 5
LIMIT = 2.0


class Point:
    """Moves by the action; the episode ends far from the origin, or after `EPISODE_STEPS`."""

    num_obs, num_acts = 4, 2

    def __init__(self, seed, num_envs, rl_device):
        self.num_envs, self.rl_device = num_envs, rl_device
        self.generator = torch.Generator().manual_seed(seed)
        self.position = torch.zeros(num_envs, 2)
        self.obs_buf = torch.zeros(num_envs, self.num_obs)
        self.reset_buf = torch.ones(num_envs, dtype=torch.long)
        self.progress_buf = torch.zeros(num_envs, dtype=torch.long)
        self.extras = {}
        self.gym = gymapi.acquire_gym()
        self.sim = self.gym.create_sim()

    def reset(self):
        return {"obs": self.obs_buf.clone()}

    def step(self, actions):
        self.position += 0.5 * actions.clamp(-1.0, 1.0)
        self.progress_buf += 1
        ended = self.reset_buf.nonzero().flatten()
        if len(ended):
            self.position[ended] = torch.rand(len(ended), 2, generator=self.generator) - 0.5
            self.progress_buf[ended] = 0
        self.obs_buf = torch.cat((self.position, torch.full((self.num_envs, 2), 7.0)), 1)
        distance = self.position.norm(dim=1)
        late = self.progress_buf >= EPISODE_STEPS - 1
        self.reset_buf = ((distance > LIMIT) | late).long()
        self.extras["time_outs"] = late.long()
        return {"obs": self.obs_buf.clone()}, -distance, self.reset_buf.clone(), self.extras


TASKS = {"Point": Point}


def make(
    seed,
    task,
    num_envs,
    sim_device,
    rl_device,
    graphics_device_id=-1,
    headless=False,
    multi_gpu=False,
    virtual_screen_capture=False,
    force_render=True,
    cfg=None,
):
    assert headless and not force_render and not multi_gpu and cfg is None and sim_device == rl_device
    return TASKS[task](seed, num_envs, rl_device)
