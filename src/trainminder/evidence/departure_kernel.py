"""The loop over instants and rows of one metric, compiled. ``departure`` says what it is for and checks what goes in.

What is remembered of a row and of a group are records of numpy: the names of their fields say what they hold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainminder.compiled import compiled
from trainminder.coverage import FIRST_SAMPLES, FIRST_SECONDS

__all__ = ["GROUP", "KEPT", "ROW", "follow"]

#: Samples of a first relation that are kept, at most.
KEPT = 60

#: Of a row. ``relation``: its ordinary difference from its peers, in the metric's unit; ``age``: seconds since the
#: first of it; ``stray``: how far it ordinarily strays from that; ``short``, ``long``: means of the last seconds and
#: of the last minute of its difference beyond that, in spreads; ``size``: the same of seconds, in bare noise;
#: ``either``, ``net``: how much of the last minutes departs to either side, and to one side more than to the other;
#: ``missing``: seconds since its last sample; ``seen``: samples of its
#: first relation, of which there are ``KEPT`` at most, kept beside it as long as it is not known.
ROW = np.dtype(
    [
        ("relation", "f8"),
        ("age", "f8"),
        ("stray", "f8"),
        ("short", "f8"),
        ("long", "f8"),
        ("size", "f8"),
        ("either", "f8"),
        ("net", "f8"),
        ("missing", "f8"),
        ("seen", "i8"),
    ]
)
#: Of a group. ``level``: size of the median; ``spread``, ``lately``: how far apart its rows are, of minutes and of
#: seconds; ``short``, ``long``: how far the means of ordinary rows reach.
GROUP = np.dtype(
    [
        ("level", "f8"),
        ("spread", "f8"),
        ("lately", "f8"),
        ("age", "f8"),
        ("short", "f8"),
        ("long", "f8"),
        ("age_of_means", "f8"),
        ("seen", "i8"),
        ("first", "f8", (KEPT,)),
    ]
)

#: One spread, in the median of absolute deviations, for the normal law.
MAD = 1.4826
#: A difference in an instant counts for at most so many spreads: what lasts convicts, not what is large.
CLIP = 4.0
#: Means of the last seconds and of the last minute beyond which a row departs, in spreads, and in what those of
#: ordinary rows reach.
SHORT, LONG, ORDINARY = 1.5, 1.0, 5.0
#: Least that the means of ordinary rows are believed to reach.
LEAST_REACH = 0.2
#: A difference from the beginning on that is larger, in spreads, is one to explain.
LASTING = 10.0


@compiled()
def _median(values: Any, count: int) -> float:
    """The median of the first so many values, which are put in another order."""
    k = count // 2
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    upper = values[k]
    if count % 2 == 1:
        return float(upper)
    lower = values[0]
    for i in range(1, k):
        lower = max(lower, values[i])
    return float(0.5 * (lower + upper))


@compiled()
def _beyond(difference: float, relation: float, share: float) -> float:
    """How far a difference lies outside what it may be: the ordinary one in unit, or in share of the level."""
    return difference - min(max(difference, min(relation, share)), max(relation, share))


@compiled()
def _share(relation: float, middle: float, level: float) -> float:
    """The ordinary difference if it is a share of what all do."""
    return relation * middle / level if level > 0.0 else relation


@compiled()
def _reach(values: Any, count: int) -> float:
    """How far the means of ordinary rows reach."""
    return min(max(MAD * _median(values, count) * (1.0 + 2.0 / count), LEAST_REACH), SHORT)


@compiled()
def _learn_spread(group: Any, spread: float, step: float, weight: float, keep: int, least: float, buffer: Any) -> None:
    """Take in how far apart the rows of a group are now."""
    if group.seen < keep:
        group.first[group.seen] = spread
        group.seen += 1
        for i in range(group.seen):
            buffer[i] = group.first[i]
        group.spread = _median(buffer, group.seen)
        return
    group.age += step
    # A rough beginning is soon forgotten: the newest count most until there is a memory to keep.
    weight = max(weight, 3.0 * step / (3.0 * step + group.age))
    group.spread += weight * (min(spread, 5.0 * max(group.spread, least)) - group.spread)


@compiled()
def _meet(row: Any, first: Any, difference: float, keep: int, learn: float, buffer: Any) -> None:
    """Take in a sample of a row's first relation to its peers, which is not believed to be any distance."""
    first[row.seen] = difference
    row.seen += 1
    if row.seen < keep:
        return
    for i in range(keep):
        buffer[i] = first[i]
    row.relation = _median(buffer, keep)
    for i in range(keep):
        buffer[i] = abs(first[i] - row.relation)
    row.stray = _median(buffer, keep)
    row.age = learn


@compiled()
def _forget(row: Any) -> None:
    """Let a row be as one that was never seen."""
    row.relation = row.age = row.stray = row.short = row.long = row.size = row.either = row.net = 0.0
    row.seen = 0


@compiled()
def _learn_reach(
    rows: Any, group: Any, members: Any, present: Any, keep: int, step: float, weight: float, buffer: Any
) -> None:
    """Take in how far the means of a group's ordinary rows reach now."""
    n = 0
    for r in members:
        if present[r] and rows[r].seen >= keep:
            buffer[n] = abs(rows[r].short)
            n += 1
    if n < 3:
        return
    group.age_of_means += step
    weight = max(weight, 3.0 * step / (2.0 * step + group.age_of_means))
    group.short += weight * (_reach(buffer, n) - group.short)
    n = 0
    for r in members:
        if present[r] and rows[r].seen >= keep:
            buffer[n] = abs(rows[r].long)
            n += 1
    group.long += weight * (_reach(buffer, n) - group.long)


@compiled()
def _members(group_of: Any, groups: int) -> tuple[Any, Any]:
    """The rows of each group, one group after the other, and where each begins."""
    starts = np.zeros(groups + 1, dtype=np.int64)
    for g in group_of:
        if g >= 0:
            starts[g + 1] += 1
    for g in range(groups):
        starts[g + 1] += starts[g]
    members = np.empty(starts[groups], dtype=np.int64)
    filled = starts[:-1].copy()
    for r in range(len(group_of)):
        g = group_of[r]
        if g >= 0:
            members[filled[g]] = r
            filled[g] += 1
    return members, starts


@compiled()
def follow(
    values: Any,
    present: Any,
    group_of: Any,
    live: Any,
    step: float,
    pace: float,
    spread: float,
    spread_ratio: float,
    forgotten: float,
    rows: Any,
    firsts: Any,
    groups: Any,
    weight_out: Any,
    size_out: Any,
    reached: Any,
) -> bool:
    """Follow the rows of one metric over some instants.

    Args:
        values, present: (instant, row), in the metric's unit.
        group_of: (row,), -1: compared with nobody.
        live: (instant,) whether the task works.
        step: seconds between instants. pace: what counts as a second, where sampling is faster.
        spread, spread_ratio: what healthy machines may differ by, as in ``MetricSpec``.
        forgotten: seconds without a sample after which a row is new.
        rows, groups: (row,), (group,) what is remembered; changed in place.
        firsts: (row, KEPT) the samples of first relations that are not known yet; likewise.
        weight_out: (instant, row): share of the instant that counts as departing; negative where it counts against
            that; 0 where nothing can be said.
        size_out: likewise, the size of the departure in the bare noise, with its sign.
        reached: likewise, by how much the larger of both means is beyond what makes a departure (1: just); or empty,
            where nobody asks. It must hold NaN, which stays where nothing can be said.
    Returns:
        whether the first relation of any row is under way.
    """
    count = len(group_of)
    to_short = 1.0 - math.exp(-step / max(10.0 * pace, 3.0 * step))
    to_long = 1.0 - math.exp(-step / max(60.0 * pace, 8.0 * step))
    to_scale = 1.0 - math.exp(-step / max(300.0 * pace, 30.0 * step))
    to_relation = 1.0 - math.exp(-step / max(900.0 * pace, 60.0 * step))
    learn = max(FIRST_SECONDS * pace, FIRST_SAMPLES * step)
    young = learn + max(300.0 * pace, 20.0 * step)
    settled = learn + max(300.0 * pace, 12.0 * step)
    keep = max(int(FIRST_SAMPLES), min(KEPT, round(learn / step)))
    buffer = np.empty(max(count, KEPT))
    members, starts = _members(group_of, len(groups))
    middle = np.zeros(len(groups))
    apart = np.zeros(len(groups))
    for t in range(len(values)):
        for g in range(len(groups)):
            group = groups[g]
            n = 0
            for r in members[starts[g] : starts[g + 1]]:
                if present[t, r]:
                    buffer[n] = values[t, r]
                    n += 1
            if n < 3:
                middle[g] = math.nan
                continue
            m = _median(buffer, n)
            middle[g] = m
            if live[t] or group.age == 0.0:
                group.level += max(to_scale, 3.0 * step / (3.0 * step + group.age)) * (abs(m) - group.level)
            n = 0
            for r in members[starts[g] : starts[g + 1]]:
                if present[t, r]:
                    relation = rows[r].relation
                    buffer[n] = abs(_beyond(values[t, r] - m, relation, _share(relation, m, group.level)))
                    n += 1
            apart[g] = MAD * _median(buffer, n) * (1.0 + 4.0 / n)
            if live[t]:
                group.lately += to_short * (apart[g] - group.lately)
                least = max(spread, spread_ratio * group.level) / 3.0
                _learn_spread(group, apart[g], step, to_scale, keep, least, buffer)
        for r in range(count):
            weight_out[t, r] = 0.0
            if not present[t, r]:
                rows[r].missing += step
                continue
            if rows[r].missing >= forgotten:
                _forget(rows[r])
            rows[r].missing = 0.0
            g = group_of[r]
            if g < 0 or math.isnan(middle[g]):
                continue
            row, group = rows[r], groups[g]
            if not live[t]:
                # What stands still is not compared; what was seen in the last seconds is let go.
                row.short *= 1.0 - to_short
                row.long *= 1.0 - to_long
                row.size *= 1.0 - to_short
                continue
            difference = values[t, r] - middle[g]
            if row.seen < keep:
                _meet(row, firsts[r], difference, keep, learn, buffer)
                weight_out[t, r] = -0.5
                continue
            row.age += step
            ordinary = max(spread, spread_ratio * group.level)
            least = ordinary / 3.0
            usual = max(group.spread, least)
            if row.age >= settled and row.age - step < settled:
                lasting = LASTING * max(ordinary, group.spread)
                row.relation = min(max(row.relation, -lasting), lasting)
            beyond = _beyond(difference, row.relation, _share(row.relation, middle[g], group.level))
            noise = max(max(group.spread, group.lately), 1.25 * row.stray)
            scale = max(noise, least) * (1.0 + 5.0 * step / row.age) + 0.5 * apart[g]
            noise += 0.5 * apart[g]
            in_spreads = beyond / max(scale, 1e-300)
            agrees = abs(difference) < 2.0 * usual
            if row.age < young and (agrees or difference * beyond < 0.0):
                # Who agrees with its peers does not depart, whatever it did in the few minutes before.
                if agrees and abs(beyond) > 2.0 * scale:
                    row.relation += 0.05 * (difference - row.relation)
                in_spreads = 0.0 if difference * beyond < 0.0 else max(min(in_spreads, 1.0), -1.0)
            row.size += to_short * (beyond / max(noise, 0.05 * scale, 1e-300) - row.size)
            in_spreads = max(min(in_spreads, CLIP), -CLIP)
            row.short += to_short * (in_spreads - row.short)
            row.long += to_long * (in_spreads - row.long)
            row.relation += max(to_relation, min(step / row.age, 0.1)) * min(max(beyond, -scale), scale)
            by_short = abs(row.short) / max(SHORT, ORDINARY * group.short)
            by_long = abs(row.long) / max(LONG, ORDINARY * group.long)
            if len(reached):
                reached[t, r] = max(by_short, by_long)
            weight_out[t, r] = -0.5
            if by_short >= 1.0 or by_long >= 1.0:
                sign = math.copysign(1.0, row.short if by_short >= 1.0 else row.long)
                weight = min(max(0.5 * in_spreads * sign, -0.5), 1.0)
                if weight > 0.0:
                    # What swings to and fro, as the neighbours of a culprit do, is no departure to either side.
                    row.either += to_scale * (weight - row.either)
                    row.net += to_scale * (weight * sign - row.net)
                    weight *= max(row.net * sign / max(row.either, 1e-300), 0.0)
                weight_out[t, r] = weight
            size_out[t, r] = row.size
            strayed = min(abs(beyond), 3.0 * max(row.stray, 0.5 * usual))
            # Up slowly, so that a fault is not taken for an ordinary stray while it lasts.
            rate = to_scale
            if strayed <= row.stray:
                rate = max(to_scale, 3.0 * step / (13.0 * step + row.age - learn))
            row.stray = min(row.stray + rate * (strayed - row.stray), 4.0 * usual)
        if live[t]:
            for g in range(len(groups)):
                if not math.isnan(middle[g]):
                    some = members[starts[g] : starts[g + 1]]
                    _learn_reach(rows, groups[g], some, present[t], keep, step, to_scale, buffer)
    is_first = False
    for row in rows:
        is_first |= 0 < row.seen < keep
    return is_first
