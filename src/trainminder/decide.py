"""Deciding: candidates, continuity, verdict. Pure: the continuity so far comes in and goes out.

In each window the judged machine with the largest normal score is the candidate if it passes the
threshold. The same machine being the candidate for the continuity threshold makes the verdict (Minder,
NSDI '25, continuity check). Seconds, not windows, are counted, so that it means the same at any sampling.

A window in which the candidate so far could not be judged neither extends nor breaks its continuity;
after ``patience_seconds`` without a judged window it is broken: what was not seen did not last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainminder.past import Past
from trainminder.types import Continuity, Evidence, IntArray, MetricSpec, Verdict, WindowScores
from trainminder.wording import machine_and_device

__all__ = ["NONE", "UNJUDGED", "Confirmed", "candidates", "follow", "unite", "verdict_of"]

NONE, UNJUDGED = -1, -2
#: Share of the windows in which one device must be the odd one to be named.
DEVICE_SHARE = 2.0 / 3.0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A continuity that reached the threshold. ``devices``: in how many windows each device was the odd one."""

    machine: str
    onset: float
    confirmed: float
    score: float
    """Mean normal score from onset to confirmation."""
    threshold: float
    devices: tuple[tuple[str, int], ...] = ()

    @property
    def device(self) -> str | None:
        """The device that deviated most in most windows; None where several took turns: then it is the machine."""
        total = sum(count for _, count in self.devices)
        return next((device for device, count in self.devices if count >= DEVICE_SHARE * total), None)


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
    device_in: Callable[[int, int], str | None] = lambda _machine, _window: None,
) -> tuple[Continuity | None, list[Confirmed]]:
    """Carry the continuity of one group on through some windows.

    Args:
        continuity: as the windows before left it; None at the start.
        continuity_seconds: the same machine must stay the candidate this long.
        patience_seconds: longest stretch without a judged window that continuity survives.
        device_in: which device of a machine is compared in a window.
    Returns:
        the continuity now, and every confirmation reached; a continuity is confirmed once.
    """
    found: list[Confirmed] = []
    for window, best in enumerate(candidates(scores, group).tolist()):
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
            continuity = Continuity(scores.machines[best], at, at, 0, 0.0)
        continuity = replace(
            continuity,
            last_at=at,
            windows=continuity.windows + 1,
            score_sum=continuity.score_sum + score,
            devices=_with_one_more(continuity.devices, device_in(best, window)),
        )
        if not continuity.is_confirmed and at - continuity.since_at >= continuity_seconds:
            continuity = replace(continuity, is_confirmed=True)
            found.append(
                Confirmed(
                    machine=continuity.machine,
                    onset=continuity.since_at,
                    confirmed=at,
                    score=continuity.score_sum / continuity.windows,
                    threshold=float(scores.threshold[best, window]),
                    devices=continuity.devices,
                )
            )
    return continuity, found


def _with_one_more(counts: tuple[tuple[str, int], ...], device: str | None) -> tuple[tuple[str, int], ...]:
    """The counts with one more of a device, the most frequent first."""
    if device is None:
        return counts
    more = dict(counts)
    more[device] = more.get(device, 0) + 1
    return tuple(sorted(more.items(), key=lambda item: -item[1]))


def _is_unseen(scores: WindowScores, continuity: Continuity, window: int) -> bool:
    """Whether the candidate so far could not be judged in this window."""
    if continuity.machine not in scores.machines:
        return True
    return bool(np.isnan(scores.normal_score[scores.machines.index(continuity.machine), window]))


def verdict_of(confirmed: Confirmed, spec: MetricSpec, past: Past, peers: Collection[str]) -> Verdict:
    """The verdict that one view of one metric gives, with its evidence in numbers and in words.

    Args:
        past: what the rows of the view were lately.
        peers: the machines that this one was compared with.
    """
    device = confirmed.device if past.view == "device" else None
    means = past.means(past.between(confirmed.onset, confirmed.confirmed))
    own = [row for row, (machine, of) in enumerate(past.rows) if machine == confirmed.machine and device in (None, of)]
    value = float(np.nanmean(means[own]))
    middle = float(np.nanmedian(means[[row for row, (machine, _) in enumerate(past.rows) if machine in peers]]))
    where = machine_and_device(confirmed.machine, device)
    over = " over its devices" if past.view == "mean" else ""
    text = (
        f"{spec.name} of {where} was {f'{value:.4g} {spec.unit}'.rstrip()} on average{over} "
        f"from onset to confirmation, "
        f"{'above' if value > middle else 'below'} its peers' median of {middle:.4g}"
    )
    score, threshold = round(confirmed.score, 3), round(confirmed.threshold, 3)
    evidence = Evidence(
        kind="metric",
        metric=spec.name,
        view=past.view,
        device=device,
        since=confirmed.onset,
        until=confirmed.confirmed,
        score=score,
        threshold=threshold,
        value=value,
        peers=middle,
        unit=spec.unit,
        text=text,
    )
    return Verdict(confirmed.machine, device, spec.name, confirmed.onset, confirmed.confirmed, score, None, (evidence,))


def unite(found: Sequence[Verdict], known: Sequence[Verdict] = ()) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """The verdict of a task from those of its metrics, in the order in which metrics were asked.

    The earliest confirmation counts; of equally early ones that of the metric asked first. It is what
    asking the metrics in order every second would have given, which is how ``confirmed`` is defined. Other
    metrics that convict the same machine become its evidence, each once.

    Args:
        known: what stands already.
    Returns:
        none or one verdict (the paper's method names one machine), and the other machines that
        stood out as long.
    """
    in_order = [*known, *sorted(found, key=lambda verdict: verdict.confirmed)]
    if not in_order:
        return (), ()
    first, *later = in_order
    for verdict in later:
        if verdict.machine == first.machine:
            told = {(item.metric, item.view) for item in first.evidence}
            more = tuple(item for item in verdict.evidence if (item.metric, item.view) not in told)
            first = replace(first, device=first.device or verdict.device, evidence=(*first.evidence, *more))
    return (first,), tuple(sorted({verdict.machine for verdict in later} - {first.machine}))
