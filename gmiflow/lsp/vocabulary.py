"""What an editor says about the words of the language: one sentence each."""

from __future__ import annotations

from typing import Final

from gmiflow.lsp.indexing import TABLES
from gmiflow.passes.settings import PLACE, Spec
from gmiflow.syntax.words import UNITS

SETTINGS: Final[dict[str, str]] = {
    "workflow.mode": "How simulator, agent and trainer take turns: `sync` trains on every step at once, `async` lets "
    "experience be some policy versions old, `serve` has no trainer.",
    "workflow.num_env": "Environments of one training, over all its GMIs. `auto` lets the compiler choose.",
    "workflow.horizon": "Steps that each environment makes between two updates.",
    "workflow.iterations": "Updates until the run ends.",
    "workflow.checkpoint_every": "Iterations between two checkpoints; 0 writes only the last one.",
    "workflow.seed": "Seed of all noise. Environment i has the same noise however the run is sliced.",
    "workflow.replicas": "Independent trainings side by side, with seeds that count up from `seed`.",
    "workflow.joint": "Trainings of a device that share one simulator, which steps the environments of all at once; "
    "1 gives each its own. `auto` lets the compiler choose.",
    "workflow.precision": "Precision of the networks' arithmetic.",
    "workflow.execution": "How an iteration is issued: `eager` operation by operation, `graph` as a CUDA graph, "
    "`overlap` with the next rollout beside the update.",
    "workflow.on_failure": "What happens when a GMI fails: `stop` the run, or `restart` from the last checkpoint.",
    "workflow.gmi": "A GMI class of your own, in place of the one that comes with gmiflow.",
    "mode.deterministic": "Whether a workflow that serves takes the likeliest action instead of drawing one.",
    "mode.max_staleness": "Policy versions that experience may be behind the policy that it trains.",
    "sizing.objective": "What sizing makes best: environment steps per second, or the time to a reward.",
    "sizing.batch": "Whether sizing may change the number of environments, and so the batch.",
    "edge.depth": "Rollouts that may wait between the stages.",
    "edge.on_full": "What a full channel does: `block` the sender, or `drop_oldest`.",
    "stage.python": "Interpreter that hosts this simulator, when it cannot run in gmiflow's own.",
    "stage type.entry": 'The Python class behind the stage type: `py "package.module:Class"`.',
    "stage type.update": "How several trainers improve one policy: they `reduce` their gradients in step, or "
    "each `apply`s its own when it has it, as A3C does.",
    "needs.memory": "Memory of one GMI that runs the stage, whatever its number of environments.",
    "needs.memory_per_env": "Memory of one environment.",
    "needs.cores": "CPU cores of one GMI that runs the stage.",
    "needs.sm_count": "Streaming multiprocessors of one GMI that runs the stage.",
    "needs.gpu": "Whether the stage runs on a GPU only.",
    "target.base": "A target whose settings are taken over, for example `targets.h200(gpus = 2)`.",
    "target.device": "Where it runs: on the CPU, or on CUDA GPUs.",
    "target.devices": "Number of GPUs; the CPU counts as one device.",
    "target.gpu": "Model name of the GPU.",
    "target.sm_count": "Streaming multiprocessors of one GPU.",
    "target.memory": "Memory of one device.",
    "target.reserve": "Memory of one device that gmiflow leaves alone.",
    "target.cores": "CPU cores that the run may use; 0 for all that the process has.",
    "target.backend": "What a slice of the device is: processes on the CPU, processes that take turns (`timeshare`), "
    "MPS clients, MIG instances, or green contexts in one process.",
    "target.gmi_per_gpu": "GMIs that share one device.",
    "target.agents": "Of the GMIs of one device those that act, where the mapping splits the roles.",
    "target.trainers": "Of the GMIs of one device those that train, where the mapping splits the roles.",
    "target.simulators": "Of the GMIs of one device those that simulate, where the mapping gives them no agent.",
    "target.agent_share": "Part of a device that the agents get together, where the mapping splits the roles.",
    "target.mapping": "Which roles share a GMI: all of them (`dp_only`), environment apart from agent and trainer "
    "(`e_at`), trainer apart (`ea_t`), each alone (`dp_mp`), or pools of simulators and agents (`mp_dp`).",
    "target.collective": "What adds up the gradients of several GMIs: host memory (`ip`), NCCL (`rp`), CUDA IPC "
    "(`ipc`), threads of a process (`local`), two of them (`hybrid`), or NCCL with several GMIs per GPU "
    "(`nccl_multirank`).",
    "target.rings": "Of a `hybrid` collective, how many GMIs of each GPU reduce by rings across the GPUs first; 0 "
    "for one that reduces inside of each GPU first.",
}
"""Table and setting to its description; a test compares it with the settings that the checker knows."""

SECTIONS: Final = {
    "workflow.sizing": "What the sizing pass aims at.",
    "workflow.place": "Pins stages to devices: `learner = devices(1)`. Those on different devices share no GMI.",
    "stage type.needs": "Resources that a stage of this type asks for.",
}

KEYWORDS: Final = {
    "edition": "The edition of the language that the file is written in. Comes first.",
    "import": "Make the declarations of another file known: a module of `std`, or a path.",
    "as": "The name under which an import is known here.",
    "param": "A value with a name and a type; `--set name=value` changes it without editing.",
    "where": "What the value must satisfy.",
    "record": "Several tensors that travel together.",
    "workflow": "Stages, the edges between them, and how they take turns.",
    "target": "The machine that a workflow is compiled for, and wishes about how it is used.",
    "require": 'A condition that must hold: `require CONDITION else "message"`.',
    "else": "The message when a condition does not hold.",
    "range": "Bounds that the values of a port are clamped to: `range -1 .. 1`.",
    "optional": "An input that no edge need drive.",
    "enum": "A type with a closed set of words.",
    "list": "A list type.",
    "py": 'A Python class: `py "package.module:Class"`. It is looked up, never imported, by the compiler.',
    "simulator": "A stage that steps environments.",
    "agent": "A stage that acts on observations.",
    "trainer": "A stage that improves the agent's policy.",
    "in": "An input port.",
    "out": "An output port.",
    "auto": "The compiler decides.",
    "true": "The truth value.",
    "false": "The truth value.",
}

TYPES: Final = {
    "int": "A whole number.",
    "float": "A number.",
    "bool": "A truth value; in a shape, a tensor of them.",
    "string": "Text.",
    "bytes": "An amount of memory, for example `4 GiB`.",
    "seconds": "A time, for example `20 ms`.",
    "hertz": "A frequency, for example `60 Hz`.",
    "fraction": "A part of 1, for example `25 %`.",
    "bytes_per_second": "A bandwidth, for example `900 GB/s`.",
    "f32": "32-bit floating point numbers.",
    "f16": "16-bit floating point numbers.",
    "bf16": "16-bit brain floating point numbers.",
    "i32": "32-bit whole numbers.",
    "i64": "64-bit whole numbers.",
    "u8": "8-bit whole numbers without sign.",
    "weights": "The weights of a policy; opaque.",
}
AXES: Final = {
    "env": "The axis of environments; mapping cuts it over GMIs.",
    "time": "The axis of steps, `horizon` long. An edge from a port without it to a port with it stacks the steps.",
}
FUNCTIONS: Final = {
    "min": ("min(a, b, ...)", "The smallest of its arguments."),
    "max": ("max(a, b, ...)", "The largest of its arguments."),
    "ceil": ("ceil(x)", "The smallest whole number that is not below `x`."),
    "floor": ("floor(x)", "The largest whole number that is not above `x`."),
    "log2": ("log2(x)", "The logarithm to base 2."),
    "devices": ("devices(index, ...)", "Device indices, counted from 0, for `place`."),
}
"""Name to signature and description."""


def spec_of(table: str, name: str) -> Spec | None:
    """What the checker expects of a setting, None for `base` and for what does not exist."""
    return PLACE if table == "place" else TABLES.get(table, {}).get(name)


def units_of(dimension: str) -> list[str]:
    """The units of a dimension."""
    return [unit for unit, (of, _) in UNITS.items() if of == dimension]
