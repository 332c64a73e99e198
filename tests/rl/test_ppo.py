"""Actor and Learner: records, slice invariance, resume, a stale behaviour policy, and that they learn."""

from dataclasses import replace

import pytest
import torch
from rl_support import make_context, make_replica, run_members
from torch.distributions import Normal

from gmiflow.rl.ppo import Actor, Learner

TOTAL = 64


def test_experience_describes_the_action():
    replica = make_replica(actor_params={"init_log_std": -0.3})
    out = replica.actor.act({"obs": replica.obs})
    record = out["experience"]
    assert torch.equal(record["obs"], replica.obs)
    assert torch.equal(record["action"], out["action"])
    mean, std, value = replica.policy(replica.obs)
    torch.testing.assert_close(record["mean"], mean.detach())
    torch.testing.assert_close(record["std"], std.detach().expand_as(mean))
    torch.testing.assert_close(record["value"], value.detach())
    expected = Normal(record["mean"], record["std"]).log_prob(record["action"]).sum(1)
    torch.testing.assert_close(record["log_prob"], expected, rtol=1e-4, atol=1e-5)
    noise = (record["action"] - record["mean"]) / record["std"]
    assert abs(noise.mean().item()) < 0.3
    assert 0.7 < noise.std().item() < 1.3


def test_actions_differ_between_steps_and_record_is_reused():
    replica = make_replica()
    first = replica.actor.act({"obs": replica.obs})
    pointer, action = first["action"].data_ptr(), first["action"].clone()
    second = replica.actor.act({"obs": replica.obs})
    assert second["action"].data_ptr() == pointer
    assert not torch.equal(second["action"], action)


def test_first_minibatch_is_on_policy_and_moments_are_merged():
    replica = make_replica(learner_params={"epochs": 1, "minibatches": 1})
    batch = replica.collect()
    metrics = replica.learner.update(batch)
    assert abs(metrics["kl"].item()) < 1e-6
    assert metrics["clip_fraction"].item() == 0.0
    assert metrics["policy_loss"].item() == pytest.approx(0.0, abs=1e-5)  # mean of normalised advantages
    obs = batch["experience"]["obs"].reshape(-1, 5).double()
    normalizer = replica.policy.observation_normalizer
    torch.testing.assert_close(normalizer.mean, obs.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(normalizer.variance, obs.var(0, correction=0), rtol=1e-4, atol=1e-6)
    assert normalizer.count.item() == len(obs)
    returns = replica.learner._targets.returns.double()
    torch.testing.assert_close(replica.policy.value_normalizer.mean, returns.mean(), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def whole():
    return run_members([TOTAL], lambda *slice_: member(*slice_), iterations=3)[0]


def member(offset, size, communicator):
    return make_replica(
        num_env=size,
        env_offset=offset,
        num_env_total=TOTAL,
        communicator=communicator,
        learner_params={"minibatches": 4, "epochs": 2, "lr": 1e-3},
    )


@pytest.mark.parametrize("sizes", [[32, 32], [16, 16, 16, 16], [16, 48]])
def test_slicing_changes_nothing(whole, sizes):
    replicas = run_members(sizes, member, iterations=3)
    for replica in replicas[1:]:
        for name, value in replica.policy.export_state().items():
            assert torch.equal(value, replicas[0].policy.export_state()[name]), name
        assert torch.equal(replica.metrics["learning_rate"], replicas[0].metrics["learning_rate"])
        for name, value in replica.metrics.items():
            assert torch.equal(value, replicas[0].metrics[name]), name
    for name, value in whole.policy.export_state().items():
        torch.testing.assert_close(replicas[0].policy.export_state()[name], value, rtol=1e-5, atol=1e-6, msg=name)
    for name, value in whole.metrics.items():
        torch.testing.assert_close(replicas[0].metrics[name], value, rtol=1e-3, atol=1e-5, msg=name)
    start = make_replica(num_env=16).policy.flat
    assert (whole.policy.flat - start).abs().max() > 1e-3  # three iterations did move the weights


def test_resume_continues_exactly():
    straight = make_replica()
    straight.iterate(4)
    first = make_replica()
    first.iterate(2)
    second = make_replica()
    second.policy.load_state_dict(first.policy.state_dict())
    second.learner.load_state_dict(first.learner.state_dict())
    second.actor.load_state_dict(first.actor.state_dict())
    second.simulator, second.obs = first.simulator, first.obs
    second.iterate(2)
    for name, value in straight.policy.export_state().items():
        assert torch.equal(second.policy.export_state()[name], value), name


def test_a_stale_actor_is_trained_against_its_own_probabilities():
    """Separate modules: experience of an old policy and old normaliser still gives a proper update."""
    replica = make_replica(learner_params={"lr": 1e-4})
    own = make_context(params={"hidden": [16, 8]})
    behaviour = Actor.make_policy(own)
    actor = Actor()
    actor.setup(replace(own, policy=behaviour))
    replica.actor = actor
    replica.iterate(2)
    assert not torch.equal(behaviour.flat, replica.policy.flat)
    batch = replica.collect()
    stale = replica.learner.update(batch)
    assert stale["kl"].item() > 1e-4  # behaviour and trained policy are two iterations apart
    pointers = {name: value.data_ptr() for name, value in behaviour.state_dict().items()}
    actor.load_weights(replica.learner.weights())
    for name, value in replica.policy.state_dict().items():
        assert torch.equal(behaviour.state_dict()[name], value), name
        assert behaviour.state_dict()[name].data_ptr() == pointers[name]


def test_update_reads_but_does_not_write_the_batch():
    replica = make_replica()
    batch = replica.collect()
    kept = {k: v.clone() for k, v in batch["experience"].items()} | {"reward": batch["reward"].clone()}
    replica.learner.update(batch)
    for name, value in batch["experience"].items():
        assert torch.equal(value, kept[name]), name
    assert torch.equal(batch["reward"], kept["reward"])


@pytest.mark.parametrize(
    "settings", [{"normalize_value": False}, {"entropy": 0.01, "max_grad_norm": 0.0}, {"correction": "vtrace"}]
)
def test_variants_run_and_stay_finite(settings):
    replica = make_replica(actor_params={"normalize_obs": False, "activation": "tanh"}, learner_params=settings)
    replica.iterate(2)
    assert torch.isfinite(replica.policy.flat).all()
    assert replica.policy.observation_normalizer.count.item() == 0
    if "normalize_value" in settings:
        assert replica.policy.value_normalizer.count.item() == 0


def test_wrong_policy_and_unknown_parameter_are_refused():
    context = make_context()
    with pytest.raises(TypeError, match="ActorCritic"):
        Actor().setup(replace(context, policy=torch.nn.Linear(2, 2)))
    policy = Actor.make_policy(context)
    with pytest.raises(TypeError, match="momentum"):
        Learner().setup(replace(context, policy=policy, params={"momentum": 1}))


def test_learns_to_stand_at_the_origin():
    replica = make_replica(num_env=128, horizon=16, learner_params={"lr": 1e-3})
    rewards = []
    for _ in range(30):
        batch = replica.collect()
        rewards.append(batch["reward"].mean().item())
        replica.learner.update(batch)
    # At rest the reward is 1 a step; an untrained policy drifts and gets below zero.
    assert sum(rewards[:3]) / 3 < -0.5
    assert sum(rewards[-5:]) / 5 > 0.5


def test_what_an_older_policy_diverges_by_does_not_count():
    """With `max_staleness`, KL and learning rate start from the policy that the update starts from."""
    replica = make_replica(learner_params={"lr": 1e-4, "epochs": 1, "minibatches": 1})
    replica.learner.setup(replace(replica.context, params={"lr": 1e-4, "epochs": 1, "minibatches": 1}, max_staleness=1))
    own = make_context(params={"hidden": [16, 8]})
    actor = Actor()
    actor.setup(replace(own, policy=Actor.make_policy(own)))
    replica.actor = actor
    for _ in range(3):
        replica.iterate(1)
        assert replica.metrics["kl"].item() == pytest.approx(
            0.0, abs=1e-6
        )  # one minibatch: measured before the first step
    assert replica.metrics["learning_rate"].item() == pytest.approx(1e-4 * 1.5**3)


def stale_replica(correction):
    """A learner whose experience comes from an actor that never gets its weights."""
    params = {"lr": 1e-2, "epochs": 1, "minibatches": 1, "correction": correction}
    replica = make_replica()
    replica.learner.setup(replace(replica.context, params=params, max_staleness=1))
    own = make_context(params={"hidden": [16, 8]})
    actor = Actor()
    actor.setup(replace(own, policy=Actor.make_policy(own)))
    replica.actor = actor
    replica.iterate(3)
    return replica


def policy_now(replica, experience):
    """Value and log-probability, [horizon, num_env], by the policy that learns."""
    with torch.no_grad():
        mean, std, value = replica.policy(experience["obs"])
        return value, Normal(mean, std).log_prob(experience["action"]).sum(-1)


@pytest.mark.parametrize("correction", ["clip", "vtrace"])
def test_stale_experience_is_clipped_around_the_policy_that_the_update_starts_from(correction):
    """What lies between it and the policy that acted is in the advantages; the first minibatch has ratios of one."""
    replica = stale_replica(correction)
    batch = replica.collect()
    _, now = policy_now(replica, batch["experience"])
    assert (now - batch["experience"]["log_prob"]).abs().max() > 1e-3  # the policies do differ
    renewed = replica.learner._targets.compute(batch)
    torch.testing.assert_close(renewed["log_prob"], now, rtol=1e-4, atol=1e-4)
    metrics = replica.learner.update(batch)
    assert metrics["clip_fraction"].item() == 0.0
    assert metrics["kl"].item() == pytest.approx(0.0, abs=1e-6)


def test_the_ratio_to_who_acted_weighs_the_advantages_and_not_the_returns():
    replica = stale_replica("clip")
    batch = replica.collect()
    value, now = (tensor.double() for tensor in policy_now(replica, batch["experience"]))
    done = batch["terminated"] | batch["truncated"]
    following = torch.cat([value[1:], batch["bootstrap"].double()[None]])
    paid = batch["reward"].double() + 0.99 * value * batch["truncated"] + 0.99 * following * ~done - value
    advantage = torch.zeros_like(paid)
    for step in reversed(range(len(paid))):
        later = advantage[step + 1] if step + 1 < len(paid) else 0.0
        advantage[step] = paid[step] + 0.99 * 0.95 * ~done[step] * later
    weight = (now - batch["experience"]["log_prob"].double()).exp().clamp(max=1.0)
    assert weight.min() < 0.9
    replica.learner.update(batch)
    targets = replica.learner._targets
    torch.testing.assert_close(targets.advantage.double(), weight * advantage, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(targets.returns.double(), advantage + value, rtol=1e-4, atol=1e-3)
