"""What makes ordinary data hard to judge and is no fault: uneven work, odd but healthy machines, the life of a task.

A healthy task may have any of these, and a faulty one too. The amounts are ours, chosen to be met in practice; what
each does is said where it is applied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

__all__ = ["CALM", "Conditions"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Ordinary difficulty. The default has none beyond what every simulated task has."""

    stage_unevenness: float = 0.0
    """How far pipeline stages differ in work and traffic: 0 not at all, 1 by up to half."""
    moe_imbalance: float = 0.0
    """Spread of the work that a mixture of experts gives each machine, as a share; it drifts within minutes."""
    rank0_duties: float = 1.0
    """Factor on what the first machine does besides: logging, metadata, the index of a checkpoint."""
    odd_machines: int = 0
    """Machines that have always been different: 4-10 % less power, a slower clock, a busier host."""
    generations: int = 1
    """2: every third machine is of an older generation, slower and with other levels."""
    hot_rack_celsius: float = 0.0
    """How much warmer the air of one rack is."""
    hiccups_per_hour: float = 0.0
    """Stalls of 1-15 s in one machine's data loader, per task; everyone waits."""
    cron_per_hour: float = 0.0
    """Scheduled jobs per machine: 20 s to 6 min of processor, disk and network use, beside the training."""
    warm_up_at_seconds: float | None = None
    """When the task starts: before, no process runs; after, it loads, and its first iterations are slow."""
    restart_at_seconds: float | None = None
    """When operators stop the task; it starts again half a minute to three minutes later."""
    swap_at_seconds: float | None = None
    """When a machine is exchanged: the task restarts, one machine's series end there and another's begin."""
    clock_skew_seconds: float = 0.0
    """Standard deviation of the machines' clocks, in the instants they report."""
    absent_ratio: float = 0.0
    """Share of (machine, metric) pairs that the exporters of those machines do not have; of metrics that no fault
    shows in."""
    constant_metrics: tuple[str, ...] = ()
    """Metrics that read the same number on every machine throughout, but for those that a fault shows in."""

    def problems(self) -> list[str]:
        """What cannot be simulated, one line each."""
        found = []
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
                found.append(f"simulate.conditions.{each.name} is {value}: it must be 0 or more")
        if self.absent_ratio >= 1:
            found.append(f"simulate.conditions.absent_ratio is {self.absent_ratio}: it must be less than 1")
        if self.generations not in (1, 2):
            found.append(f"simulate.conditions.generations is {self.generations}: it must be 1 or 2")
        return found


CALM = Conditions()
