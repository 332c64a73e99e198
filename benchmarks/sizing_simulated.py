"""How often the search finds the best plan of machines whose true speeds are known; nothing is measured.

    python benchmarks/sizing_simulated.py --seeds 40

The machines of tests/profiles/simulated.py: noise in every look, a speed that goes up and down, bursts of foreign
work, and a clock of their own, on which a session takes its two minutes. One JSON line per surface and algorithm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "profiles"))

from search_support import cpu_space, profile
from simulated import SURFACES, Machine, profiled, share_of_best

GOAL = 0.95


def row(name: str, algorithm: str, arguments: argparse.Namespace) -> dict[str, object]:
    """What one algorithm does on one surface over all seeds."""
    shares: list[float] = []
    points: list[int] = []
    seconds: list[float] = []
    for seed in range(arguments.seeds):
        machine = Machine(SURFACES[name], noise=arguments.noise, drift=arguments.drift, seed=seed)
        machine = profiled(cpu_space(), machine, algorithm)
        points.append(len(machine.measurements))
        seconds.append(machine.elapsed())
        try:
            shares.append(share_of_best(cpu_space(), machine, profile(machine.measurements), algorithm))
        except ValueError:  # Algorithm 1 may compare nothing
            shares.append(0.0)
    return {
        "surface": name,
        "algorithm": algorithm,
        "seeds": arguments.seeds,
        "within_5_percent": round(sum(share >= GOAL for share in shares) / len(shares), 3),
        "mean_share_of_best": round(statistics.fmean(shares), 3),
        "least_share_of_best": round(min(shares), 3),
        "points": round(statistics.fmean(points), 1),
        "simulated_s": round(statistics.fmean(seconds)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.05, help="relative standard deviation of a look")
    parser.add_argument("--drift", type=float, default=0.5, help="how far the speed goes up and down, relative")
    parser.add_argument("--surfaces", nargs="+", choices=list(SURFACES), default=list(SURFACES))
    arguments = parser.parse_args()
    for name in arguments.surfaces:
        for algorithm in ("improved", "paper"):
            sys.stdout.write(json.dumps(row(name, algorithm, arguments)) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
