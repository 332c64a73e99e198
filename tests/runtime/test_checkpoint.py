"""Checkpoints: contents, links, resuming with the same and with another slicing, and what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from in_process import Collector, run_in_threads
from plans import launch_plan, training_plan
from safetensors.torch import load_file, save_file

from gmiflow.runtime.checkpoint import CheckpointMeta, CheckpointReader, CheckpointWriter, weights_checksum
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.run_directory import find_checkpoint


def run(run_dir: Path | None, *, gmis: int = 1, resume: Path | None = None, **options):
    plan = launch_plan(training_plan(**options), gmis=gmis)
    checkpoint = find_checkpoint(resume, "train") if resume is not None else None
    runtimes, collectors, errors = run_in_threads(plan, run_dir=run_dir, resume=checkpoint)
    if errors:
        raise errors[0]
    return runtimes, collectors


def state(runtime) -> dict[str, torch.Tensor]:
    return {
        **runtime.stages.policy.state_dict(),
        **runtime.stages.trainer.state_dict(),
        **{f"sim.{name}": value for name, value in runtime.stages.simulator.state_dict().items()},
    }


def test_contents_of_a_checkpoint(tmp_path: Path) -> None:
    _, collectors = run(tmp_path, gmis=2, iterations=5, checkpoint_every=2)
    folder = tmp_path / "checkpoints"
    assert sorted(p.name for p in folder.iterdir() if not p.is_symlink()) == [
        "iter_000002",
        "iter_000004",
        "iter_000005",
    ]
    assert (folder / "last").resolve().name == "iter_000005"
    last = folder / "last"
    assert sorted(p.name for p in last.iterdir()) == [
        "environments_00000000.safetensors",
        "environments_00000032.safetensors",
        "meta.json",
        "policy.safetensors",
        "trainer.safetensors",
    ]
    meta = json.loads((last / "meta.json").read_text())
    assert (meta["iteration"], meta["num_env"], meta["slices"]) == (5, 64, [[0, 32], [32, 32]])
    saved = collectors[0].of("Saved")
    assert [message.iteration for message in saved] == [2, 4, 5]
    assert not collectors[1].of("Saved")
    assert meta["checksum"] == saved[-1].checksum == f"{weights_checksum(load_file(last / 'policy.safetensors')):016x}"
    assert load_file(last / "environments_00000032.safetensors")["simulator.obs"].shape == (32, 4)


def test_best_is_the_checkpoint_with_the_highest_return(tmp_path: Path) -> None:
    run(tmp_path, iterations=12, checkpoint_every=3)
    folder = tmp_path / "checkpoints"
    metas = {p.name: json.loads((p / "meta.json").read_text()) for p in folder.glob("iter_*")}
    returns = {name: meta["mean_return"] for name, meta in metas.items() if meta["mean_return"] is not None}
    assert len(returns) >= 3
    assert (folder / "best").resolve().name == max(returns, key=lambda name: returns[name])


@pytest.mark.parametrize("gmis", [1, 2])
def test_resuming_continues_exactly(tmp_path: Path, gmis: int) -> None:
    whole, _ = run(None, gmis=gmis, iterations=6)
    run(tmp_path, gmis=gmis, iterations=3)
    rest, collectors = run(tmp_path, gmis=gmis, iterations=6, resume=tmp_path)
    assert [message.iteration for message in collectors[0].of("Progress")] == [4, 5, 6]
    for one, other in zip(whole, rest, strict=True):
        for name, value in state(one).items():
            assert torch.equal(state(other)[name], value), name
    assert (tmp_path / "checkpoints" / "last").resolve().name == "iter_000006"


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (4, 2)])
def test_resuming_with_another_slicing(tmp_path: Path, before: int, after: int) -> None:
    whole, collectors = run(None, gmis=1, iterations=6)
    run(tmp_path, gmis=before, iterations=3)
    rest, resumed = run(None, gmis=after, iterations=6, resume=tmp_path)
    expected = state(whole[0])
    for runtime in rest:
        for name in ("weight", "log_std", "value_weight", "momentum", "updates", "sim.tick"):
            torch.testing.assert_close(state(runtime)[name], expected[name], rtol=1e-5, atol=1e-6)
    obs = torch.cat([state(runtime)["sim.obs"] for runtime in rest])
    torch.testing.assert_close(obs, expected["sim.obs"], rtol=1e-4, atol=1e-5)

    def totals(messages: list[Collector]) -> tuple[int, float]:
        late = [m for c in messages for m in c.of("Progress") if m.iteration > 3]
        return sum(m.episodes for m in late), sum(m.return_sum for m in late)

    assert totals(resumed)[0] == totals(collectors)[0]
    assert totals(resumed)[1] == pytest.approx(totals(collectors)[1], rel=1e-4)


def test_a_run_that_is_complete_only_ends(tmp_path: Path) -> None:
    run(tmp_path, iterations=3)
    _, collectors = run(tmp_path, iterations=3, resume=tmp_path)
    assert not collectors[0].of("Progress")
    assert collectors[0].of("Done")[0].iteration == 3


def test_checkpoints_that_cannot_be_used(tmp_path: Path) -> None:
    run(tmp_path, iterations=1)
    with pytest.raises(GMIError, match="has 64 environments, but train has 32"):
        run(None, iterations=2, num_env=32, resume=tmp_path)
    with pytest.raises(GMIError, match="there is no checkpoint of the training train in"):
        find_checkpoint(tmp_path / "checkpoints" / "iter_000009", "train")
    last = tmp_path / "checkpoints" / "last"
    (last / "policy.safetensors").write_bytes(b"not a tensor")
    with pytest.raises(GMIError, match=r"policy.safetensors cannot be read"):
        run(None, iterations=2, resume=tmp_path)
    (last / "meta.json").write_text("{}")
    with pytest.raises(GMIError, match="is not a checkpoint"):
        CheckpointReader(last.resolve())


def test_an_interrupted_write_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, iterations=2)
    folder = tmp_path / "checkpoints"
    writer = CheckpointWriter(folder)
    writer.begin(3)
    writer.write_shared(3, {"policy.safetensors": {"x": torch.ones(2)}})
    assert find_checkpoint(tmp_path, "train").name == "iter_000002"
    run(tmp_path, iterations=3, resume=tmp_path)  # the half-written directory is in nobody's way
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(".")) == []


def test_a_checkpoint_can_be_replaced(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path)
    for mean_return in (1.0, None, 3.0):
        writer.begin(7)
        meta = CheckpointMeta(
            training="t", iteration=7, num_env=16, seed=0, slices=((0, 16),), checksum="0", episodes=1,
            mean_return=mean_return,
        )  # fmt: skip
        path = writer.commit(meta)
    assert json.loads((path / "meta.json").read_text())["mean_return"] == 3.0


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file is in the way")
    with pytest.raises(GMIError, match="cannot be written") as raised:
        run(tmp_path, iterations=1)
    assert raised.value.failure.notes[0].startswith("see that the run can write there; ")


def write_meta(folder: Path, **changes: object) -> None:
    """A `meta.json` of a checkpoint with two slices, changed; None leaves an entry out."""
    folder.mkdir(exist_ok=True)
    data: dict[str, object] = {
        "version": 1,
        "training": "train",
        "iteration": 3,
        "num_env": 64,
        "seed": 7,
        "slices": [[0, 32], [32, 32]],
        "checksum": "00ff",
        "episodes": 5,
        "mean_return": 1.5,
    }
    data.update(changes)
    (folder / "meta.json").write_text(json.dumps({name: value for name, value in data.items() if value != "left out"}))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"iteration": -1}, "`iteration` is -1, not a whole number from 0"),
        ({"iteration": "3"}, '`iteration` is "3", not a whole number from 0'),
        ({"iteration": True}, "`iteration` is true, not a whole number from 0"),
        ({"iteration": 2.5}, "`iteration` is 2.5, not a whole number from 0"),
        ({"iteration": "left out"}, "`iteration` is missing"),
        ({"num_env": 0}, "`num_env` is 0, not a whole number from 1"),
        ({"seed": None}, "`seed` is null, not a whole number"),
        ({"training": 1}, "`training` is 1, not a string"),
        ({"mean_return": "high"}, '`mean_return` is "high", not a number'),
        ({"color": "red"}, "`color` is not known"),
        ({"slices": None}, "`slices` has null, not a first environment and a count"),
        ({"slices": [[0, 32], 32]}, "`slices` has 32, not a first environment and a count"),
        ({"slices": [[0, 32], [32, -32]]}, "`slices` has [32, -32], not a first environment and a count"),
        ({"slices": []}, "no slice holds the environments 0 to 63"),
        ({"slices": [[0, 32]]}, "no slice holds the environments 32 to 63"),
        ({"slices": [[0, 16], [32, 32]]}, "no slice holds the environments 16 to 31"),
        ({"slices": [[0, 48], [32, 32]]}, "two slices hold environment 32"),
        ({"slices": [[0, 96]]}, "the slices hold 96 environments, not 64"),
    ],
)
def test_a_damaged_meta_says_what_is_wrong(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    write_meta(tmp_path)
    assert CheckpointReader(tmp_path).meta.slices == ((0, 32), (32, 32))
    write_meta(tmp_path, **changes)
    with pytest.raises(GMIError) as caught:
        CheckpointReader(tmp_path)
    assert caught.value.failure.code == "E0707"
    assert caught.value.failure.message == f"{tmp_path} is not a checkpoint: in meta.json {problem}"


@pytest.mark.parametrize("text", ["", "[]", "null", "7", "{", "\0", "[" * 100_000])
def test_a_meta_that_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(GMIError, match="is not a checkpoint") as caught:
        CheckpointReader(tmp_path)
    assert caught.value.failure.code == "E0707"


def test_a_meta_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"version": 2, "what": "nobody knows"}')
    with pytest.raises(GMIError, match="has checkpoint version 2, not 1"):
        CheckpointReader(tmp_path)


def test_the_file_of_a_slice_is_missing(tmp_path: Path) -> None:
    run(tmp_path, gmis=2, iterations=1)
    missing = tmp_path / "checkpoints" / "last" / "environments_00000032.safetensors"
    missing.unlink()
    with pytest.raises(GMIError, match=r"environments_00000032.safetensors cannot be read") as caught:
        run(None, iterations=2, resume=tmp_path)
    assert caught.value.failure.code == "E0707"


def commit(writer: CheckpointWriter, iteration: int, mean_return: float) -> None:
    writer.begin(iteration)
    writer.commit(
        CheckpointMeta(
            training="train",
            iteration=iteration,
            num_env=16,
            seed=0,
            slices=((0, 16),),
            checksum="0",
            episodes=1,
            mean_return=mean_return,
        )
    )


@pytest.mark.parametrize("damage", ["", "[]", '{"mean_return": "high"}', '{"mean_return": NaN}', "\0"])
def test_a_damaged_best_is_replaced(tmp_path: Path, damage: str) -> None:
    writer = CheckpointWriter(tmp_path)
    commit(writer, 1, 9.0)
    commit(writer, 2, 1.0)
    assert (tmp_path / "best").resolve().name == "iter_000001"
    (tmp_path / "best" / "meta.json").write_text(damage)
    commit(writer, 3, 0.5)
    assert (tmp_path / "best").resolve().name == "iter_000003"


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    run(tmp_path, iterations=1)
    checkpoint = tmp_path / "checkpoints" / "last"
    weights = load_file(checkpoint / "policy.safetensors")
    name = next(name for name, value in weights.items() if value.is_floating_point())
    weights[name].view(-1)[0] = float("nan")
    save_file(weights, checkpoint / "policy.safetensors")
    with pytest.raises(GMIError, match="holds NaN") as refused:
        run(tmp_path, iterations=2, resume=tmp_path)
    assert refused.value.failure.code == "E0707"
