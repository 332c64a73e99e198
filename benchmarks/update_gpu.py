"""The PPO update and the policy's inference on one GPU: are the kernels right, and how fast are they?

Prints one JSON line per row: "numerics" (Triton kernels against torch operations), "update" and
"act" (milliseconds in a CUDA graph, by implementation and number of environments), "tiling" (other
cuts of the layers) and "kernels" (where one update's time goes). Sizes are Ant's: 60 observations,
8 actions, horizon 16, hidden 256-128-64, 4 epochs of 4 minibatches.

    PYTHONPATH=. python benchmarks/update_gpu.py [--num-env 1024 4096 ...] [--skip tiling kernels]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import traceback
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from gmiflow.api import StageContext
from gmiflow.rl.backend import REFERENCE
from gmiflow.rl.ppo import Actor, Learner
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.noise import CounterNoise

OBSERVATION, ACTION, HORIZON = 60, 8, 16
HIDDEN = (256, 128, 64)
REPEATS = 20
DEVICE = torch.device("cuda")


def emit(kind, **fields):
    print(json.dumps({"row": kind, **fields}), flush=True)


def make_context(num_env, precision, hidden=HIDDEN):
    return StageContext(
        stage="benchmark",
        device=DEVICE,
        num_env=num_env,
        env_offset=0,
        num_env_total=num_env,
        horizon=HORIZON,
        stratum=16,
        seed=1,
        params={"hidden": list(hidden)},
        shapes={"O": OBSERVATION, "A": ACTION},
        communicator=LocalCollective.alone("benchmark", 0),
        noise=CounterNoise(seed=1, num_env=num_env, env_offset=0, device=DEVICE),
        precision=precision,
    )


def make_learner(backend, num_env, precision):
    context = make_context(num_env, precision)
    policy = Actor.make_policy(context)
    learner = Learner(backend)
    learner.setup(replace(context, policy=policy, params={}))
    return policy, learner


def make_batch(policy, num_env):
    """A plausible rollout of ``policy``: its own means and values, random observations and rewards."""
    generator = torch.Generator(DEVICE).manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, device=DEVICE, generator=generator)

    obs = normal(HORIZON, num_env, OBSERVATION)
    with torch.no_grad():
        mean, std, value = policy(obs)
    noise = normal(HORIZON, num_env, ACTION)
    log_prob = -0.5 * noise.square().sum(-1) - std.log().sum() - ACTION * 0.5 * math.log(2 * math.pi)
    return {
        "experience": {
            "obs": obs,
            "action": mean + std * noise,
            "log_prob": log_prob,
            "mean": mean.contiguous(),
            "std": std.expand_as(mean).contiguous(),
            "value": value.contiguous(),
        },
        "bootstrap": normal(num_env),
        "reward": normal(HORIZON, num_env),
        "terminated": normal(HORIZON, num_env) > 2.5,
        "truncated": normal(HORIZON, num_env) > 2.5,
    }


class AutogradLearner:
    """What one writes first: two nn.Sequential, autograd, one index per tensor, torch's fused Adam."""

    def __init__(self, num_env):
        def network(outputs):
            sizes, layers = (OBSERVATION, *HIDDEN), []
            for inputs, width in pairwise(sizes):
                layers += [nn.Linear(inputs, width), nn.ELU()]
            return nn.Sequential(*layers, nn.Linear(HIDDEN[-1], outputs)).to(DEVICE)

        self.actor, self.critic = network(ACTION), network(1)
        self.log_std = nn.Parameter(torch.zeros(ACTION, device=DEVICE))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        self.rate = torch.tensor(3e-4, device=DEVICE)
        self.adam = torch.optim.Adam(self.parameters, lr=self.rate, fused=True, capturable=True)
        self.samples = num_env * HORIZON

    def update(self, batch):
        """As `Learner.update`."""
        experience = batch["experience"]
        value, advantage = experience["value"], torch.zeros_like(batch["reward"])
        following, running = batch["bootstrap"], torch.zeros_like(batch["bootstrap"])
        for t in range(HORIZON - 1, -1, -1):
            going = 1.0 - (batch["terminated"][t] | batch["truncated"][t]).float()
            reward = batch["reward"][t] + 0.99 * value[t] * batch["truncated"][t]
            running = reward + 0.99 * following * going - value[t] + 0.99 * 0.95 * going * running
            advantage[t], following = running, value[t]
        returns = advantage + value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        flat = {k: v.flatten(0, 1) for k, v in {**experience, "advantage": advantage, "returns": returns}.items()}
        for _ in range(4):
            for index in torch.rand(self.samples, device=DEVICE).argsort().chunk(4):
                self.minibatch({k: v[index] for k, v in flat.items()})
        return {}

    def minibatch(self, rows):
        """One step of the optimizer."""
        loss, kl = self.loss(rows)
        rate = torch.where(kl > 0.016, self.rate / 1.5, torch.where(kl < 0.004, self.rate * 1.5, self.rate))
        self.rate.copy_(rate.clamp(1e-6, 1e-2))
        self.adam.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.adam.step()

    def loss(self, rows):
        """Loss and KL divergence of a minibatch."""
        policy = torch.distributions.Normal(self.actor(rows["obs"]), self.log_std.exp(), validate_args=False)
        ratio = (policy.log_prob(rows["action"]).sum(1) - rows["log_prob"]).exp()
        surrogate = torch.min(ratio * rows["advantage"], ratio.clamp(0.8, 1.2) * rows["advantage"])
        value = self.critic(rows["obs"]).squeeze(1)
        near = rows["value"] + (value - rows["value"]).clamp(-0.2, 0.2)
        error = torch.max((value - rows["returns"]).square(), (near - rows["returns"]).square())
        excess = (policy.mean.abs() - 1.1).clamp(min=0.0).square().sum(1)
        with torch.no_grad():
            old = torch.distributions.Normal(rows["mean"], rows["std"], validate_args=False)
            kl = torch.distributions.kl_divergence(old, policy).sum(1).mean()
        return (-surrogate + error + 1e-4 * excess).mean(), kl


def hybrid_backend(triton_backend):
    """Use cuBLAS for the layers, Triton for everything else."""
    from gmiflow.rl.kernels import gradient as kernels
    from gmiflow.rl.network import NetworkPass

    class HybridGradient(kernels.TritonGradient):
        def _allocate(self, batches):
            super()._allocate(batches)
            policy = self._policy
            self._passes = {
                n: NetworkPass(policy.layout, policy.activation, self._flat, n, self.gradient) for n in batches
            }

        def compute(self, rows, weight):
            batch = rows.packed.shape[0]
            network, partial = self._passes[batch], self._loss_partials[batch]
            self._loss(rows, network.forward(rows.input), network.output_gradient, partial, weight)
            network.backward(rows.input)
            self._reduce(partial, partial, 0, (1,))

    return replace(triton_backend, gradient=HybridGradient)


def variants():
    """Name to (backend or None for autograd, precision, torch may use TF32)."""
    table = {
        "autograd f32": (None, "f32", False),
        "autograd tf32": (None, "f32", True),
        "compiled tf32": (None, "f32", True),
        "torch f32": (REFERENCE, "f32", False),
        "torch tf32": (REFERENCE, "f32", True),
    }
    try:
        from gmiflow.rl.kernels import TRITON
    except ImportError as error:
        emit("missing", what="triton", error=str(error))
        return table
    table["cublas+triton f32"] = (hybrid_backend(TRITON), "f32", False)
    table["cublas+triton tf32"] = (hybrid_backend(TRITON), "f32", True)
    table |= {f"triton {precision}": (TRITON, precision, False) for precision in ("f32", "tf32", "bf16")}
    return table


def time_graph(call, repeats=REPEATS):
    """Median milliseconds of one replay of ``call`` captured, and of one eager call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    eager = time_calls(call, 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for _ in range(3):
        graph.replay()
    return time_calls(graph.replay, repeats), eager


def time_calls(call, repeats):
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def guarded(kind, **fields):
    """Run a row; a failure is a row too, so that one bad variant does not cost the others."""

    def decorate(function):
        try:
            emit(kind, **fields, **function())
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            emit(kind, **fields, error=f"{type(error).__name__}: {error}"[:500])

    return decorate


def check_numerics(table):
    """Weights and metrics after one update, against torch operations in full precision."""
    num_env = 512
    torch.backends.cuda.matmul.allow_tf32 = False
    policy, learner = make_learner(REFERENCE, num_env, "f32")
    batch = make_batch(policy, num_env)
    start = policy.flat.detach().clone()
    expected = {k: float(v) for k, v in learner.update(batch).items()}
    moved = (policy.flat.detach() - start).abs().max().item()
    for name, (backend, precision, tf32) in table.items():
        if backend is None or name == "torch f32":
            continue

        @guarded("numerics", variant=name)
        def _(backend=backend, precision=precision, tf32=tf32):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            other, ours = make_learner(backend, num_env, precision)
            metrics = {k: float(v) for k, v in ours.update(batch).items()}
            return {
                "weights_max_difference": (other.flat - policy.flat).abs().max().item(),
                "weights_max_movement": moved,
                "metrics_max_difference": max(abs(metrics[k] - expected[k]) for k in expected),
                "kl": [metrics["kl"], expected["kl"]],
                "value_loss": [metrics["value_loss"], expected["value_loss"]],
                "finite": bool(torch.isfinite(other.flat).all()),
            }


def time_updates(table, sizes):
    for num_env in sizes:
        for name, (backend, precision, tf32) in table.items():
            if name.startswith("compiled") and num_env != 4096:
                continue

            @guarded("update", variant=name, num_env=num_env)
            def _(name=name, backend=backend, precision=precision, tf32=tf32, num_env=num_env):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                policy, learner = make_learner(backend or REFERENCE, num_env, precision)
                batch = make_batch(policy, num_env)
                if backend is None:
                    learner = AutogradLearner(num_env)
                    if name.startswith("compiled"):
                        learner.loss = torch.compile(learner.loss, dynamic=False)
                graph_ms, eager_ms = time_graph(lambda: learner.update(batch))
                return {"graph_ms": round(graph_ms, 3), "eager_ms": round(eager_ms, 3)}

            torch.cuda.empty_cache()


def time_acting(table, sizes):
    for num_env in sizes:
        for name, (backend, precision, tf32) in table.items():
            if backend is None or name.startswith("cublas"):
                continue

            @guarded("act", variant=name, num_env=num_env)
            def _(backend=backend, precision=precision, tf32=tf32, num_env=num_env):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                context = make_context(num_env, precision)
                actor = Actor(backend)
                actor.setup(replace(context, policy=Actor.make_policy(context)))
                obs = torch.randn(num_env, OBSERVATION, device=DEVICE)
                step = torch.zeros((), dtype=torch.int64, device=DEVICE)
                act_ms, _ = time_graph(lambda: actor.act({"obs": obs}))
                noise_ms, _ = time_graph(lambda: context.noise.normal("action", step, ACTION))
                return {"graph_ms": round(act_ms, 4), "of_which_noise_ms": round(noise_ms, 4)}


def compare_inference_tilings(sizes):
    from gmiflow.rl.kernels import TRITON
    from gmiflow.rl.kernels.inference import TritonInference
    from gmiflow.rl.kernels.network import Tiling

    changes = [{"batch": 32, "warps": 4}, {"batch": 64, "warps": 4}, {"batch": 128}, {"batch": 64, "columns": 64}]
    for num_env in sizes:
        for change in changes:

            @guarded("act tiling", num_env=num_env, precision="tf32", change=change)
            def _(num_env=num_env, change=change):
                kind = type("Tuned", (TritonInference,), {"tiling": Tiling(**change)})
                context = make_context(num_env, "tf32")
                actor = Actor(replace(TRITON, inference=kind))
                actor.setup(replace(context, policy=Actor.make_policy(context)))
                obs = torch.randn(num_env, OBSERVATION, device=DEVICE)
                act_ms, _ = time_graph(lambda: actor.act({"obs": obs}))
                return {"graph_ms": round(act_ms, 4)}


def compare_tilings(num_env):
    from gmiflow.rl.kernels import TRITON
    from gmiflow.rl.kernels.gradient import TritonGradient
    from gmiflow.rl.kernels.network import Tiling

    changes = [
        {},
        {"batch": 64},
        {"batch": 64, "warps": 4},
        {"columns": 256},
        {"columns": 64, "warps": 4},
        {"step": 64},
        {"stages": 2},
        {"stages": 4},
        {"split": 512},
        {"split": 2048},
        {"weight": 128, "weight_warps": 8},
        {"weight_step": 64},
        {"weight_step": 64, "split": 512},
    ]
    for precision in ("tf32", "bf16"):
        for change in changes:

            @guarded("tiling", num_env=num_env, precision=precision, change=change)
            def _(precision=precision, change=change):
                kind = type("Tuned", (TritonGradient,), {"tiling": Tiling(**change)})
                policy, learner = make_learner(replace(TRITON, gradient=kind), num_env, precision)
                batch = make_batch(policy, num_env)
                graph_ms, _ = time_graph(lambda: learner.update(batch))
                return {"graph_ms": round(graph_ms, 3)}


def show_kernels(table, num_env):
    """Microseconds and launches per update by kernel, from the profiler over one graph replay."""
    for name in ("torch tf32", "cublas+triton tf32", "triton tf32", "triton bf16"):
        if name not in table:
            continue
        backend, precision, tf32 = table[name]

        @guarded("kernels", variant=name, num_env=num_env)
        def _(backend=backend, precision=precision, tf32=tf32):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            policy, learner = make_learner(backend, num_env, precision)
            batch = make_batch(policy, num_env)
            time_graph(lambda: learner.update(batch), 3)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                learner.update(batch)
                torch.cuda.synchronize()
            events = [e for e in profile.key_averages() if e.self_device_time_total > 0]
            events.sort(key=lambda e: -e.self_device_time_total)
            return {
                "total_us": round(sum(e.self_device_time_total for e in events)),
                "launches": sum(e.count for e in events),
                "top": [[e.key[:60], e.count, round(e.self_device_time_total)] for e in events[:16]],
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-env", type=int, nargs="+", default=[1024, 4096, 16384, 65536])
    parser.add_argument("--skip", nargs="*", default=[], choices=["numerics", "update", "act", "tiling", "kernels"])
    arguments = parser.parse_args()
    started = time.perf_counter()
    emit("machine", gpu=torch.cuda.get_device_name(), torch=torch.__version__, cuda=torch.version.cuda)
    table = variants()
    middle = 4096 if 4096 in arguments.num_env else arguments.num_env[0]
    jobs = {
        "numerics": lambda: check_numerics(table),
        "update": lambda: time_updates(table, arguments.num_env),
        "act": lambda: time_acting(table, arguments.num_env),
        "kernels": lambda: show_kernels(table, middle),
        "tiling": lambda: (compare_tilings(middle), compare_inference_tilings(arguments.num_env)),
    }
    for name, job in jobs.items():
        if name not in arguments.skip:
            job()
            emit("done", job=name, elapsed_s=round(time.perf_counter() - started, 1))


if __name__ == "__main__":
    main()
