"""What every compiler stage says about every example, compared with committed text."""

import re
from pathlib import Path

import pytest

from gmiflow.commands.compile import emitted
from gmiflow.hardware import GPU, Hardware
from gmiflow.pipeline import STAGES, Options, compile_file

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.gmi"))
H200 = GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
MACHINE = Hardware(cores=4, gpus=(H200,))
"""The machine of all golden files: four cores and one H200, whatever this machine has."""

WORKFLOWS = [
    (example, workflow)
    for example in EXAMPLES
    for workflow in re.findall(r"^workflow (\w+)", (ROOT / "examples" / example).read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("example", "workflow"), WORKFLOWS)
def test_golden(example, workflow, stage, request, monkeypatch):
    monkeypatch.chdir(ROOT)
    compilation = compile_file(f"examples/{example}", Options(workflow=workflow), hardware=MACHINE, stop_after=stage)
    assert not compilation.failed, compilation.diagnostics
    text = emitted(compilation, stage)
    path = Path(__file__).parent / Path(example).stem / f"{workflow}.{stage}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden file {path.name}: run make golden"
    assert text == path.read_text()


def test_every_golden_file_is_used():
    expected = {f"{Path(e).stem}/{w}.{s}.txt" for e, w in WORKFLOWS for s in STAGES}
    found = {str(p.relative_to(Path(__file__).parent)) for p in Path(__file__).parent.rglob("*.txt")}
    assert found == expected
