"""A launcher in a process of its own, for tests that send signals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import leftovers
from waiting import PATIENCE_S

HERE = Path(__file__).parent


class Launcher:
    """A launcher in a process of its own, for which any signal after a first one counts, however soon it comes.

    With ``echo_s`` one that comes sooner is the first once more, as it is for a user after a quarter of a second.
    """

    def __init__(
        self,
        base: Path,
        mark: str,
        *,
        gmis: int = 2,
        simulator: str = "Slow",
        iterations: int = 1000,
        python: str = "",
        interrupt_s: float = 600.0,
        echo_s: float = 0.0,
        mapping: str = "dp_only",
    ) -> None:
        environment = {**os.environ, leftovers.MARK: mark, "PYTHONPATH": os.pathsep.join(sys.path)}
        times = [str(interrupt_s), str(echo_s)]
        arguments = [str(base), str(gmis), simulator, str(iterations), *times, python, mapping]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "launcher.py"), *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        for printed in self.process.stdout:
            if printed.strip() == line:
                return
        raise AssertionError(f"the launcher never printed {line!r}")

    def end(self) -> tuple[int, str]:
        """Exit status and remaining output."""
        output, _ = self.process.communicate(timeout=PATIENCE_S)  # less than a GMI waits for a lost peer
        return self.process.returncode, output
