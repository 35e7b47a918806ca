"""Episodes: how rare what a machine does is on a healthy one, in occurrences expected per machine-day.

An episode of a cause is the time for which a machine departs in any of its metrics; it grows by what departs and
shrinks, half as fast, by what does not, so that faults that come and go add up and single bursts do not. How often a
healthy machine has one so long is known beforehand in general (``causes``) and learned from the task itself: where
other machines have had such episodes, they are that much likelier. It is rarer the larger it is, the more causes
depart together, and when the whole task began to suffer as it began; it is likelier where several machines depart
alike at once, or where another machine explains it.

The test is sequential: at every instant, what is held against the limit is how often a day a healthy machine would
have come this far. A gross fault passes it within seconds, a subtle one in minutes, at any sampling interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from trainminder.carrying import carried
from trainminder.coverage import least_departing_seconds
from trainminder.evidence.causes import Cause
from trainminder.evidence.episodes_kernel import BINS, CAUSE, EPISODE, TASK, weigh
from trainminder.evidence.gather import Signs
from trainminder.evidence.weights import Weights
from trainminder.types import Float32Array, FloatArray, IntArray

__all__ = ["Episodes", "Weighed", "domains_of", "weigh_signs"]


@dataclass(frozen=True, slots=True)
class Episodes:
    """What is remembered: by machine and cause, by cause and length, by machine, of the task.

    Arrays as ``episodes_kernel.weigh`` takes them.
    """

    machines: tuple[str, ...]
    causes: tuple[Cause, ...]
    episodes: np.ndarray
    ended: FloatArray
    leading: FloatArray
    task: np.ndarray


@dataclass(frozen=True, slots=True)
class Weighed:
    """(instant, machine): decades by which what it does is rarer than once a machine-day; which cause; since when."""

    times: FloatArray
    rarity: Float32Array
    cause: np.ndarray
    since: FloatArray


def domains_of(machines: tuple[str, ...], domains: Mapping[str, Collection[str]]) -> IntArray:
    """(machine, some): of which domains each machine is; -1: of none, or of no more."""
    if not domains:
        return np.full((len(machines), 1), -1, dtype=np.int64)
    of: dict[str, list[int]] = {machine: [] for machine in machines}
    for number, members in enumerate(domains.values()):
        for machine in set(members) & of.keys():
            of[machine].append(number)
    found = np.full((len(machines), max([1, *map(len, of.values())])), -1, dtype=np.int64)
    for m, numbers in enumerate(of.values()):
        found[m, : len(numbers)] = numbers
    return found


def weigh_signs(
    signs: Signs, known: Episodes | None, machines: tuple[str, ...], domains: IntArray, weights: Weights
) -> tuple[Weighed, Episodes]:
    """Weigh the signs of some instants, from what was remembered before them.

    Args:
        domains: (machine, some) as ``domains_of`` gave it.
    """
    state = _carried(known, machines, signs.causes)
    shape = (len(signs.times), len(machines))
    rarity, cause, since = np.zeros(shape, dtype=np.float32), np.full(shape, -1, dtype=np.int8), np.zeros(shape)
    weigh(
        signs.times,
        signs.live,
        signs.impact,
        signs.weight,
        signs.size,
        signs.there,
        np.array(
            [(each.per_day, each.bend_seconds, each.power, each.is_silence) for each in signs.causes],
            dtype=CAUSE,
        ),
        weights.record(),
        domains,
        signs.step_seconds,
        min(signs.step_seconds, 1.0),
        least_departing_seconds(signs.step_seconds),
        state.episodes,
        state.ended,
        state.leading,
        state.task,
        rarity,
        cause,
        since,
    )
    return Weighed(signs.times, rarity, cause, since), state


def _carried(known: Episodes | None, machines: tuple[str, ...], causes: tuple[Cause, ...]) -> Episodes:
    """What is remembered, for these machines and causes; a copy, which may be changed."""
    if known is None:
        task = np.zeros(1, dtype=TASK)
        for name in ("since", "last", "deep_since", "deep_last"):
            task[name] = -np.inf
        return Episodes(
            machines,
            causes,
            np.zeros((len(machines), len(causes)), dtype=EPISODE),
            np.zeros((len(causes), BINS)),
            np.zeros(len(machines)),
            task,
        )
    episodes = carried(machines, known.machines, known.episodes, np.zeros((), dtype=EPISODE))
    if causes != known.causes:
        of_cause = carried(causes, known.causes, np.ascontiguousarray(episodes.T), np.zeros((), dtype=EPISODE))
        episodes = np.ascontiguousarray(of_cause.T)
    return Episodes(
        machines,
        causes,
        episodes,
        carried(causes, known.causes, known.ended, 0.0),
        carried(machines, known.machines, known.leading, 0.0),
        known.task.copy(),
    )
