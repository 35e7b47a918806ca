"""Silence: which machines ceased to report while the store goes on hearing from the others.

A scrape gap, a late exporter or an outage of the store are no machine's fault: a machine is silent only when most of
its series have ceased for three samples, while three in four of all series that were ever there go on. Where others
begin to report after it ceased, it was exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.align import Row
from trainminder.carrying import carried
from trainminder.coverage import forgotten_seconds
from trainminder.evidence.silence_kernel import HEARD, follow_rows
from trainminder.past import rows_of
from trainminder.types import BoolArray, Panel

__all__ = ["Heard", "Silence", "follow_silence"]


@dataclass(frozen=True, slots=True)
class Heard:
    """What is remembered of who reports one metric.

    ``rows``: by (machine, device), of ``silence_kernel.HEARD``. ``came``: how many rows came later than most.
    """

    names: tuple[Row, ...]
    rows: np.ndarray
    came: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Who ceased to report one metric, at the new instants of its panel.

    ``ceased``: (instant, machine). ``ever``: (instant, machine), whether it had reported.
    """

    ceased: BoolArray
    ever: BoolArray


def follow_silence(panel: Panel, known: Heard | None = None) -> tuple[Silence, Heard]:
    """Follow who reports one metric from where it was left.

    Args:
        panel: the view of devices, or of machines where it has no devices.
    """
    names = rows_of(panel)
    rows = carried(names, known.names if known else (), known.rows if known else None, np.zeros((), dtype=HEARD))
    present = np.ascontiguousarray(panel.present[:, panel.first :].T)
    ceased = np.zeros((len(present), len(panel.machines)), dtype=np.bool_)
    ever = np.zeros_like(ceased)
    forgotten = round(forgotten_seconds(panel.step_seconds) / panel.step_seconds)
    came = follow_rows(present, panel.row_machine, rows, known.came if known else 0, forgotten, ceased, ever)
    return Silence(ceased, ever), Heard(names, rows, came)
