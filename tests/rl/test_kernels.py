"""Triton kernels against the torch operations, on a GPU."""

from dataclasses import replace

import pytest
import torch
from rl_support import Actor, Learner, make_context, make_replica

from gmiflow.rl.backend import REFERENCE, select_backend
from gmiflow.rl.models import ActorCritic

pytestmark = pytest.mark.gpu

PARAMS = {"minibatches": 3, "epochs": 2, "lr": 1e-3, "entropy": 0.01}


def make(backend, precision="f32", correction=None, **settings):
    """A replica on the GPU; with a correction its learner expects experience of older policies."""
    replica = make_replica(device="cuda", num_env=48, horizon=6, **settings)
    replica.learner = Learner(backend)
    params = PARAMS if correction is None else {**PARAMS, "correction": correction}
    staleness = 0 if correction is None else 1
    replica.learner.setup(replace(replica.context, params=params, precision=precision, max_staleness=staleness))
    replica.actor = Actor(backend)
    replica.actor.setup(replace(replica.context, precision=precision))
    return replica


@pytest.fixture(scope="module")
def triton():
    return select_backend(torch.device("cuda"))


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("hidden", [[20, 9], [64], [40, 136, 24]])
def test_update_equals_torch_operations(triton, activation, hidden):
    params = {"hidden": hidden, "activation": activation}
    reference, ours = make(REFERENCE, actor_params=params), make(triton, actor_params=params)
    for _ in range(2):
        batch = reference.collect()
        expected, metrics = reference.learner.update(batch), ours.learner.update(batch)
        assert torch.equal(reference.learner._minibatches.order, ours.learner._minibatches.order)
        for name, value in reference.policy.export_state().items():
            torch.testing.assert_close(ours.policy.export_state()[name], value, rtol=1e-4, atol=1e-5, msg=name)
        for name, value in expected.items():
            torch.testing.assert_close(metrics[name], value, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("correction", ["clip", "vtrace"])
def test_update_from_old_experience_equals_torch_operations(triton, correction):
    reference, ours = make(REFERENCE, correction=correction), make(triton, correction=correction)
    old = reference.collect()
    for batch in (reference.collect(), old, old):  # the last two are of policies of before
        expected, metrics = reference.learner.update(batch), ours.learner.update(batch)
        for name, value in reference.policy.export_state().items():
            torch.testing.assert_close(ours.policy.export_state()[name], value, rtol=1e-4, atol=1e-5, msg=name)
        for name, value in expected.items():
            torch.testing.assert_close(metrics[name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_acting_equals_torch_operations(triton):
    reference, ours = make(REFERENCE), make(triton)
    for replica in (reference, ours):
        replica.policy.observation_normalizer.merge(torch.ones(5).double().cuda(), torch.ones(5).double().cuda(), 9)
        replica.policy.value_normalizer.merge(torch.tensor(3.0).double().cuda(), torch.tensor(2.0).double().cuda(), 9)
    expected, out = (replica.actor.act({"obs": reference.obs}) for replica in (reference, ours))
    for name, value in expected["experience"].items():
        torch.testing.assert_close(out["experience"][name], value, rtol=1e-5, atol=1e-5, msg=name)
    expected, out = (replica.actor.finish({"obs": reference.obs}) for replica in (reference, ours))
    torch.testing.assert_close(out["bootstrap"], expected["bootstrap"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_lower_precision_stays_close(triton, precision):
    reference, ours = make(REFERENCE), make(triton, precision)
    batch = reference.collect()
    expected, metrics = reference.learner.update(batch), ours.learner.update(batch)
    for name in ("policy_loss", "value_loss", "gradient_norm"):
        torch.testing.assert_close(metrics[name], expected[name], rtol=0.1, atol=0.01, msg=name)


@pytest.mark.parametrize("correction", [None, "clip", "vtrace"])
def test_captured_update_equals_eager(triton, correction):
    eager, captured = make(triton, correction=correction), make(triton, correction=correction)
    batches = [eager.collect() for _ in range(4)]
    static = {k: v.clone() for k, v in batches[0].items() if k != "experience"}
    static["experience"] = {k: v.clone() for k, v in batches[0]["experience"].items()}

    def load(batch):
        for name, value in batch.items():
            if name == "experience":
                for field, tensor in value.items():
                    static["experience"][field].copy_(tensor)
            else:
                static[name].copy_(value)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        captured.learner.update(static)  # warm-up: compiles the kernels
    torch.cuda.current_stream().wait_stream(stream)
    eager.learner.update(batches[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        metrics = captured.learner.update(static)
    for batch in batches[1:]:
        load(batch)
        graph.replay()
        expected = eager.learner.update(batch)
    for name, value in eager.policy.export_state().items():
        torch.testing.assert_close(captured.policy.export_state()[name], value, rtol=1e-5, atol=1e-6, msg=name)
    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_policy_is_the_same_on_every_device():
    context = make_context(params={"hidden": [16, 8]})
    on_cpu, on_gpu = Actor.make_policy(context), Actor.make_policy(replace(context, device=torch.device("cuda")))
    assert isinstance(on_cpu, ActorCritic)
    assert isinstance(on_gpu, ActorCritic)
    assert torch.equal(on_gpu.flat.cpu(), on_cpu.flat)
