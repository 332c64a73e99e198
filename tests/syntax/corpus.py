"""Every well-formed `.gmi` text of the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "examples").rglob("*.gmi"), *(ROOT / "stdlib").rglob("*.gmi")])

EVERYTHING = """edition 1

import std.tasks.ant
import "./nets.gmi" as nets

// A comment.
//// Another comment.

/// Environments
/// over the whole run.
param num_env : auto int = 4096 where num_env >= 64
param ratio   : float    = -(1 + 2.5e-3) * 3 / max(1, num_env, [1, 2,])
param flag    : bool     = !true || 1 <= 2 && false
param names   : list(list(string)) = [["a", "b\\n"], []]
param kind    : enum(auto, fast,) = auto
param memory  : bytes = 4 GiB
param share   : fraction = 50%

require num_env > 1 && flag else "say \\"why\\""

record Sample {
  /// Observation.
  obs : f32[env, O], action : f32[env, A]
}

simulator Sim(
  /// How fast.
  speed : float = 1.0,
  n : int = 2
) {
  entry = py "pkg.mod:Class"
  needs { memory = 2 GiB, gpu = true }
  in  action : f32[env, n] range -1 .. 1 optional
  out sample : nets.Sample[time]
}

simulator sim   = Sim(speed = 2.0) { python = "/usr/bin/python3" }
agent     actor = nets.Actor

workflow train {
  mode = async { max_staleness = 2 }
  sizing {
    objective = throughput
    batch = fixed
  }
  place { learner = devices(1, 2) }

  sim.obs
    // still the same edge
    -> actor.obs
  actor.experience -> learner.experience { depth = 2, on_full = block }
  sim.{
    reward,
    terminated
  } -> learner
  sim -> learner.{a, b}
}

target lab(gpus : int = 1) { base = targets.h200(gpus = gpus), gmi_per_gpu = auto }
"""
"""Uses every rule of the grammar."""


def texts():
    return [EVERYTHING, *(path.read_text(encoding="utf-8") for path in FILES)]
