"""Findings: whom the evidence convicts, since when, and everything that a person needs to believe it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.align import panels
from trainminder.coverage import FIRST_SAMPLES, FIRST_SECONDS
from trainminder.evidence.causes import CAUSES, REPORTING, Cause, cause_of
from trainminder.evidence.episodes import Weighed
from trainminder.evidence.episodes_kernel import SUSPECTED, TOGETHER_SAMPLES, TOGETHER_SECONDS
from trainminder.evidence.gather import MetricSigns
from trainminder.types import Evidence, Float32Array, FloatArray, Panel, RawTask, Trail, Verdict
from trainminder.wording import machine_and_device, quantity, some_names, span

__all__ = ["Suspicion", "confirmed_instants", "limit_of", "shares_of", "trail_of", "verdicts_of"]

#: Share of the departing time in which one device must be the odd one to be named, and how many may depart with it.
DEVICE_SHARE, MOST_DEVICES = 2.0 / 3.0, 2.0
#: A machine that differs from its peers by this much less or more than at another time differs alike.
SAME = 0.25
#: Other machines that are named as considered.
MOST_CONSIDERED = 3
#: Machines whose evidence over time is kept.
MOST_TRAILED = 6


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What ``Weighed`` says, over a whole pass. (instant, machine) but for ``times``."""

    times: FloatArray
    machines: tuple[str, ...]
    causes: tuple[Cause, ...]
    rarity: Float32Array
    cause: np.ndarray
    since: FloatArray

    @classmethod
    def of(cls, weighed: Sequence[Weighed], machines: tuple[str, ...], causes: tuple[Cause, ...]) -> Suspicion:
        """Put the parts together."""
        return cls(
            np.concatenate([each.times for each in weighed]),
            machines,
            causes,
            np.concatenate([each.rarity for each in weighed]),
            np.concatenate([each.cause for each in weighed]),
            np.concatenate([each.since for each in weighed]),
        )


@dataclass(frozen=True, slots=True)
class Share:
    """What one metric adds: seconds it departed for, the median size of that in bare noise, and which device."""

    signs: MetricSigns
    seconds: float
    size: float
    device: int
    until: float


def limit_of(false_alarms_per_machine_day: float, suspicion: Suspicion) -> float:
    """Decades that convict: each cause is a test of its own, and they share what is allowed (Bonferroni).

    No fewer than the known causes are counted: of declared metrics nobody knows how many there are.
    """
    return math.log10(max(len(suspicion.causes), len(CAUSES) + 2) / false_alarms_per_machine_day)


def confirmed_instants(suspicion: Suspicion, limit: float) -> list[tuple[int, int]]:
    """(instant, machine) of each machine's first instant at the limit, in the order of time."""
    passes = suspicion.rarity >= limit
    found = [(int(passes[:, machine].argmax()), int(machine)) for machine in np.flatnonzero(passes.any(axis=0))]
    return sorted(found)


def verdicts_of(
    suspicion: Suspicion, limit: float, signs: Sequence[MetricSigns], raw: RawTask, known: Collection[str]
) -> tuple[Verdict, ...]:
    """The machines that the evidence convicts, in the order in which it did.

    Args:
        limit: decades that convict.
        known: machines that were convicted before.
    """
    found = [
        (instant, machine)
        for instant, machine in confirmed_instants(suspicion, limit)
        if suspicion.machines[machine] not in known
    ]
    return tuple(_verdict(suspicion, instant, machine, limit, signs, raw, found) for instant, machine in found)


def _verdict(
    suspicion: Suspicion,
    instant: int,
    machine: int,
    limit: float,
    signs: Sequence[MetricSigns],
    raw: RawTask,
    found: Sequence[tuple[int, int]],
) -> Verdict:
    name = suspicion.machines[machine]
    confirmed, onset = float(suspicion.times[instant]), float(suspicion.since[instant, machine])
    cause = suspicion.causes[suspicion.cause[instant, machine]]
    score = round(float(suspicion.rarity[instant, machine]), 3)
    shares = shares_of(suspicion, instant, machine, signs)
    if shares:
        onset = _from_the_first(shares[0], machine, onset, confirmed, raw, suspicion.machines)
    total = sum(share.seconds for share in shares) or 1.0
    evidence = [
        _of_metric(share, machine, onset, confirmed, share.seconds / total, raw, suspicion.machines) for share in shares
    ]
    if cause is REPORTING:
        evidence.insert(0, _of_silence(name, machine, signs, onset, confirmed, score, limit))
    evidence.append(_of_rarity(name, cause, onset, confirmed, score, limit))
    together = _together(suspicion, instant, machine)
    if together:
        evidence.append(_of_group(suspicion, instant, machine, together, limit, raw))
    evidence += _considered(suspicion, instant, machine, limit, onset, confirmed, found, together)
    device = evidence[0].device
    return Verdict(name, device, evidence[0].metric, onset, confirmed, score, None, tuple(evidence))


def trail_of(suspicion: Suspicion, limit: float) -> Trail:
    """How the evidence against the most suspicious machines grew."""
    most = suspicion.rarity.max(axis=0)
    chosen = [machine for machine in np.argsort(-most, kind="stable")[:MOST_TRAILED].tolist() if most[machine] > 0]
    return Trail(
        tuple(suspicion.machines[machine] for machine in chosen),
        suspicion.times,
        np.ascontiguousarray(suspicion.rarity[:, chosen].T),
        limit,
    )


def shares_of(suspicion: Suspicion, instant: int, machine: int, signs: Sequence[MetricSigns]) -> list[Share]:
    """What each metric adds at an instant: those of the leading cause first, then by how long and how far."""
    onset, confirmed = float(suspicion.since[instant, machine]), float(suspicion.times[instant])
    cause = suspicion.causes[suspicion.cause[instant, machine]]
    shares = [share for each in signs if (share := _share(each, machine, onset, confirmed)) is not None]
    return sorted(shares, key=lambda share: (cause_of(share.signs.metric) is not cause, -share.seconds * share.size))


def _share(signs: MetricSigns, machine: int, onset: float, confirmed: float) -> Share | None:
    """What a metric adds to the evidence against a machine; None where it did not depart."""
    first = int(np.searchsorted(signs.times, onset - 0.5 * signs.step_seconds))
    last = int(np.searchsorted(signs.times, confirmed + 1e-6))
    departs = signs.weight[first:last, machine] > 0
    if not departs.any():
        return None
    where = first + np.flatnonzero(departs)
    # Where nothing can be said (0) it may go on; the last instant that departs counts.
    after = np.flatnonzero(signs.weight[last:, machine] < 0)
    rest = signs.weight[last : last + int(after[0]) if len(after) else None, machine] > 0
    until = last + int(np.flatnonzero(rest)[-1]) if rest.any() else -1
    sizes = np.abs(signs.size[where, machine])
    which = signs.device[where, machine]
    device = -1
    if signs.devices[where, machine].mean() <= MOST_DEVICES and (which >= 0).any():
        counts = np.bincount(which[which >= 0])
        if counts.max() >= DEVICE_SHARE * len(where):
            device = int(counts.argmax())
    until = max(until, int(where[-1]))
    return Share(signs, len(where) * signs.step_seconds, float(np.median(sizes)), device, float(signs.times[until]))


def _from_the_first(
    share: Share, machine: int, onset: float, confirmed: float, raw: RawTask, machines: tuple[str, ...]
) -> float:
    """The first instant of the data, where the machine was as far from its peers before the onset as after it."""
    panel, row, peers = _against(share, machine, raw, machines)
    apart = np.where(panel.present[row], panel.values[row], np.nan) - np.nanmedian(
        np.where(panel.present[peers], panel.values[peers], np.nan), axis=0
    )
    before = apart[panel.times < onset - 0.5 * panel.step_seconds]
    during = apart[(panel.times >= onset - 0.5 * panel.step_seconds) & (panel.times <= confirmed + 1e-6)]
    before, during = before[~np.isnan(before)], during[~np.isnan(during)]
    # Of a task taken up again, what was before is not there to see.
    if len(before) < FIRST_SAMPLES or onset - panel.times[0] < FIRST_SECONDS * min(panel.step_seconds, 1.0):
        return onset
    if not len(during) or abs(np.median(before) - np.median(during)) > SAME * abs(np.median(during)):
        return onset
    return float(panel.times[0])


def _against(share: Share, machine: int, raw: RawTask, machines: tuple[str, ...]) -> tuple[Panel, int, list[int]]:
    """The view that shows what a metric adds, the row that does, and those of the peers."""
    name = share.signs.metric
    views = panels(next(metric for metric in raw.metrics if metric.metric == name), raw.machines, 1)
    panel = views[-1] if share.device >= 0 else views[0]
    rows = np.flatnonzero(panel.row_machine == machine)
    group = raw.groups.get(machines[machine], "")
    peers = [
        row
        for row, m in enumerate(panel.row_machine.tolist())
        if m != machine and raw.groups.get(machines[m], "") == group
    ]
    return panel, int(rows[max(share.device, 0)]), peers


def _of_metric(
    share: Share, machine: int, onset: float, confirmed: float, weight: float, raw: RawTask, machines: tuple[str, ...]
) -> Evidence:
    """What one metric shows, in numbers and in words."""
    name = share.signs.metric
    panel, row, others = _against(share, machine, raw, machines)
    device = panel.row_device[row] if share.device >= 0 else None
    first = int(np.searchsorted(panel.times, onset - 0.5 * panel.step_seconds))
    last = max(int(np.searchsorted(panel.times, confirmed + 1e-6)), first + 1)
    means = _means(panel.values[:, first:last], panel.present[:, first:last])
    peers = means[others]
    low, middle, high = (float(bound) for bound in np.nanquantile(peers, (0.05, 0.5, 0.95)))
    value, unit = float(means[row]), raw.specs[name].unit
    where = machine_and_device(machines[machine], device)
    over = " over its devices" if panel.view == "mean" else ""
    text = (
        f"{name} of {where} was {quantity(value, unit, 4)} on average{over} from onset to confirmation, "
        f"{'above' if value > middle else 'below'} its peers' median of {quantity(middle, unit, 4)} (nine in ten "
        f"between {quantity(low, unit)} and {quantity(high, unit)}); it departed from them for {span(share.seconds)}"
    )
    return Evidence(
        kind="metric",
        metric=name,
        view=panel.view,
        device=device,
        since=onset,
        until=share.until,
        score=round(share.size, 3),
        threshold=1.0,
        value=value,
        peers=middle,
        unit=unit,
        text=text,
        weight=round(weight, 3),
        peers_low=low,
        peers_high=high,
    )


def _means(values: FloatArray, present: np.ndarray) -> FloatArray:
    """(row,): the mean of what is present; NaN where nothing is."""
    count = present.sum(axis=1)
    means: FloatArray = np.divide(
        np.where(present, values, 0.0).sum(axis=1), count, out=np.full(len(values), np.nan), where=count > 0
    )
    return means


def _has_ceased(signs: MetricSigns, machine: int, at: float) -> bool:
    return bool(signs.silence.ceased[max(int(np.searchsorted(signs.times, at + 1e-6)) - 1, 0), machine])


def _of_silence(
    name: str, machine: int, signs: Sequence[MetricSigns], onset: float, confirmed: float, score: float, limit: float
) -> Evidence:
    ceased = [each.metric for each in signs if _has_ceased(each, machine, confirmed)] or [signs[0].metric]
    text = f"{name} ceased to report while its peers went on: {some_names(ceased)}"
    return _remark("silence", ceased[0], onset, confirmed, score, limit, text)


def _of_rarity(name: str, cause: Cause, onset: float, confirmed: float, score: float, limit: float) -> Evidence:
    text = (
        f"what {name} did by then ({cause.name} first) is expected of a healthy machine once in "
        f"{_days(score)}; the limit is once in {_days(limit)}"
    )
    return _remark("confidence", cause.sign, onset, confirmed, score, limit, text)


def _days(decades: float) -> str:
    days = 10.0**decades
    return f"{days / 365.25:,.0f} machine-years" if days > 1000 else f"{days:,.0f} machine-days"


def _together(suspicion: Suspicion, instant: int, machine: int) -> list[int]:
    """Others that departed in the same cause at the same time, as far as that is suspicious: two at least."""
    step = float(np.diff(suspicion.times[:2]).sum())
    together = TOGETHER_SECONDS * min(step, 1.0) + TOGETHER_SAMPLES * step
    near = np.abs(suspicion.since[instant] - suspicion.since[instant, machine]) <= together
    like = (suspicion.cause[instant] == suspicion.cause[instant, machine]) & (suspicion.rarity[instant] > SUSPECTED)
    others = [other for other in np.flatnonzero(near & like).tolist() if other != machine]
    return others if len(others) >= 2 else []


def _of_group(
    suspicion: Suspicion, instant: int, machine: int, others: Sequence[int], limit: float, raw: RawTask
) -> Evidence:
    """That several departed together, and what they share, where that is known."""
    cause = suspicion.causes[suspicion.cause[instant, machine]]
    name = suspicion.machines[machine]
    names = {name, *(suspicion.machines[other] for other in others)}
    onset, confirmed = float(suspicion.since[instant, machine]), float(suspicion.times[instant])
    text = f"{name} departed together with {some_names(sorted(names - {name}))}"
    shared = []
    for domain, stated in raw.domains.items():
        members = {*stated} & {*suspicion.machines}
        count = len(names & members)
        if name in members and 2 * count > max(len(names), len(members)):
            shared.append((count, domain, len(members)))
    if shared:
        count, domain, size = max(shared)
        text += f": all share {domain}" if count == len(names) else f": {count} of these {len(names)} share {domain}"
        text += f", of whose {size} machines {count} departed; look at what they share first"
    else:
        text += "; if they share something (a rack, a switch), look at that first"
    score = round(float(suspicion.rarity[instant, machine]), 3)
    return _remark("group", cause.sign, onset, confirmed, score, limit, text)


def _considered(
    suspicion: Suspicion,
    instant: int,
    machine: int,
    limit: float,
    onset: float,
    confirmed: float,
    found: Sequence[tuple[int, int]],
    together: Sequence[int],
) -> list[Evidence]:
    """Other machines that departed as well, and why they are not the one."""
    rarity = suspicion.rarity[instant].copy()
    rarity[[machine, *together]] = 0.0
    remarks = []
    for other in np.argsort(-rarity, kind="stable")[:MOST_CONSIDERED].tolist():
        decades = float(rarity[other])
        if decades <= 0.0 or any(other == named and at <= instant for at, named in found):
            continue
        since = float(suspicion.since[instant, other])
        cause = suspicion.causes[suspicion.cause[instant, other]]
        later = f"{span(since - onset)} later" if since > onset else "no later"
        text = (
            f"{suspicion.machines[other]} departed as well ({cause.name}), {later}; expected of a healthy machine "
            f"once in {_days(decades)}: not enough beside {suspicion.machines[machine]}"
        )
        remarks.append(_remark("considered", cause.sign, since, confirmed, round(decades, 3), limit, text))
    return remarks


def _remark(kind: str, metric: str, since: float, until: float, score: float, threshold: float, text: str) -> Evidence:
    return Evidence(kind, metric, "machine", None, since, until, score, round(threshold, 3), None, None, "", text)
