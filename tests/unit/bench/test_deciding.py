"""Deciding at many thresholds at once gives at each what a pass at that threshold would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from small_tasks import NOW
from trainminder.bench.methods.deciding import Found, Limits, chance_limits, confirmed_at, fixed_limits
from trainminder.bench.methods.prepared import SETTINGS
from trainminder.decide import Confirmed, follow
from trainminder.types import FloatArray, Verdict, WindowScores

STEP, LASTING = 60.0, 180.0
MACHINES, WINDOWS = 11, 40


def window_scores(score: FloatArray, group_of: Sequence[int] | None = None, step: float = STEP) -> WindowScores:
    machines, windows = score.shape
    return WindowScores(
        metric="power",
        view="machine",
        machines=tuple(f"gpu-{number:02d}" for number in range(machines)),
        ends_at=NOW + step * np.arange(windows, dtype=np.float64),
        step_seconds=step,
        dissimilarity=score,
        normal_score=score,
        threshold=score,
        group_of=np.zeros(machines, dtype=np.int64) if group_of is None else np.array(group_of),
    )


def random_scores(seed: int) -> WindowScores:
    """Whole numbers, many alike, many missing; now and then a machine far ahead; two groups and some in none."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 5, (MACHINES, WINDOWS)).astype(np.float64)
    for _ in range(6):
        start = rng.integers(WINDOWS)
        score[rng.integers(MACHINES), start : start + rng.integers(3, 12)] += rng.integers(1, 4)
    score[rng.random(score.shape) < 0.15] = np.nan
    start = rng.integers(WINDOWS)
    score[:, start : start + 2] = np.nan
    return window_scores(score, sorted(rng.choice([-1, 0, 1], MACHINES, p=[0.1, 0.45, 0.45]).tolist()))


def followed(scores: WindowScores, limits: Limits) -> list[tuple[int, Confirmed]]:
    """The same from every machine's scores, threshold by threshold and group by group."""
    found = []
    for group in np.unique(scores.group_of[scores.group_of >= 0]).tolist():
        judged = ~np.isnan(scores.normal_score[scores.group_of == group])
        for place, limit in enumerate(limits(judged.sum(axis=0))):
            _, confirmed = follow(
                replace(scores, threshold=np.broadcast_to(limit, scores.normal_score.shape)),
                group,
                None,
                continuity_seconds=LASTING,
                patience_seconds=SETTINGS.window_samples * STEP,
            )
            # The first is what the bench looks at.
            found += [(place, each) for each in confirmed[:1]]
    return found


@pytest.mark.parametrize(
    "limits", [fixed_limits((6.0, 5.0, 4.0, 3.0, 2.0)), chance_limits((1e-5, 1e-3, 0.1, 2.0))], ids=["fixed", "chance"]
)
def test_following_only_those_who_ever_lead_gives_what_following_all_does(limits: Limits) -> None:
    confirmed = []
    for seed in range(150):
        scores = random_scores(seed)
        found = list(confirmed_at(scores, limits, LASTING))
        assert found == followed(scores, limits), seed
        confirmed += [(seed, place) for place, _ in found]
    # Otherwise little was compared: several thresholds are reached, and now and then by both groups.
    assert len({place for _, place in confirmed}) > 2
    assert len(set(confirmed)) < len(confirmed)


def test_of_equal_scores_the_first_name_is_confirmed_and_a_score_at_the_limit_does_not_pass() -> None:
    scores = window_scores(np.array([[1.0] * 5, [5.0] * 5, [5.0] * 5, [1.0] * 5]))
    found = list(confirmed_at(scores, fixed_limits((5.0, 4.0)), LASTING))
    assert [(place, each.machine, each.onset, each.confirmed) for place, each in found] == [
        (1, "gpu-01", NOW, NOW + LASTING)
    ]


def test_two_machines_are_never_compared() -> None:
    score = np.array([[9.0] * 6, [1.0] * 6, [1.0] * 6])
    assert len(list(confirmed_at(window_scores(score), fixed_limits((4.0,)), LASTING))) == 1
    score[2, :] = np.nan
    assert list(confirmed_at(window_scores(score), fixed_limits((4.0,)), LASTING)) == []
    assert list(confirmed_at(window_scores(score), chance_limits((0.1,)), LASTING)) == []


def test_methods_that_look_now_and_then_are_not_blind_in_between() -> None:
    # looks ten minutes apart at samples a second apart: longer than a window's patience
    scores = replace(window_scores(np.array([[9.0] * 3, [1.0] * 3, [1.0] * 3]), step=600.0), step_seconds=1.0)
    ((_, found),) = confirmed_at(scores, fixed_limits((4.0,)), LASTING)
    assert (found.machine, found.confirmed) == ("gpu-00", NOW + 600)


def test_the_earliest_verdict_of_all_metrics_counts_at_each_threshold() -> None:
    found = Found((9.0, 4.0))
    for metric, row in (("late", [1.0, 10, 10, 10, 10, 10]), ("early", [5.0, 5, 5, 5, 5, 5])):
        scores = window_scores(np.array([[1.0] * 6, row, [1.0] * 6]))

        def named(confirmed: Confirmed, metric: str = metric) -> Verdict:
            return Verdict(confirmed.machine, None, metric, confirmed.onset, confirmed.confirmed, confirmed.score)

        found.add(scores, fixed_limits((9.0, 4.0)), named, LASTING)
    assert [[verdict.metric for verdict in some] for some in found.verdicts()] == [["late"], ["early"]]
