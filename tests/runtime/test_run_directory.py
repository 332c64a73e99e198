"""What a killed run leaves in its directory is put in order."""

from __future__ import annotations

from pathlib import Path

from gmiflow.runtime.run_directory import RunDirectory


def test_half_checkpoints_go_and_what_they_were_to_replace_is_back(tmp_path: Path) -> None:
    names = ("iter_000001", ".writing-iter_000002", "iter_000003", ".old-iter_000003", ".old-iter_000004")
    for parent in ("checkpoints", "checkpoints/train"):
        for name in names:
            (tmp_path / parent / name).mkdir(parents=True)
            (tmp_path / parent / name / "meta.json").write_text(name)
    RunDirectory(tmp_path).remove_unfinished()
    for parent in ("checkpoints", "checkpoints/train"):
        left = {path.name: path / "meta.json" for path in (tmp_path / parent).iterdir() if path.name != "train"}
        assert {name: file.read_text() for name, file in left.items()} == {
            "iter_000001": "iter_000001", "iter_000003": "iter_000003", "iter_000004": ".old-iter_000004",
        }  # fmt: skip
