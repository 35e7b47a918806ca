"""Silence: which machines ceased to report while the store goes on hearing from the others.

A scrape gap, a late exporter or an outage of the store are no machine's fault: a machine is silent only when most of
its series have ceased for three samples, while three in four of all series that were ever there go on. Where others
begin to report after it ceased, it was exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.evidence.departure import first_new
from trainminder.evidence.silence_kernel import HEARD, follow_rows
from trainminder.types import BoolArray, Panel

__all__ = ["Heard", "Silence", "follow_silence"]


@dataclass(frozen=True, slots=True)
class Heard:
    """What is remembered of who reports one metric.

    ``rows``: by (machine, device), of ``silence_kernel.HEARD``. ``came``: how many rows came later than most.
    """

    names: tuple[tuple[str, str | None], ...]
    rows: np.ndarray
    came: int
    judged_at: float


@dataclass(frozen=True, slots=True)
class Silence:
    """Who ceased to report one metric, from instant ``first`` of its panel on.

    ``ceased``: (instant, machine). ``ever``: (instant, machine), whether it had reported.
    """

    ceased: BoolArray
    ever: BoolArray


def follow_silence(panel: Panel, known: Heard | None = None) -> tuple[Silence, Heard]:
    """Follow who reports one metric from where it was left.

    Args:
        panel: the view of devices, or of machines where it has no devices.
    """
    first = first_new(panel, known.judged_at if known else -np.inf)
    names = tuple(
        (panel.machines[machine], device)
        for machine, device in zip(panel.row_machine.tolist(), panel.row_device, strict=True)
    )
    place = {name: row for row, name in enumerate(known.names)} if known else {}
    # Who is no longer in the answer of a store has ceased as well as who is there without samples.
    gone = tuple(name for name in place if name not in set(names) and name[0] in panel.machines)
    rows = np.zeros(len(names) + len(gone), dtype=HEARD)
    for row, name in enumerate((*names, *gone)):
        if known and name in place:
            rows[row] = known.rows[place[name]]
    index = {machine: number for number, machine in enumerate(panel.machines)}
    machine_of = np.array([index[machine] for machine, _ in (*names, *gone)], dtype=np.int64)
    present = np.zeros((len(panel.times) - first, len(rows)), dtype=np.bool_)
    present[:, : len(names)] = panel.present[:, first:].T
    ceased = np.zeros((len(present), len(panel.machines)), dtype=np.bool_)
    ever = np.zeros_like(ceased)
    came = follow_rows(present, machine_of, rows, known.came if known else 0, ceased, ever)
    judged_at = max(float(panel.times[-1]), known.judged_at if known else -np.inf)
    return Silence(ceased, ever), Heard((*names, *gone), rows, came, judged_at)
