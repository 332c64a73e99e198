"""On a GPU: the benchmark's own checks, in a small size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.gpu
@pytest.mark.parametrize("configuration", ["ipc.2", "lost.4", "without_mps"])
def test_configuration(tmp_path, configuration):
    command = [sys.executable, "benchmarks/collectives.py", "--gmis", "2", "--sizes", "65536", "--budget", "200"]
    result = subprocess.run(
        [*command, "--only", configuration, "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    rows = [json.loads(line) for line in (tmp_path / "collectives.jsonl").read_text().splitlines()]
    assert result.returncode == 0, (rows, result.stderr[-2000:])
    checks = [row for row in rows if "ok" in row]
    assert checks and all(row["ok"] for row in checks), rows
