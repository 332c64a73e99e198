import math

import torch

from gmiflow.api import Simulator


class Pendulum(Simulator):
    """Hold a pendulum upright. obs: cos, sin, angular velocity; action: torque / 2 N m."""

    capturable = True  # step() only enqueues tensor operations: it may go into a CUDA graph

    def setup(self, context):
        self.context, num_env, device = context, context.num_env, context.device
        self.state = torch.zeros(num_env, 2, device=device)  # angle from upright (rad), velocity (rad/s)
        self.age = torch.zeros(num_env, dtype=torch.int64, device=device)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)  # counter of the noise
        self.never = torch.zeros(num_env, dtype=torch.bool, device=device)
        self.spread = torch.tensor([1.0, 2.0], device=device)  # here: a copy from the host cannot be captured

    def reset(self):
        self.state.copy_(self.start())
        self.age.zero_()
        return self.observe()

    def step(self, inputs):
        torque = 2.0 * inputs["action"][:, 0].clamp(-1.0, 1.0)
        angle, velocity = self.state.unbind(1)
        velocity = velocity + 0.05 * (15.0 * torch.sin(angle) + 3.0 * torque)
        angle = angle + 0.05 * velocity
        off = torch.atan2(torch.sin(angle), torch.cos(angle))  # -pi .. pi
        reward = 1.0 - off.square() / math.pi**2 - 0.001 * torque.square()
        self.clock.add_(1)
        self.age.add_(1)
        truncated = self.age >= 200
        # Environments that ended start again before the observation is taken.
        fresh = torch.where(truncated[:, None], self.start(), torch.stack((angle, velocity), 1))
        self.state.copy_(fresh)
        self.age.masked_fill_(truncated, 0)
        return {**self.observe(), "reward": reward, "terminated": self.never, "truncated": truncated}

    def start(self):
        noise = self.context.noise.uniform("reset", self.clock, 2)  # per environment, in [0, 1)
        return (noise - 0.5) * self.spread

    def observe(self):
        angle, velocity = self.state.unbind(1)
        return {"obs": torch.stack((angle.cos(), angle.sin(), velocity), 1)}

    def state_dict(self):
        return {"state": self.state.clone(), "age": self.age.clone(), "clock": self.clock.clone()}

    def load_state_dict(self, state):
        for name, value in state.items():
            getattr(self, name).copy_(value)
