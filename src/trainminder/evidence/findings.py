"""Findings: whom the evidence convicts, since when, and everything that a person needs to believe it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.coverage import FIRST_SAMPLES, FIRST_SECONDS
from trainminder.evidence.causes import CAUSES, REPORTING, Cause, cause_of
from trainminder.evidence.departed import Departed
from trainminder.evidence.episodes import Weighed
from trainminder.evidence.episodes_kernel import SUSPECTED, TOGETHER_SAMPLES, TOGETHER_SECONDS
from trainminder.past import Past
from trainminder.types import Evidence, Float32Array, FloatArray, MetricSpec, Trail, Verdict
from trainminder.wording import machine_and_device, quantity, some_names, span

__all__ = ["Scene", "Suspicion", "confirmed_instants", "limit_of", "shares_of", "trail_of", "verdicts_of"]

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
class Scene:
    """What a verdict is told by: what departed, and what rows were lately, by metric, and what is known of machines."""

    departed: Mapping[str, Departed]
    pasts: Mapping[str, tuple[Past, ...]]
    specs: Mapping[str, MetricSpec]
    groups: Mapping[str, str]
    domains: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Share:
    """What one metric adds: seconds it departed for, the median size of that in bare noise, and which device."""

    metric: str
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


def verdicts_of(suspicion: Suspicion, limit: float, scene: Scene, known: Collection[str]) -> tuple[Verdict, ...]:
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
    index = {machine: number for number, machine in enumerate(suspicion.machines)}
    before = [(-1, index[machine]) for machine in known if machine in index]
    return tuple(_verdict(suspicion, instant, machine, limit, scene, [*before, *found]) for instant, machine in found)


def _verdict(
    suspicion: Suspicion,
    instant: int,
    machine: int,
    limit: float,
    scene: Scene,
    found: Sequence[tuple[int, int]],
) -> Verdict:
    name = suspicion.machines[machine]
    confirmed, onset = float(suspicion.times[instant]), float(suspicion.since[instant, machine])
    cause = suspicion.causes[suspicion.cause[instant, machine]]
    score = round(float(suspicion.rarity[instant, machine]), 3)
    shares = shares_of(suspicion, instant, machine, scene.departed)
    if shares:
        onset = _from_the_first(shares[0], name, onset, confirmed, scene)
    total = sum(share.seconds for share in shares) or 1.0
    evidence = [_of_metric(share, name, onset, confirmed, share.seconds / total, scene) for share in shares]
    if cause is REPORTING:
        evidence.insert(0, _of_silence(name, machine, scene, onset, confirmed, score, limit))
    evidence.append(_of_rarity(name, cause, onset, confirmed, score, limit))
    together = _together(suspicion, instant, machine)
    if together:
        evidence.append(_of_group(suspicion, instant, machine, together, limit, scene.domains))
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


def shares_of(suspicion: Suspicion, instant: int, machine: int, departed: Mapping[str, Departed]) -> list[Share]:
    """What each metric adds at an instant: those of the leading cause first, then by how long and how far."""
    onset, confirmed = float(suspicion.since[instant, machine]), float(suspicion.times[instant])
    cause = suspicion.causes[suspicion.cause[instant, machine]]
    shares = [share for each in departed.values() if (share := _share(each, machine, onset, confirmed)) is not None]
    return sorted(shares, key=lambda share: (cause_of(share.metric) is not cause, -share.seconds * share.size))


def _share(departed: Departed, machine: int, onset: float, confirmed: float) -> Share | None:
    """What a metric adds to the evidence against a machine; None where it did not depart."""
    those = departed.of(machine, onset - 0.5 * departed.step_seconds, confirmed + 1e-6)
    if not len(those):
        return None
    which = those["device"]
    device = -1
    if those["devices"].mean() <= MOST_DEVICES and (which >= 0).any():
        counts = np.bincount(which[which >= 0])
        if counts.max() >= DEVICE_SHARE * len(those):
            device = int(counts.argmax())
    size = float(np.median(np.abs(those["size"])))
    return Share(departed.metric, len(those) * departed.step_seconds, size, device, float(those["time"][-1]))


def _from_the_first(share: Share, name: str, onset: float, confirmed: float, scene: Scene) -> float:
    """The first instant known, where the machine was as far from its peers before the onset as after it."""
    past, row, peers = _against(share, name, scene)
    began = max(past.began, confirmed - past.kept_seconds)
    # Of what was before, some must be there to see.
    if onset - began < max(FIRST_SECONDS * min(past.step_seconds, 1.0), FIRST_SAMPLES * past.step_seconds):
        return onset
    means = past.each(np.arange(len(past.bins)))
    some = ~np.isnan(means[peers]).all(axis=0)
    apart = np.full(len(past.bins), np.nan)
    apart[some] = means[row, some] - np.nanmedian(means[peers][:, some], axis=0)
    earlier = apart[past.between(began, onset - past.seconds)]
    during = apart[past.between(onset, confirmed)]
    earlier, during = earlier[~np.isnan(earlier)], during[~np.isnan(during)]
    if not len(earlier) or not len(during):
        return onset
    if abs(np.median(earlier) - np.median(during)) > SAME * abs(np.median(during)):
        return onset
    return began


def _against(share: Share, name: str, scene: Scene) -> tuple[Past, int, list[int]]:
    """The view that shows what a metric adds, the row that does, and those of the peers."""
    views = scene.pasts[share.metric]
    past = views[-1] if share.device >= 0 else views[0]
    group = scene.groups.get(name, "")
    mine = [row for row, (machine, _) in enumerate(past.rows) if machine == name]
    peers = [
        row for row, (machine, _) in enumerate(past.rows) if machine != name and scene.groups.get(machine, "") == group
    ]
    return past, mine[max(share.device, 0)], peers


def _of_metric(share: Share, machine: str, onset: float, confirmed: float, weight: float, scene: Scene) -> Evidence:
    """What one metric shows, in numbers and in words."""
    name = share.metric
    past, row, others = _against(share, machine, scene)
    device = past.rows[row][1] if share.device >= 0 else None
    means = past.means(past.between(onset, confirmed))
    low, middle, high = (float(bound) for bound in np.nanquantile(means[others], (0.05, 0.5, 0.95)))
    value, unit = float(means[row]), scene.specs[name].unit
    where = machine_and_device(machine, device)
    over = " over its devices" if past.view == "mean" else ""
    text = (
        f"{name} of {where} was {quantity(value, unit, 4)} on average{over} from onset to confirmation, "
        f"{'above' if value > middle else 'below'} its peers' median of {quantity(middle, unit, 4)} (nine in ten "
        f"between {quantity(low, unit)} and {quantity(high, unit)}); it departed from them for {span(share.seconds)}"
    )
    return Evidence(
        kind="metric",
        metric=name,
        view=past.view,
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


def _of_silence(
    name: str, machine: int, scene: Scene, onset: float, confirmed: float, score: float, limit: float
) -> Evidence:
    ceased = [each.metric for each in scene.departed.values() if each.has_ceased(machine, confirmed)]
    ceased = ceased or [next(iter(scene.departed))]
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
    suspicion: Suspicion,
    instant: int,
    machine: int,
    others: Sequence[int],
    limit: float,
    domains: Mapping[str, tuple[str, ...]],
) -> Evidence:
    """That several departed together, and what they share, where that is known."""
    cause = suspicion.causes[suspicion.cause[instant, machine]]
    name = suspicion.machines[machine]
    names = {name, *(suspicion.machines[other] for other in others)}
    onset, confirmed = float(suspicion.since[instant, machine]), float(suspicion.times[instant])
    text = f"{name} departed together with {some_names(sorted(names - {name}))}"
    shared = []
    for domain, stated in domains.items():
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
