"""Bounds hold, and what they decide, exact sums decide alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainminder.score import stand_out, standing
from trainminder.score.bounds import sum_bounds
from trainminder.score.standing import Scored
from trainminder.types import BoolArray, Float32Array, FloatArray, Panel, Scale

WIDTH = 8
Points = Callable[[np.random.Generator, int], FloatArray]


def _blob(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.normal(0.5, 0.02, (n, WIDTH))


def _line(rng: np.random.Generator, n: int) -> FloatArray:
    return 0.5 + 0.02 * rng.normal(size=(n, 1)) * np.ones(WIDTH) + rng.normal(0, 1e-5, (n, WIDTH))


def _two_heaps(rng: np.random.Generator, n: int) -> FloatArray:
    return (rng.random((n, 1)) < 0.5) * 0.3 + rng.normal(0, 1e-6, (n, WIDTH))


def _shell(rng: np.random.Generator, n: int) -> FloatArray:
    points = rng.normal(size=(n, WIDTH))
    away = 0.1 / np.linalg.norm(points, axis=1, keepdims=True)
    away[0] = 0.0
    return np.asarray(points * away, dtype=np.float64)


def _heavy_tails(rng: np.random.Generator, n: int) -> FloatArray:
    return 0.01 * rng.standard_cauchy((n, WIDTH))


def _a_few_values(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.integers(0, 3, (n, WIDTH)) / 4.0


def _nearly_equal(rng: np.random.Generator, n: int) -> FloatArray:
    return np.asarray(1.0 + 1e-7 * rng.integers(0, 4, (n, WIDTH)), dtype=np.float64)


def _all_equal(rng: np.random.Generator, n: int) -> FloatArray:
    return np.full((n, WIDTH), rng.random())


def _at_every_scale(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.normal(size=(n, WIDTH)) * 10.0 ** rng.uniform(-6, 3, (n, 1))


SHAPES: list[Points] = [
    _blob,
    _line,
    _two_heaps,
    _shell,
    _heavy_tails,
    _a_few_values,
    _nearly_equal,
    _all_equal,
    _at_every_scale,
]


def exact_sums(points: FloatArray) -> FloatArray:
    return np.array([np.linalg.norm(points - point, axis=1).sum() for point in points])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("clusters", [1, 2, 16, 64])
def test_bounds_hold_the_sum(shape: Points, clusters: int) -> None:
    rng = np.random.default_rng(clusters)
    for n in (3, 17, 400):
        points = shape(rng, n).astype(np.float32)
        low, high = sum_bounds(points[:, None], np.ones((n, 1), np.bool_), np.arange(n), np.arange(1), clusters)
        exact = exact_sums(points.astype(np.float64))
        assert (low[:, 0] <= exact).all()
        assert (high[:, 0] >= exact).all()


def test_bounds_are_close_where_machines_lie_as_healthy_ones_do() -> None:
    points = _line(np.random.default_rng(1), 2000).astype(np.float32)
    exact = exact_sums(points.astype(np.float64))
    for clusters, share in ((16, 0.1), (64, 0.02)):
        low, high = sum_bounds(points[:, None], np.ones((2000, 1), np.bool_), np.arange(2000), np.arange(1), clusters)
        assert np.sqrt(np.mean((high - low) ** 2)) / 2 < share * exact.std()


def test_a_machine_that_is_not_judged_counts_for_nobody() -> None:
    points = np.random.default_rng(2).normal(size=(50, 1, WIDTH)).astype(np.float32)
    judged = np.ones((50, 1), np.bool_)
    judged[::3] = False
    points[::3] = np.nan
    low, high = sum_bounds(points, judged, np.arange(50), np.arange(1), 8)
    assert np.isnan(low[::3]).all()
    assert np.isnan(high[::3]).all()
    exact = exact_sums(points[judged[:, 0], 0].astype(np.float64))
    assert ((low[judged[:, 0], 0] <= exact) & (exact <= high[judged[:, 0], 0])).all()


def scored(embeddings: Float32Array, judged: BoolArray, spread: float) -> Scored:
    """As the method scores the newest sample of some windows whose data are what the embeddings say."""
    machines, windows, width = embeddings.shape
    # Each window is its own stretch of ``width`` samples; windows in between are not asked for.
    values = embeddings[:, -1].astype(np.float64)
    panel = Panel(
        metric="power",
        view="machine",
        machines=tuple(f"m{number:05d}" for number in range(machines)),
        step_seconds=1.0,
        times=np.arange(width, dtype=np.float64),
        values=values,
        present=np.ones(values.shape, dtype=np.bool_),
        rows=np.repeat(np.arange(machines)[:, None], windows, axis=1),
        row_machine=np.arange(machines),
        row_device=(None,) * machines,
        window_samples=width,
        first=0,
    )
    scale = Scale(np.zeros(windows), np.ones(windows), np.full(windows, spread))
    return stand_out(embeddings, judged, np.zeros(machines, dtype=np.int64), panel, scale, false_alarm_probability=1e-3)


def candidates_of(found: Scored) -> list[int | None]:
    """Who stands out in each window."""
    score = np.nan_to_num(found.score, nan=-np.inf)
    best = score.argmax(axis=0)
    return [
        int(machine) if score[machine, window] > np.nan_to_num(found.threshold, nan=np.inf)[machine, window] else None
        for window, machine in enumerate(best.tolist())
    ]


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from(SHAPES),
    outliers=st.lists(st.floats(0.001, 0.5), max_size=4),
    tie=st.booleans(),
    spread=st.sampled_from([1e-3, 0.02]),
)
def test_bounds_decide_as_exact_sums_do(
    seed: int, shape: Points, outliers: list[float], tie: bool, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    n = 300
    points = shape(rng, n)
    for machine, away in enumerate(outliers):
        points[machine] += away
    if tie and len(outliers) > 1:
        # As near to a tie as single precision allows.
        points[1] = np.nextafter(points[0].astype(np.float32), np.float32(9))
    embeddings = points.astype(np.float32)[:, None]
    judged = np.ones((n, 1), dtype=np.bool_)
    judged[rng.choice(n, 20)] = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standing, "CLUSTERS", ())
        exact = scored(embeddings, judged, spread)
        patch.setattr(standing, "CLUSTERS", (4, 16))
        patch.setattr(standing, "MACHINES_PER_CLUSTER", 1)
        bounded = scored(embeddings, judged, spread)
    assert candidates_of(bounded) == candidates_of(exact)
    assert (np.isnan(bounded.score) == np.isnan(exact.score)).all()
    np.testing.assert_array_equal(bounded.threshold, exact.threshold)
    if (best := candidates_of(exact)[0]) is not None:
        assert bounded.score[best, 0] == pytest.approx(exact.score[best, 0], rel=standing.CERTAIN_SHARE)


def test_most_windows_of_healthy_machines_need_no_exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 3000
    embeddings = np.stack([_line(np.random.default_rng(seed), n) for seed in range(10)], axis=1).astype(np.float32)
    summed: list[int] = []

    def count(*given: Any) -> None:
        summed.append(len(given[3]))

    monkeypatch.setattr(standing, "add_sums", count)
    found = scored(embeddings, np.ones((n, 10), dtype=np.bool_), 0.02)
    assert sum(summed) <= 1
    assert candidates_of(found) == [None] * 10
