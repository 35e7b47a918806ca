"""What departed: the instants at which machines did, of one metric, as far back as verdicts look.

Healthy machines depart seldom: what is kept is little, and grows with what is wrong rather than with the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trainminder.evidence.gather import MetricSigns
from trainminder.past import KEPT_SECONDS

__all__ = ["Departed"]

#: One machine at one instant. ``machine``: its index; ``size``, ``device``, ``devices``: as in ``gather.MetricSigns``.
RECORD = np.dtype([("time", "f8"), ("machine", "i4"), ("size", "f4"), ("device", "i2"), ("devices", "i2")])
CEASED = np.dtype([("time", "f8"), ("machine", "i4")])


@dataclass(frozen=True, slots=True, eq=False)
class Departed:
    """Who departed in one metric when, in the order of time: of ``RECORD``; and who had ceased to report it."""

    metric: str
    step_seconds: float
    machines: tuple[str, ...]
    records: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=RECORD))
    ceased: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=CEASED))

    @classmethod
    def after(cls, departed: Departed | None, signs: MetricSigns) -> Departed:
        """With what the signs say, and without what is too long ago."""
        when, who = np.nonzero(signs.weight > 0)
        new = np.zeros(len(when), dtype=RECORD)
        new["time"], new["machine"] = signs.times[when], who
        for name in ("size", "device", "devices"):
            new[name] = getattr(signs, name)[when, who]
        when, who = np.nonzero(signs.ceased)
        gone = np.zeros(len(when), dtype=CEASED)
        gone["time"], gone["machine"] = signs.times[when], who
        if departed is None or not len(signs.times):
            return cls(signs.metric, signs.step_seconds, signs.machines, new, gone)
        kept_from = signs.times[0] - KEPT_SECONDS
        records = _renumbered(
            departed.records[departed.records["time"] >= kept_from], departed.machines, signs.machines
        )
        last = departed.ceased[departed.ceased["time"] >= signs.times[0] - 2.0 * signs.step_seconds]
        ceased = _renumbered(last, departed.machines, signs.machines)
        return cls(
            signs.metric,
            signs.step_seconds,
            signs.machines,
            np.concatenate((records, new)),
            np.concatenate((ceased, gone)),
        )

    def of(self, machine: int, from_at: float, to_at: float) -> np.ndarray:
        """The records of one machine between two instants; no further back than anything is kept."""
        first = np.searchsorted(self.records["time"], max(from_at, to_at - KEPT_SECONDS))
        some = self.records[first : np.searchsorted(self.records["time"], to_at)]
        its: np.ndarray = some[some["machine"] == machine]
        return its

    def has_ceased(self, machine: int, at: float) -> bool:
        """Whether the machine had ceased to report this metric by then."""
        its = self.ceased["time"][self.ceased["machine"] == machine]
        recent = (its <= at + 1e-6) & (its > at - 1.5 * self.step_seconds)
        return bool(recent.any())


def _renumbered(records: np.ndarray, known: tuple[str, ...], machines: tuple[str, ...]) -> np.ndarray:
    """Records of the machines that are still there, by their index now."""
    if known is machines or known == machines:
        return records
    index = {machine: number for number, machine in enumerate(machines)}
    number_of = np.array([index.get(machine, -1) for machine in known], dtype=np.int32)
    found = records.copy()
    found["machine"] = number_of[records["machine"]]
    return found[found["machine"] >= 0]
