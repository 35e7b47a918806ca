"""The loop over instants, machines and causes that weighs episodes, compiled. ``episodes`` says what it is for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainminder.compiled import compiled
from trainminder.evidence.life_kernel import STILL_SECONDS

__all__ = ["BINS", "CAUSE", "EPISODE", "TASK", "WEIGHTS", "weigh"]

#: Lengths of episodes are counted in bins, four to each doubling from four seconds on.
BINS = 24
#: A cause as ``causes.Cause`` has it.
CAUSE = np.dtype([("per_day", "f8"), ("bend_seconds", "f8"), ("power", "f8"), ("is_silence", "?")])
#: Of one machine and cause: seconds that it has departed for in this episode, the most they came to, since when and how
#: far at most; what was there at the last instant at work: its weight and size; whether the machine left the task;
#: and its ended episodes by their length.
EPISODE = np.dtype(
    [
        ("lasted", "f8"),
        ("peak", "f8"),
        ("since", "f8"),
        ("furthest", "f8"),
        ("weight", "f4"),
        ("size", "f4"),
        ("has_left", "?"),
        ("ended", "f4", (BINS,)),
    ]
)
#: Of the task: machine-days seen, seconds at work and of those suffering, since when and when last it suffered at
#: all, and deeply; for how long it has stood still, and since when.
TASK = np.dtype(
    [
        ("machine_days", "f8"),
        ("live", "f8"),
        ("suffered", "f8"),
        ("since", "f8"),
        ("last", "f8"),
        ("deep_since", "f8"),
        ("deep_last", "f8"),
        ("still", "f8"),
        ("still_since", "f8"),
    ]
)

#: What each kind of evidence is worth; ``weights.Weights`` says what each is.
WEIGHTS = np.dtype(
    [
        ("prior", "f8"),
        ("size_power", "f8"),
        ("other_cause", "f8"),
        ("suffers", "f8"),
        ("suffers_deeply", "f8"),
        ("is_silent", "f8"),
        ("has_left", "f8"),
        ("alike", "f8"),
        ("others_least", "f8"),
        ("others_share", "f8"),
    ]
)

#: Departures larger than this, in bare noise, are rarer.
ORDINARY_SIZE = 4.0
#: Another cause counts that departs at least this share as long.
ALONGSIDE = 0.4
#: Machines that depart alike, beyond the second, that count at most; and if the task began to suffer with them, as it
#: does when what they share breaks.
MOST_ALIKE, MOST_ALIKE_SUFFERING = 3, 1
#: Alike are those that depart at least half as long and a third as far, since about the same time.
ALIKE_LASTED, ALIKE_SIZE = 0.5, 1.0 / 3.0
#: The task suffers because of what began this much before or after it did, or within so many samples.
NEAR_SECONDS, NEAR_SAMPLES = 60.0, 4.0
#: Machines of a group that breaks depart within so much of each other.
TOGETHER_SECONDS, TOGETHER_SAMPLES = 10.0, 2.0
#: Suffering that paused for less than this goes on. It is the same one for as long as the second.
PAUSE_SECONDS, SAME_SECONDS = 120.0, 600.0
#: From this many decades on a machine is suspected.
SUSPECTED = 2.0
#: Suspicion fades within this long.
FADE_SECONDS = 300.0


@compiled()
def _bin(seconds: float) -> int:
    return int(min(4.0 * math.log2(1.0 + seconds / 4.0), BINS - 1.0))


@compiled()
def _suffer(task: Any, impact: int, now: float, pace: float) -> None:
    """Take in whether the task suffers now."""
    if impact > 0:
        if task.since < 0.0 or now - task.last > PAUSE_SECONDS * pace:
            task.since = now
        task.last = now
        if impact > 1:
            if task.deep_since < 0.0 or now - task.deep_last > PAUSE_SECONDS * pace:
                task.deep_since = now
            task.deep_last = now


@compiled()
def _chance_of_suffering(task: Any, now: float, pace: float) -> float:
    """How often the task suffers anyhow: the share of its time, but for the suffering under way."""
    suffered = task.suffered
    if task.since >= 0.0 and now - task.since <= SAME_SECONDS * pace:
        suffered -= now - task.since
    return float(max(min(1.0, (suffered + 60.0 * pace) / (task.live + 300.0 * pace)), 0.0))


@compiled()
def _stand_still(task: Any, is_live: bool, step: float, now: float, pace: float) -> bool:
    """Take in whether the task stands still; a halt is the deepest suffering. Whether it goes on after a halt."""
    if is_live:
        went_on = task.still >= STILL_SECONDS * pace
        task.still = 0.0
        return bool(went_on)
    if task.still == 0.0:
        task.still_since = now
    task.still += step
    if task.still >= STILL_SECONDS * pace:
        if task.deep_since < 0.0 or task.still_since - task.deep_last > PAUSE_SECONDS * pace:
            task.deep_since = task.still_since
        if task.since < 0.0 or task.still_since - task.last > PAUSE_SECONDS * pace:
            task.since = task.still_since
        task.last = task.deep_last = now
    return False


@compiled()
def _go_on(episode: Any, weight: float, size: float, seconds: float, now: float, pace: float, ended: Any) -> None:
    """Let an episode go on, or come to its end."""
    episode.weight, episode.size = weight, size
    if weight > 0.0:
        if episode.lasted == 0.0:
            episode.since = now
        episode.lasted += weight * seconds
        episode.peak = max(episode.peak, episode.lasted)
        episode.furthest = max(episode.furthest, size)
    elif episode.lasted > 0.0:
        episode.lasted += max(weight, -0.5) * seconds
        if episode.lasted <= 0.0:
            k = _bin(episode.peak / pace)
            ended[k] += 1.0
            episode.ended[k] += 1.0
            episode.lasted = episode.peak = episode.furthest = 0.0


@compiled()
def _note_longest(longest: Any, m: int, episode: Any) -> None:
    """Keep an episode among those that lasted the longest."""
    k = len(longest) - 1
    if episode.lasted <= longest[k, 0]:
        return
    while k > 0 and longest[k - 1, 0] < episode.lasted:
        longest[k] = longest[k - 1]
        k -= 1
    longest[k, 0], longest[k, 1], longest[k, 2], longest[k, 3] = episode.lasted, episode.furthest, episode.since, m


@compiled()
def _is_alike(other: Any, episode: Any, near: float) -> bool:
    return bool(
        other.lasted >= ALIKE_LASTED * episode.lasted
        and other.furthest >= ALIKE_SIZE * episode.furthest
        and abs(other.since - episode.since) <= near
    )


@compiled()
def _sizes(domains: Any) -> Any:
    """(domain,): how many machines of the task are of each."""
    sizes = np.zeros(domains.max() + 1)
    for m in range(len(domains)):
        for domain in domains[m]:
            if domain >= 0:
                sizes[domain] += 1.0
    return sizes


@compiled()
def _share(domains: Any, breaks: Any, m: int, other: int) -> bool:
    """Whether two machines share a domain that breaks."""
    for mine in domains[m]:
        if mine >= 0 and breaks[mine]:
            for its in domains[other]:
                if its == mine:
                    return True
    return False


@compiled()
def _alike(longest: Any, m: int, episode: Any, near: float, domains: Any, breaks: Any) -> tuple[int, int]:
    """How many others, of those that depart the longest, do so like this one; and how many share no domain with it."""
    n, strangers = 0, 0
    for k in range(len(longest)):
        if (
            longest[k, 0] >= max(ALIKE_LASTED * episode.lasted, 1e-9)
            and longest[k, 1] >= ALIKE_SIZE * episode.furthest
            and abs(longest[k, 2] - episode.since) <= near
            and longest[k, 3] != m
        ):
            n += 1
            strangers += not _share(domains, breaks, m, int(longest[k, 3]))
    return n, strangers


@compiled()
def weigh(
    times: Any,
    live: Any,
    impact: Any,
    weight: Any,
    size: Any,
    there: Any,
    causes: Any,
    weights: Any,
    domains: Any,
    step: float,
    pace: float,
    least: float,
    episodes: Any,
    ended: Any,
    leading: Any,
    task: Any,
    rarity: Any,
    cause_of: Any,
    since: Any,
) -> None:
    """Weigh what every machine does, over some instants.

    Args:
        times, live, impact: (instant,).
        weight: (instant, machine, cause), as of ``departure``: the most of its metrics. size: likewise, the
            largest of them in bare noise. there: (instant, machine), whether it is one of the task.
        causes: (cause,) of ``CAUSE``. weights: (1,) of ``WEIGHTS``.
        domains: (machine, some) of which domains each is; -1: none.
        step: seconds between instants. pace: what counts as a second, where sampling is faster.
        least: seconds that must depart before anything is weighed.
        episodes: (machine, cause) of ``EPISODE``; ended: (cause, bin), episodes of all machines; leading: (machine,)
            decades against it at the last instant; task: (1,) of ``TASK``: what is remembered, changed in place.
        rarity: (instant, machine), to be filled: -log10 of how often a day this is expected of a healthy machine; 0
            where that is more than once, or nothing is to be said. cause_of, since: of which cause that is, and since
            when, where rarity is above 0.
    """
    machines, kinds = episodes.shape
    all_of = task[0]
    worth = weights[0]
    longest = np.zeros((kinds, 6, 4))
    departing = np.zeros(kinds)
    sizes = _sizes(domains)
    # A domain breaks where more than half of it departs.
    departing_of, breaks = np.zeros((kinds, len(sizes))), np.zeros((kinds, len(sizes)), dtype=np.bool_)
    fade = math.exp(-step / (FADE_SECONDS * pace))
    near = NEAR_SECONDS * pace + NEAR_SAMPLES * step
    together = TOGETHER_SECONDS * pace + TOGETHER_SAMPLES * step
    for t in range(len(times)):
        now = times[t]
        went_on = _stand_still(all_of, live[t], step, now, pace)
        suffers = impact[t]
        members = 0
        for m in range(machines):
            members += 1 if there[t, m] else 0
        if live[t]:
            _suffer(all_of, suffers, now, pace)
            all_of.machine_days += members * step / pace / 86400.0
            all_of.live += step
            all_of.suffered += step if suffers > 0 else 0.0
        elif all_of.still >= STILL_SECONDS * pace:
            suffers = 2
        chance = _chance_of_suffering(all_of, now, pace)
        longest[:] = 0.0
        departing[:] = 0.0
        departing_of[:] = 0.0
        for m in range(machines):
            if not there[t, m]:
                # Who is forgotten begins anew.
                leading[m] = 0.0
                for c in range(kinds):
                    episode = episodes[m, c]
                    episode.lasted = episode.peak = episode.furthest = episode.weight = 0.0
                    episode.has_left = False
                continue
            for c in range(kinds):
                w = weight[t, m, c]
                episode = episodes[m, c]
                is_silence = causes[c].is_silence
                # While the task stands still only silence is judged, of machines that ceased before it did.
                if not live[t] and not (is_silence and episode.weight > 0.0):
                    continue
                if is_silence:
                    # Who is silent when the task goes on after a halt is no longer of it, until it reports again.
                    episode.has_left = w > 0.0 and (went_on or episode.has_left)
                    w = -0.5 if episode.has_left else w
                if w > 0.0 or episode.lasted > 0.0:
                    _go_on(episode, w, size[t, m, c], step, now, pace, ended[c])
                else:
                    episode.weight = w
                if w > 0.0:
                    departing[c] += 1.0
                    for domain in domains[m]:
                        if domain >= 0:
                            departing_of[c, domain] += 1.0
                    _note_longest(longest[c], m, episode)
        breaks[:] = 2.0 * departing_of > sizes
        suspect = 0
        for m in range(1, machines):
            if leading[m] > leading[suspect]:
                suspect = m
        against_suspect = leading[suspect]
        for m in range(machines):
            best = 0.0
            for c in range(kinds):
                episode = episodes[m, c]
                if episode.weight <= 0.0 or episode.lasted < least:
                    continue
                decades = _decades(episodes[m], c, causes[c], worth, ended[c], all_of.machine_days, pace)
                is_common = suffers > 0 and abs(all_of.since - episode.since) <= near
                if suffers > 1 and abs(all_of.deep_since - episode.since) <= near:
                    is_common = True
                    decades -= math.log10(min(1.0, max(worth.suffers_deeply, chance)))
                    if causes[c].is_silence:
                        decades -= math.log10(worth.is_silent)
                elif is_common:
                    decades -= math.log10(min(1.0, max(worth.suffers, 4.0 * chance)))
                elif causes[c].is_silence:
                    decades -= math.log10(worth.has_left)
                alike, strangers = _alike(longest[c], m, episode, near, domains, breaks[c])
                is_explained = m != suspect and against_suspect > SUSPECTED
                is_with_suspect = not is_explained or _is_alike(episodes[suspect, c], episode, together)
                # What they share breaks for all of a group at once, suddenly; a third of all is no group.
                is_group = (
                    alike >= 2
                    and is_common
                    and episode.furthest > ORDINARY_SIZE
                    and 3.0 * departing[c] <= members
                    and is_with_suspect
                )
                if (
                    alike > strangers
                    and is_with_suspect
                    and (not is_explained or _share(domains, breaks[c], m, suspect))
                ):
                    # What they share is known: those of the same domain are one event, not several.
                    alike = strangers
                    is_explained = False
                if alike >= 2:
                    decades -= min(alike - 1, MOST_ALIKE_SUFFERING if is_group else MOST_ALIKE) * math.log10(
                        worth.alike
                    )
                if is_explained and not is_group:
                    decades -= max(worth.others_least, worth.others_share * against_suspect)
                if decades > best:
                    best = decades
                    cause_of[t, m] = c
                    since[t, m] = episode.since
            # Who is suspected stays it for a while: what it does to the others outlasts what it does itself.
            leading[m] = max(best, leading[m] * fade)
            rarity[t, m] = best


@compiled()
def _decades(of_machine: Any, c: int, cause: Any, worth: Any, ended: Any, machine_days: float, pace: float) -> float:
    """-log10 of how often a day a healthy machine is expected to depart for so long, so far and in so much at once."""
    episode = of_machine[c]
    lasted = episode.lasted / pace
    decades = cause.power * math.log10(1.0 + lasted / cause.bend_seconds) - math.log10(cause.per_day)
    if episode.size > ORDINARY_SIZE:
        decades += worth.size_power * math.log10(episode.size / ORDINARY_SIZE)
    # What the task has shown itself: others' episodes that lasted half as long, beside what was to be expected.
    others = 0.0
    for k in range(_bin(0.5 * lasted), BINS):
        others += ended[k] - episode.ended[k]
    if others > 0.0:
        expected = machine_days * cause.per_day * (1.0 + 0.5 * lasted / cause.bend_seconds) ** -cause.power
        decades -= max(0.0, math.log10((worth.prior + others) / (worth.prior + expected)))
    for other in range(len(of_machine)):
        alongside = of_machine[other]
        if other != c and alongside.weight > 0.0 and alongside.lasted >= ALONGSIDE * episode.lasted:
            decades -= math.log10(worth.other_cause)
    return float(decades)
