"""The batched network: forward and hand-written backward against autograd in float64."""

import pytest
import torch

from gmiflow.rl.layout import declared_policy
from gmiflow.rl.models import ActorCritic
from gmiflow.rl.network import ACTOR, CRITIC, NetworkPass

F64 = torch.float64


def make_policy(activation="elu", hidden=(7, 12), seed=4, **settings):
    return ActorCritic(observation=5, action=3, hidden=hidden, activation=activation, seed=seed, **settings)


def padded(policy, obs):
    rows = torch.zeros((len(obs), policy.layout.layers[0].rows), dtype=obs.dtype)
    rows[:, : obs.shape[1]] = obs
    rows[:, obs.shape[1]] = 1.0
    return rows


@pytest.mark.parametrize("hidden", [[7, 12], [16], [9, 8, 7]])
def test_a_declaration_tells_the_tensors_of_the_policy(hidden):
    """Just what `ActorCritic` has: by it the launcher refuses checkpoints, and none that fits."""
    told = declared_policy("gmiflow.rl.ppo:Actor", {"hidden": hidden, "normalize_obs": False}, {"O": 5, "A": 3})
    made = make_policy(hidden=tuple(hidden), normalize_obs=False).state_dict()
    assert told == {name: tuple(value.shape) for name, value in made.items()}


def test_what_only_a_class_knows_is_not_guessed():
    shapes = {"O": 5, "A": 3}
    assert declared_policy("own:Actor", {"hidden": [8]}, shapes) is None
    assert declared_policy("gmiflow.rl.ppo:Actor", {"hidden": [8]}, {"O": 5}) is None
    assert declared_policy("gmiflow.rl.ppo:Actor", {"hidden": ["8"]}, shapes) is None


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("hidden", [(7, 12), (16,), (9, 8, 7)])
def test_forward_and_backward_equal_autograd(activation, hidden):
    policy = make_policy(activation, hidden).double()
    policy.flat.data.add_(0.3 * torch.randn(policy.layout.size, dtype=F64, generator=torch.Generator().manual_seed(1)))
    obs = torch.randn(11, 5, dtype=F64, generator=torch.Generator().manual_seed(2))
    upstream = torch.randn(11, 4, dtype=F64, generator=torch.Generator().manual_seed(3))
    mean, value = policy.evaluate(obs)
    torch.cat([mean, value.unsqueeze(1)], dim=1).mul(upstream).sum().backward()
    gradient = torch.full((policy.layout.size,), 7.0, dtype=F64)
    network = NetworkPass(policy.layout, policy.activation, policy.flat.detach(), 11, gradient)
    output = network.forward(padded(policy, obs))
    torch.testing.assert_close(output[ACTOR], mean.detach())
    torch.testing.assert_close(output[CRITIC, :, 0], value.detach())
    network.output_gradient[ACTOR] = upstream[:, :3]
    network.output_gradient[CRITIC, :, 0] = upstream[:, 3]
    network.backward(padded(policy, obs))
    used = slice(0, policy.layout.log_std_start)
    expected = policy.flat.grad
    assert expected is not None
    torch.testing.assert_close(gradient[used], expected[used], rtol=1e-9, atol=1e-12)


def test_padding_and_unused_outputs_stay_zero():
    policy = make_policy()
    for layer, weight in zip(policy.layout.layers, policy.layout.weights(policy.flat.detach()), strict=True):
        assert not weight[:, layer.inputs + 1 :].any()
    assert not policy.layout.weights(policy.flat.detach())[-1][CRITIC, :, 1:].any()


def test_parameters_do_not_depend_on_the_global_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = make_policy().flat
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(make_policy().flat, first)
    assert not torch.equal(make_policy(seed=5).flat, first)


def test_initial_weights_are_bounded_and_first_actions_unbiased():
    policy = make_policy(hidden=(64, 32), init_log_std=-0.5)
    weight, bias = policy.linear(CRITIC, 0)
    assert weight.shape == (64, 5)
    assert weight.abs().max() <= 5**-0.5
    assert weight.std().item() == pytest.approx((1 / 15) ** 0.5, rel=0.1)
    assert not bias.any()
    mean, std, value = policy(torch.randn(100, 5, generator=torch.Generator().manual_seed(0)))
    assert mean.abs().max() < 0.02
    assert torch.allclose(std, torch.tensor(-0.5).exp())
    assert value.shape == (100,)
    assert value.std() > 0.02


def test_forward_normalises_and_clamps_observations():
    policy = make_policy()
    policy.observation_normalizer.merge(torch.full((5,), 10.0).double(), torch.full((5,), 4.0).double(), 100)
    at_limit, beyond = policy(torch.full((1, 5), 20.0 + 1e-3))[0], policy(torch.full((1, 5), 1e6))[0]
    assert torch.equal(at_limit, beyond)
    assert not torch.equal(policy(torch.full((1, 5), 19.0))[0], beyond)


def test_hidden_layers_are_required():
    with pytest.raises(ValueError, match="hidden"):
        make_policy(hidden=())


def test_copies_and_state_dicts_carry_everything():
    policy, other = make_policy(), make_policy(seed=9)
    policy.observation_normalizer.merge(torch.ones(5).double(), torch.ones(5).double(), 10)
    other.load_state_dict(policy.state_dict())
    obs = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for mine, theirs in zip(policy(obs), other(obs), strict=True):
        assert torch.equal(mine, theirs)
