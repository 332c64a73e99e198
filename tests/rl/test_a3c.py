"""The asynchronous learner: its gradient against autograd in float64, shared optimizers, what replicas share."""

import math
from dataclasses import replace

import pytest
import torch
from recording import record
from rl_support import Points, make_context
from torch.distributions import Normal

from gmiflow.api import Trainer
from gmiflow.rl.a3c import Learner
from gmiflow.rl.ppo import Actor
from gmiflow.rl.shared_optimizer import SharedAdam, SharedRMSprop

GAMMA, ENTROPY, VALUE_COEF, REWARD_SCALE = 0.9, 0.01, 0.7, 0.5


def make_learner(device="cpu", **params):
    """An actor and a learner with policies of their own, and a rollout of eight steps of 32 environments."""
    base = make_context(device=device, params={"hidden": [16, 8], "init_log_std": -0.3})
    acting, trained = (Actor.make_policy(base) for _ in range(2))
    actor, learner, simulator = Actor(), Learner(), Points()
    actor.setup(replace(base, policy=acting))
    learner.setup(replace(base, policy=trained, params=params))
    simulator.setup(base)
    obs = simulator.reset()["obs"]
    steps = []
    for _ in range(base.horizon):
        acted = actor.act({"obs": obs})
        record = {name: acted["experience"][name].clone() for name in ("obs", "action", "log_prob")}
        out = simulator.step({"action": acted["action"]})
        obs = out["obs"]
        steps.append({"experience": record, **{name: out[name] for name in ("reward", "terminated", "truncated")}})
    batch = {name: torch.stack([s[name] for s in steps]) for name in ("reward", "terminated", "truncated")}
    batch["experience"] = {
        name: torch.stack([s["experience"][name] for s in steps]) for name in ("obs", "action", "log_prob")
    }
    batch["bootstrap"] = actor.finish({"obs": obs})["bootstrap"].clone()
    return learner, trained, batch


def expected_gradient(policy, batch):
    """Of the published objective, in float64, with respect to the flat parameters."""
    exact = type(policy)(observation=5, action=3, hidden=(16, 8), device="cpu").double()
    exact.load_state_dict({name: value.double() for name, value in policy.state_dict().items()})
    record = {name: value.double() for name, value in batch["experience"].items()}
    mean, std, value = exact(record["obs"])
    returns, following = torch.zeros_like(value), batch["bootstrap"].double()
    for step in range(len(returns) - 1, -1, -1):
        going = ~(batch["terminated"][step] | batch["truncated"][step])
        reward = REWARD_SCALE * batch["reward"][step].double() + GAMMA * value[step].detach() * batch["truncated"][step]
        following = returns[step] = reward + GAMMA * going * following
    advantage = (returns - value).detach()
    distribution = Normal(mean, std.expand_as(mean))
    gain = distribution.log_prob(record["action"]).sum(-1) * advantage + ENTROPY * distribution.entropy().sum(-1)
    loss = (VALUE_COEF * 0.5 * (value - returns.detach()).square() - gain).mean()
    return torch.autograd.grad(loss, exact.flat)[0]


def test_the_gradient_is_that_of_the_published_objective():
    learner, policy, batch = make_learner(
        gamma=GAMMA, entropy=ENTROPY, value_coef=VALUE_COEF, reward_scale=REWARD_SCALE, bounds_loss=0.0
    )
    assert bool(batch["truncated"].any())
    metrics = learner.gradient(batch)
    wanted = expected_gradient(policy, batch)
    torch.testing.assert_close(learner._gradient.gradient.double(), wanted, rtol=1e-4, atol=1e-6)
    assert metrics["gradient_norm"].item() == pytest.approx(wanted.norm().item(), rel=1e-4)


def test_vtrace_changes_nothing_of_experience_of_the_same_policy():
    learner, _, batch = make_learner(gamma=GAMMA)
    corrected, _, _ = make_learner(gamma=GAMMA, correction="vtrace")
    learner.gradient(batch)
    corrected.gradient(batch)
    torch.testing.assert_close(corrected._gradient.gradient, learner._gradient.gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_what_one_learner_applies_the_other_pulls(optimizer):
    (first, own, batch), (second, other, _) = (make_learner(optimizer=optimizer) for _ in range(2))
    shared = {name: value.clone() for name, value in first.share().items()}
    for learner in (first, second):
        learner.attach(shared)
    first.gradient(batch)
    before = other.flat.clone()
    first.apply()
    assert torch.equal(own.flat, before) and torch.equal(other.flat, before)  # until they pull
    second.pull()
    assert torch.equal(other.flat, shared["policy.flat"]) and not torch.equal(other.flat, before)
    second.gradient(batch)
    second.apply()
    first.pull()
    assert shared["trainer.updates"].item() == 2
    assert torch.equal(first.weights()["flat"], second.weights()["flat"])
    obs = batch["experience"]["obs"].reshape(-1, 5).double()
    assert own.observation_normalizer.count.item() == 2 * len(obs)
    torch.testing.assert_close(own.observation_normalizer.mean, obs.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_the_gradient_that_was_replayed_last_is_applied(device, correction):
    """On a GPU there is a graph of `gradient` for each slot of a channel; `apply` is that of whichever ran."""
    # With this epsilon rounding of gradients near zero stays what it is, and does not become a step of full length.
    params = {"correction": correction, "epsilon": 1e-3}
    (eager, own, batch), (captured, other, _) = (make_learner(device, **params) for _ in range(2))
    _, _, second = make_learner(device)
    second["experience"]["obs"].mul_(0.5).add_(1.0)
    captured.attach({name: value.cpu().clone() for name, value in captured.share().items()})
    replays = [record(lambda slot=slot: captured.gradient(slot), device) for slot in (batch, second)]
    for number in (0, 1, 0):
        eager.update((batch, second)[number])
        captured.pull()
        replays[number]()
        captured.apply()
    captured.pull()
    tolerance = {"rtol": 0.0, "atol": 0.0} if device == "cpu" else {"rtol": 1e-4, "atol": 1e-5}
    for name, value in own.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, **tolerance)


def test_applied_to_shared_memory_or_not_an_update_is_the_same():
    (alone, own, batch), (attached, other, _) = (make_learner() for _ in range(2))
    attached.attach({name: value.clone() for name, value in attached.share().items()})
    for learner in (alone, attached):
        for _ in range(3):
            learner.update(batch)
        learner.pull()
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in own.state_dict().items())
    assert isinstance(alone, Trainer)


def test_its_state_goes_on_elsewhere():
    (learner, policy, batch), (resumed, copy, _) = (make_learner() for _ in range(2))
    learner.update(batch)
    copy.load_state_dict(policy.state_dict())
    resumed.load_state_dict(learner.state_dict())
    for trainer in (learner, resumed):
        trainer.update(batch)
    assert torch.equal(copy.flat, policy.flat)


def test_rmsprop_by_hand():
    # |(3, 4)| = 5 is clipped to (0.6, 0.8); g = 0.01 d^2 = (0.0036, 0.0064); d / sqrt(g + 0.0036) = (7.0711, 8).
    flat = torch.tensor([1.0, 1.0])
    optimizer = SharedRMSprop(flat, learning_rate=0.1, max_grad_norm=1.0, epsilon=0.0036)
    gradient = torch.tensor([3.0, 4.0])
    optimizer.step(gradient)
    assert flat.tolist() == pytest.approx([1 - 0.06 / math.sqrt(0.0072), 0.2], rel=1e-5)
    assert optimizer.state["square"].tolist() == pytest.approx([0.0036, 0.0064], rel=1e-5)
    assert gradient.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("optimizer", [SharedAdam, SharedRMSprop])
def test_an_optimizer_made_on_a_device_steps_where_the_shared_parameters_are(optimizer):
    """A trainer's policy is on its GPU, and what is shared is not; here the device is one that holds no numbers."""
    settings = {"learning_rate": 0.1, "max_grad_norm": 1.0, "epsilon": 1e-3}
    gradient = torch.tensor([0.3, -0.4])
    expected, shared = torch.ones(2), torch.ones(2)
    optimizer(expected, **settings).step(gradient)
    elsewhere = optimizer(torch.ones(2, device="meta"), **settings)
    elsewhere.adopt(shared, optimizer(shared, **settings).state)
    elsewhere.step(gradient)
    assert torch.equal(shared, expected) and not torch.equal(shared, torch.ones(2))


def test_adam_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(100, generator=generator)
    flat, reference = start.clone(), torch.nn.Parameter(start.double())
    ours = SharedAdam(flat, learning_rate=3e-3, max_grad_norm=1e9)
    adam = torch.optim.Adam([reference], lr=3e-3)
    for _ in range(20):
        gradient = torch.randn(100, generator=generator)
        reference.grad = gradient.double()
        adam.step()
        ours.step(gradient)
    torch.testing.assert_close(flat.double(), reference.detach(), rtol=1e-5, atol=1e-6)
