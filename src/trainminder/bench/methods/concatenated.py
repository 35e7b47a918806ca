"""The publication's ablations that give up one model and one distance per metric: CON and INT.

Both compare a machine's embeddings of all metrics by one distance. CON concatenates those of the metrics' own models;
INT takes them from one model of all metrics together (``integrated``). Neither holds a candidate against the data
behind it (``score.backed_score``), for there is no one series behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainminder.bench.methods.integrated import load_integrated
from trainminder.bench.methods.joint import Joint, join
from trainminder.bench.methods.prepared import SETTINGS, Prepared
from trainminder.score import dissimilarity, normal_score
from trainminder.types import Float32Array, FloatArray

__all__ = ["concatenated", "integrated"]


def concatenated(prepared: Prepared) -> tuple[Joint, FloatArray] | None:
    """Normal scores of one distance over the embeddings that the metrics' own models give."""
    joint = join(prepared)
    if joint is None:
        return None
    return joint, _scores(joint, lambda number: prepared.embedding(joint.channels[number])[:, joint.at[number]])


def integrated(prepared: Prepared) -> tuple[Joint, FloatArray] | None:
    """Normal scores of one distance over what one model of all metrics renders; metrics that it lacks are left out."""
    model = load_integrated()
    joint = join(prepared, [channel for channel in prepared.channels if channel.name in model.channels])
    if joint is None:
        return None
    rendered = model.render(joint)
    return joint, _scores(joint, rendered.__getitem__)


def _scores(joint: Joint, embedding: Callable[[int], Float32Array]) -> FloatArray:
    """(machine, window): normal scores.

    Args:
        embedding: channel's number -> (machine, window, sample).
    """
    parts, squares, width = [], np.zeros(len(joint.ends_at)), 0
    for number, channel in enumerate(joint.channels):
        parts.append(joint.filled(number, embedding(number)[:, :, -channel.compared :]))
        squares += channel.compared * joint.spread(number) ** 2
        width += channel.compared
    score, _ = normal_score(
        dissimilarity(np.concatenate(parts, axis=2), joint.enough(), joint.group_of),
        np.sqrt(squares / width),
        joint.group_of,
        width=width,
        false_alarm_probability=SETTINGS.false_alarm_probability,
        min_machines=SETTINGS.min_machines,
    )
    return score
