"""Deciding: candidates, continuity, verdict. Pure: the continuity so far comes in and goes out.

In each window the judged machine with the largest normal score is the candidate if it passes the
threshold. The same machine being the candidate for the continuity threshold makes the verdict (Minder,
NSDI '25, continuity check). Seconds, not windows, are counted, so that it means the same at any sampling.

A window in which the candidate so far could not be judged neither extends nor breaks its continuity;
after ``patience_seconds`` without a judged window it is broken: what was not seen did not last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainminder.align import window_means
from trainminder.types import Continuity, Evidence, FloatArray, IntArray, MetricTrace, Panel, Verdict, WindowScores
from trainminder.wording import machine_and_device

__all__ = ["Confirmed", "candidates", "device_of", "follow", "unite", "verdict_of"]

NONE, UNJUDGED = -1, -2
#: Share of the windows in which one device must be the odd one to be named.
DEVICE_SHARE = 2.0 / 3.0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A continuity that reached the threshold: ``first_window`` and ``last_window`` index this pass's windows."""

    machine: str
    onset: float
    confirmed: float
    score: float
    """Mean normal score from onset to confirmation."""
    threshold: float
    first_window: int
    last_window: int
    until: float
    """Up to when the machine has remained the candidate, as far as this pass saw."""


def candidates(scores: WindowScores, group: int) -> IntArray:
    """(window,): the candidate's machine index; -1 where nobody passes, -2 where nobody could be judged.

    Of equal scores the first machine in name order is taken, so that the order of input does not matter.
    """
    members = np.flatnonzero(scores.group_of == group)
    part = scores.normal_score[members]
    judged = ~np.isnan(part)
    filled = np.where(judged, part, -np.inf)
    best = filled.argmax(axis=0)
    windows = np.arange(part.shape[1])
    passes = filled[best, windows] > np.where(judged, scores.threshold[members], np.inf)[best, windows]
    return np.where(judged.any(axis=0), np.where(passes, members[best], NONE), UNJUDGED)


def follow(
    scores: WindowScores,
    group: int,
    continuity: Continuity | None,
    *,
    continuity_seconds: float,
    patience_seconds: float,
    first_window: int = 0,
) -> tuple[Continuity | None, Confirmed | None]:
    """Carry the continuity of one group through the windows of a pass.

    Args:
        continuity: as the last pass left it; None at the start.
        continuity_seconds: the same machine must stay the candidate this long.
        patience_seconds: longest stretch without a judged window that continuity survives.
        first_window: windows before it were judged by an earlier pass and are passed over.
    Returns:
        the continuity now, and the first confirmation reached in this pass, if any.
    """
    confirmed: Confirmed | None = None
    began = first_window
    for window, best in enumerate(candidates(scores, group)[first_window:], start=first_window):
        at = float(scores.ends_at[window])
        if continuity is not None and at - continuity.last_at > patience_seconds:
            continuity = None
        if best == UNJUDGED or (best == NONE and continuity is not None and _is_unseen(scores, continuity, window)):
            continue
        if best == NONE:
            continuity = None
            continue
        score = float(scores.normal_score[best, window])
        if continuity is None or continuity.machine != scores.machines[best]:
            continuity = Continuity(scores.machines[best], at, at, 1, score)
            began = window
        else:
            continuity = replace(
                continuity, last_at=at, windows=continuity.windows + 1, score_sum=continuity.score_sum + score
            )
        if confirmed is None and continuity.last_at - continuity.since_at >= continuity_seconds:
            confirmed = Confirmed(
                machine=continuity.machine,
                onset=continuity.since_at,
                confirmed=at,
                score=continuity.score_sum / continuity.windows,
                threshold=float(scores.threshold[best, window]),
                first_window=began,
                last_window=window,
                until=at,
            )
        elif confirmed is not None and continuity.since_at == confirmed.onset:
            confirmed = replace(confirmed, until=at)
    return continuity, confirmed


def _is_unseen(scores: WindowScores, continuity: Continuity, window: int) -> bool:
    """Whether the candidate so far could not be judged in this window."""
    if continuity.machine not in scores.machines:
        return True
    return bool(np.isnan(scores.normal_score[scores.machines.index(continuity.machine), window]))


def verdict_of(confirmed: Confirmed, trace: MetricTrace) -> Verdict:
    """The verdict that one view of one metric gives, with its evidence in numbers and in words."""
    panel, spec = trace.panel, trace.spec
    machine = panel.machines.index(confirmed.machine)
    run = slice(confirmed.first_window, confirmed.last_window + 1)
    means = window_means(panel.values, panel.window_samples)
    rows = panel.rows[machine, run]
    seen = rows >= 0
    device = device_of(confirmed, panel)
    value = float(means[rows[seen], np.arange(run.start, run.stop)[seen]].mean())
    peers = _peers_median(trace, means, machine, run)
    where = machine_and_device(confirmed.machine, device)
    over = " over its devices" if panel.view == "mean" else ""
    text = (
        f"{spec.name} of {where} was {f'{value:.4g} {spec.unit}'.rstrip()} on average{over} "
        f"from onset to confirmation, "
        f"{'above' if value > peers else 'below'} its peers' median of {peers:.4g}"
    )
    score, threshold = round(confirmed.score, 3), round(confirmed.threshold, 3)
    evidence = Evidence(
        kind="metric",
        metric=spec.name,
        view=panel.view,
        device=device,
        since=confirmed.onset,
        until=confirmed.until,
        score=score,
        threshold=threshold,
        value=value,
        peers=peers,
        unit=spec.unit,
        text=text,
    )
    return Verdict(confirmed.machine, device, spec.name, confirmed.onset, confirmed.confirmed, score, None, (evidence,))


def device_of(confirmed: Confirmed, panel: Panel) -> str | None:
    """The device that deviated most in most windows; None where several took turns: then it is the machine."""
    if panel.view != "device":
        return None
    run = slice(confirmed.first_window, confirmed.last_window + 1)
    rows = panel.rows[panel.machines.index(confirmed.machine), run]
    counts = np.bincount(rows[rows >= 0])
    most = int(counts.argmax())
    return panel.row_device[most] if counts[most] >= DEVICE_SHARE * counts.sum() else None


def _peers_median(trace: MetricTrace, means: FloatArray, machine: int, run: slice) -> float:
    """The median, over the other machines of the group, of their mean over the run."""
    panel, group_of = trace.panel, trace.scores.group_of
    rows = np.isin(panel.row_machine, np.flatnonzero(group_of == group_of[machine])) & (panel.row_machine != machine)
    return float(np.nanmedian(means[rows, run].mean(axis=1)))


def unite(found: Sequence[Verdict]) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """The verdict of a pass from those of its metrics, in the order in which metrics were asked.

    The earliest confirmation counts; of equally early ones that of the metric asked first. It is what
    asking the metrics in order every second would have given, which is how ``confirmed`` is defined. Other
    metrics that convict the same machine become its evidence.

    Returns:
        none or one verdict (the paper's method names one machine), and the other machines that
        stood out as long.
    """
    if not found:
        return (), ()
    first = min(found, key=lambda verdict: verdict.confirmed)
    same = [verdict for verdict in found if verdict.machine == first.machine and verdict is not first]
    evidence = (*first.evidence, *(item for verdict in same for item in verdict.evidence))
    device = first.device or next((verdict.device for verdict in same if verdict.device), None)
    others = sorted({verdict.machine for verdict in found} - {first.machine})
    return (replace(first, device=device, evidence=evidence),), tuple(others)
