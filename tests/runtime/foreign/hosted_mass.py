"""Simulators for an interpreter of their own: NumPy alone, Python 3.8, nothing of gmiflow."""

import os
import subprocess
import sys
import time

import numpy as np

DT = np.float32(0.1)
EPISODE_STEPS = 20


class PointMass:
    """A mass in the plane that shall go to the origin; writes into the shared buffers."""

    def setup(self, context):
        self.context, self.out = context, context.buffers
        self.obs = context.buffers["obs"]
        self.age = np.zeros(context.num_env, np.int64)

    def start(self):
        """Where an environment starts depends on the seed and its global number alone."""
        number = self.context.env_offset + np.arange(self.context.num_env)
        spread = np.stack([np.sin(number + 2 * k + self.context.seed) for k in range(4)], 1)
        return spread.astype(np.float32)

    def reset(self):
        self.obs[:] = self.start()
        self.age[:] = 0
        return self.out

    def observe(self):
        return self.out

    def step(self, inputs):
        self.age += 1
        self.obs[:, 2:] += DT * np.clip(inputs["action"], -1, 1)
        self.obs[:, :2] += DT * self.obs[:, 2:]
        distance = np.square(self.obs[:, :2]).sum(1)
        np.negative(distance, out=self.out["reward"])
        np.greater(distance, 9, out=self.out["terminated"])
        self.out["truncated"][:] = (self.age >= EPISODE_STEPS) & ~self.out["terminated"]
        done = self.out["terminated"] | self.out["truncated"]
        self.obs[done] = self.start()[done]
        self.age[done] = 0
        return self.out

    def state_dict(self):
        return {"obs": self.obs, "age": self.age, "tick": np.array(3)}

    def load_state_dict(self, state):
        self.obs[:] = state["obs"]
        self.age[:] = state["age"]
        assert state["tick"].shape == ()

    def diagnostics(self):
        return {"oldest": self.age.max(), "borrowed": "gmiflow" in sys.modules or "torch" in sys.modules}


class Idle(PointMass):
    """Does nothing in a step: what remains is the way there and back."""

    def step(self, inputs):
        return self.out


class OwnArrays(PointMass):
    """Returns arrays of its own, of other element types; has nothing that is optional."""

    observe = state_dict = load_state_dict = diagnostics = None

    def step(self, inputs):
        super().step(inputs)
        ends = {name: self.out[name].astype(np.int64) for name in ("terminated", "truncated")}
        return dict(ends, obs=self.obs.astype(np.float64), reward=self.out["reward"].tolist())


class Odd(PointMass):
    """Goes wrong in the way that the parameter `odd` names."""

    def __init__(self):
        self.closed = None

    def setup(self, context):
        super().setup(context)
        self.odd = context.params["odd"]
        self.closed = context.params.get("closed")
        if self.odd == "detaches":  # one child, and one that is nobody's
            self.child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            subprocess.check_call(["sh", "-c", "setsid sleep 601 &"])
        if self.odd == "child":
            self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def step(self, inputs):
        returned = dict(super().step(inputs))
        return getattr(self, "_" + self.odd, lambda value: value)(returned)

    def close(self):
        if self.odd == "close":
            raise OSError("cannot close")
        while self.odd == "lingers":
            pass
        if self.closed:
            with open(self.closed, "w") as file:
                file.write("closed")

    def _shape(self, returned):
        return dict(returned, obs=np.zeros((3, 4), np.float32))

    def _dtype(self, returned):
        return dict(returned, terminated=np.zeros(self.context.num_env))

    def _missing(self, returned):
        del returned["reward"]
        return returned

    def _tuple(self, returned):
        return tuple(returned.values())

    def _raises(self, returned):
        raise ValueError("the pole broke")

    def _exits(self, returned):
        sys.exit(3)

    def _dies(self, returned):
        sys.stderr.write("the physics\nran out of contacts\n")
        os.abort()

    def _sleeps(self, returned):
        time.sleep(600)

    def _detaches(self, returned):
        time.sleep(0.02)
        return returned

    def _computes(self, returned):
        end = time.monotonic() + 0.9
        while time.monotonic() < end:
            pass
        return returned

    def _talks(self, returned):
        print("a word")
        sys.stderr.write("another\n")
        return returned


class Records:
    """Has a record of observations and one that nothing reads."""

    def setup(self, context):
        assert sorted(context.buffers) == ["obs", "reward", "terminated", "truncated"]
        assert sorted(context.buffers["obs"]) == ["joints", "target"]
        self.ones = np.ones((context.num_env, 2))

    def reset(self):
        return {"obs": {"joints": self.ones, "target": 2 * self.ones[:, 0]}}

    def step(self, inputs):
        ended = np.zeros(len(self.ones), bool)
        reward = inputs["action"]["force"].sum(1) + inputs["action"]["grip"]
        return dict(self.reset(), reward=reward, terminated=ended, truncated=ended)


class Incomplete:
    """Has no `step`."""

    def setup(self, context):
        pass

    def reset(self):
        return {}
