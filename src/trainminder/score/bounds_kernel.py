"""The loops that bound sums of distances by clusters, compiled. ``bounds`` says why they hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainminder.compiled import compiled

__all__ = ["bound"]

_COMPILE: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}

#: Machines bounded at a time: what is known of them stays in the first-level cache.
BLOCK = 256
#: Relative rounding of the single-precision loops here and in ``sums_kernel``, with a margin.
ROUNDING = 2e-5
#: The same of a variance of squared distances, by its terms.
ROUNDING_OF_VARIANCE = np.float32(1e-5)
_ZERO, _FOUR, _EIGHT = np.float32(0.0), np.float32(4.0), np.float32(8.0)
#: Against division by zero; in units of the machines' spread, far below what single precision tells apart.
_LITTLE = np.float32(1e-30)


@compiled(**_COMPILE)
def _spread(points: Any, order: Any, first: int, last: int, mean: Any, squares: Any) -> float:
    """Mean and sum of squared deviations of one cluster, dimension by dimension; returns the sum of the latter."""
    total = 0.0
    for a in range(len(points)):
        row = points[a]
        middle = 0.0
        for i in range(first, last):
            middle += row[order[i]]
        middle /= last - first
        squared = 0.0
        for i in range(first, last):
            apart = row[order[i]] - middle
            squared += apart * apart
        mean[a], squares[a] = middle, squared
        total += squared
    return total


@compiled(**_COMPILE)
def _cluster(points: Any, most: int, order: Any, starts: Any, stops: Any) -> int:
    """Split again and again the widest cluster in two, at its mean in the dimension in which it is widest.

    Args:
        points: (width, machine).
        order: (machine,) is filled with the machines, one cluster after the other.
        starts, stops: (most,) are filled with where each begins and ends in it.
    Returns:
        how many clusters there are.
    """
    width, machines = points.shape
    mean, squares = np.empty((most, width)), np.empty((most, width))
    inertia = np.empty(most)
    order[:] = np.arange(machines)
    starts[0], stops[0] = 0, machines
    inertia[0] = _spread(points, order, 0, machines, mean[0], squares[0])
    count = 1
    while count < most:
        widest = int(np.argmax(inertia[:count]))
        if not inertia[widest] > 0.0:
            break
        a = int(np.argmax(squares[widest]))
        row, middle = points[a], mean[widest, a]
        i, j = starts[widest], stops[widest] - 1
        while i <= j:
            if row[order[i]] <= middle:
                i += 1
            else:
                order[i], order[j] = order[j], order[i]
                j -= 1
        if i in (starts[widest], stops[widest]):
            # What is left of its width is rounding.
            inertia[widest] = 0.0
            continue
        starts[count], stops[count], stops[widest] = i, stops[widest], i
        for each in (widest, count):
            inertia[each] = _spread(points, order, starts[each], stops[each], mean[each], squares[each])
        count += 1
    return count


@compiled(**_COMPILE)
def _moments(points: Any, members: Any, mean: Any, second: Any, third: Any) -> tuple[float, float, float]:
    """Moments of one cluster about its mean.

    ``second``: (width, width) mean of products, below and on the diagonal; ``third``: (width,) mean of deviation times
    squared distance. Returns mean and variance of the squared distances, and the largest distance.
    """
    width, count = len(points), len(members)
    for a in range(width):
        total = 0.0
        for machine in members:
            total += points[a, machine]
        mean[a] = total / count
    second[:], third[:] = 0.0, 0.0
    squared, fourth, largest = 0.0, 0.0, 0.0
    apart = np.empty(width)
    for machine in members:
        distance = 0.0
        for a in range(width):
            apart[a] = points[a, machine] - mean[a]
            distance += apart[a] * apart[a]
        squared += distance
        fourth += distance * distance
        largest = max(largest, distance)
        for a in range(width):
            third[a] += apart[a] * distance
            for b in range(a + 1):
                second[a, b] += apart[a] * apart[b]
    second /= count
    third /= count
    squared /= count
    return squared, max(fourth / count - squared * squared, 0.0), math.sqrt(largest)


@compiled(**_COMPILE)
def _add_cluster(
    points: Any,
    size: int,
    mean: Any,
    second: Any,
    third: Any,
    squared: Any,
    variance: Any,
    largest: Any,
    low: Any,
    high: Any,
    apart: Any,
    spread: Any,
) -> None:
    """Add to each machine's bounds those of its distances to one cluster."""
    width, machines = points.shape
    distances = np.empty(BLOCK, dtype=np.float32)
    for first in range(0, machines, BLOCK):
        count = min(BLOCK, machines - first)
        distances[:count] = _ZERO
        spread[:count] = variance
        for a in range(width):
            its, own, middle, by = apart[a], points[a, first : first + count], mean[a], -_FOUR * third[a]
            for j in range(count):
                x = np.float32(own[j] - middle)
                its[j] = x
                distances[j] += x * x
                spread[j] += by * x
        for a in range(width):
            its, by = apart[a], _FOUR * second[a, a]
            for j in range(count):
                spread[j] += by * its[j] * its[j]
            for b in range(a):
                other, both = apart[b], _EIGHT * second[a, b]
                for j in range(count):
                    spread[j] += both * its[j] * other[j]
        below, above = low[first : first + count], high[first : first + count]
        for j in range(count):
            d = np.sqrt(distances[j])
            m = distances[j] + squared
            v = max(spread[j], _ZERO)
            rounding = ROUNDING_OF_VARIANCE * (squared * (m + d * largest) + variance)
            near, far = max(d - largest, _ZERO), d + largest
            to_near = m if d < largest else squared + largest * (d + near)
            to_far = max(largest * (d + far) - squared, _ZERO)
            most, least = v + rounding, max(v - rounding, _ZERO)
            up = np.sqrt(m + most / (to_near + _LITTLE))
            down = np.sqrt(max(m - least / (to_far + _LITTLE), _ZERO))
            below[j] += size * (near + (up - near) * (to_near * to_near / (to_near * to_near + most + _LITTLE)))
            above[j] += size * (far - (far - down) * (to_far * to_far / (to_far * to_far + least + _LITTLE)))


@compiled(**_COMPILE)
def bound(embeddings: Any, judged: Any, members: Any, windows: Any, most: int, low: Any, high: Any) -> None:
    """Bound each judged member's sum of distances to the other judged members.

    Args:
        embeddings: (machine, window, width), float32; no NaN where judged.
        windows: those to work through.
        most: clusters at most.
        low, high: (member, one of ``windows``), float64, are filled; cells of unjudged machines are left as they are.
    """
    width = embeddings.shape[2]
    who = np.empty(len(members), dtype=np.int64)
    starts, stops = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    mean, third = np.empty(width), np.empty(width)
    second = np.empty((width, width))
    apart, spread = np.empty((width, BLOCK), dtype=np.float32), np.empty(BLOCK, dtype=np.float32)
    for column in range(len(windows)):
        window, n = windows[column], 0
        for position in range(len(members)):
            if judged[members[position], window]:
                who[n] = position
                n += 1
        if n == 0:
            continue
        points = np.empty((width, n))
        scale = 0.0
        for a in range(width):
            row, middle, squares = points[a], 0.0, 0.0
            for j in range(n):
                row[j] = embeddings[members[who[j]], window, a]
                middle += row[j]
            middle /= n
            for j in range(n):
                row[j] -= middle
                squares += row[j] * row[j]
            scale += squares / n
        if not scale > 0.0:
            for j in range(n):
                low[who[j], column] = high[who[j], column] = 0.0
            continue
        # In units of the machines' spread, so that nothing that single precision tells apart leaves its range.
        scale = math.sqrt(scale)
        points /= scale
        order = np.empty(n, dtype=np.int64)
        count = _cluster(points, most, order, starts, stops)
        below, above = np.zeros(n), np.zeros(n)
        for c in range(count):
            some = order[starts[c] : stops[c]]
            squared, variance, largest = _moments(points, some, mean, second, third)
            _add_cluster(
                points,
                len(some),
                mean,
                second.astype(np.float32),
                third.astype(np.float32),
                np.float32(squared),
                np.float32(variance),
                np.float32(largest),
                below,
                above,
                apart,
                spread,
            )
        for j in range(n):
            # Beyond the range of single precision nothing is known.
            is_known = 0.0 <= below[j] <= above[j] < math.inf
            low[who[j], column] = scale * below[j] * (1.0 - ROUNDING) if is_known else 0.0
            high[who[j], column] = scale * above[j] * (1.0 + ROUNDING) if is_known else math.inf
