"""The runtime of a GMI that holds one role and does what GMIs with another role ask for."""

from __future__ import annotations

import time
from collections.abc import Mapping

from torch import Tensor

from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.messages import Done, Progress

__all__ = ["AnsweringRuntime"]


class AnsweringRuntime(GMIRuntime):
    """Answers requests until those who ask have left; learns and saves nothing by itself.

    Every answer waits for the device, so that its time is taken on the host.
    """

    def learn(self) -> Mapping[str, Tensor]:
        """Nothing: no trainer is here."""
        return {}

    def finish(self) -> None:
        """Say goodbye."""
        checksum = self._own_checksum()
        self._reporter.send(Done(gmi=self.context.id, iteration=self.iteration, stopped=False, checksum=checksum))

    def stop(self) -> None:
        """Release what the role holds, and leave the channels."""
        self._release()
        for link in self.context.links:
            link.close()

    def _release(self) -> None:
        """Release what the role holds; also called after a failed `setup`."""

    def _finish_answers(self, *, worked_s: float, waited_s: float, channels: dict[str, float]) -> None:
        """Count an iteration and report it.

        Args:
            worked_s: seconds at work on its answers.
            waited_s: seconds that it waited for requests.
            channels: as `Progress.channels`.
        """
        self.iteration += 1
        now = time.perf_counter()
        iteration_s, self._reported_s = now - self._reported_s, now
        self._reporter.send(
            Progress(
                gmi=self.context.id,
                iteration=self.iteration,
                env_steps=0,
                iteration_s=iteration_s,
                collect_s=worked_s,
                learn_s=0.0,
                communicate_s=waited_s,
                episodes=0,
                return_sum=0.0,
                length_sum=0.0,
                stage_s=self.clock.take(),
                metrics={},
                diagnostics=self._diagnostics(False),
                channels=channels,
            )
        )

    def _settle(self) -> None:
        """Every answer has waited for the device."""
