from __future__ import annotations

import numpy as np
import pytest

from small_tasks import NOW
from trainminder.decide import candidates, follow, unite
from trainminder.types import Continuity, Verdict, WindowScores

NAN = np.nan


def scores(rows: list[list[float]], *, step: float = 60.0, threshold: float = 4.0) -> WindowScores:
    """Machines a, b, c ...; one column per window, ``step`` seconds apart."""
    table = np.array(rows, dtype=np.float64)
    return WindowScores(
        metric="power",
        view="machine",
        machines=tuple("abcdef"[: len(rows)]),
        ends_at=NOW + step * np.arange(table.shape[1], dtype=np.float64),
        step_seconds=step,
        dissimilarity=table,
        normal_score=table,
        threshold=np.full(table.shape, threshold),
        group_of=np.zeros(len(rows), dtype=np.int64),
    )


def confirm(given: WindowScores, continuity: Continuity | None = None, *, seconds: float = 240.0, first: int = 0):  # type: ignore[no-untyped-def]
    return follow(
        given, 0, continuity, continuity_seconds=seconds, patience_seconds=8 * given.step_seconds, first_window=first
    )


def test_the_largest_above_the_threshold_is_the_candidate() -> None:
    given = scores([[1, 5, 9, NAN, 4], [1, 6, 8, NAN, 4], [1, 1, 1, NAN, 4]])
    # nobody passes; b; a; nobody judged; at the threshold is not above it
    assert candidates(given, 0).tolist() == [-1, 1, 0, -2, -1]


def test_of_equal_scores_the_first_name_is_taken() -> None:
    assert candidates(scores([[5.0], [5.0], [1.0]]), 0).tolist() == [0]


def test_the_same_candidate_for_the_continuity_threshold_is_the_verdict() -> None:
    given = scores([[1, 9, 9, 9, 9, 9, 9], [1] * 7, [1] * 7])
    _, found = confirm(given)
    # candidate from the second window on: 240 s later is the sixth
    assert found is not None
    assert (found.machine, found.onset, found.confirmed) == ("a", NOW + 60, NOW + 300)
    assert (found.first_window, found.last_window, found.score) == (1, 5, 9.0)


def test_how_long_it_has_lasted_is_told_beyond_the_confirmation() -> None:
    found = confirm(scores([[9, 9, 9, 9, 9, 9, 9, 1, 9], [1] * 9, [1] * 9]))[1]
    assert found is not None
    assert (found.confirmed, found.until) == (NOW + 240, NOW + 360)


@pytest.mark.parametrize("step", [1.0, 10.0, 30.0, 60.0])
def test_continuity_is_counted_in_seconds_at_any_sampling(step: float) -> None:
    needed = int(240 / step)
    short, enough = ([[9.0] * count, [1.0] * count, [1.0] * count] for count in (needed, needed + 1))
    assert confirm(scores(short, step=step))[1] is None
    found = confirm(scores(enough, step=step))[1]
    assert found is not None
    assert found.confirmed - found.onset == 240


def test_one_window_of_another_candidate_breaks_continuity() -> None:
    given = scores([[9, 9, 9, 5, 9, 9], [1, 1, 1, 6, 1, 1], [1] * 6])
    assert confirm(given)[1] is None


def test_one_quiet_window_breaks_continuity() -> None:
    assert confirm(scores([[9, 9, 9, 1, 9, 9], [1] * 6, [1] * 6]))[1] is None


def test_a_window_in_which_the_candidate_was_not_seen_neither_extends_nor_breaks() -> None:
    continuity, found = confirm(scores([[9, 9, NAN, NAN, 9, 9], [1] * 6, [1] * 6]))
    assert found is not None
    assert found.confirmed == NOW + 240
    assert continuity is not None
    assert continuity.windows == 4


def test_what_was_not_seen_for_long_did_not_last() -> None:
    unseen = [NAN] * 9
    continuity, found = confirm(scores([[9, 9, *unseen, 9, 9], [1] * 13, [1] * 13]))
    assert found is None
    assert continuity is not None
    assert continuity.since_at == NOW + 11 * 60


def test_a_candidate_that_is_never_the_same_is_jitter() -> None:
    rows = np.ones((4, 40))
    rows[np.arange(40) % 4, np.arange(40)] = 9.0
    assert confirm(scores(rows.tolist()))[1] is None


@pytest.mark.parametrize("cut", range(1, 9))
def test_cutting_and_resuming_gives_the_same_verdict(cut: int) -> None:
    rows: list[list[float]] = [[1, 9, 9, NAN, 9, 9, 9, 9, 9], [1] * 9, [1, 1, 1, 9, 1, 1, 1, 1, 1]]
    whole = confirm(scores(rows))[1]
    continuity, before = confirm(scores([row[:cut] for row in rows]))
    _, after = confirm(scores(rows), continuity, first=cut)
    resumed = before or after
    assert whole is not None
    assert resumed is not None
    assert (resumed.machine, resumed.onset, resumed.confirmed) == (whole.machine, whole.onset, whole.confirmed)


def verdict(machine: str, metric: str, confirmed: float, device: str | None = None) -> Verdict:
    return Verdict(machine, device, metric, NOW, confirmed, 9.0, None, ())


def test_the_earliest_confirmation_is_the_verdict_and_the_metric_asked_first_breaks_ties() -> None:
    found = [verdict("a", "cpu", NOW + 9), verdict("b", "power", NOW + 5), verdict("c", "clock", NOW + 5)]
    (chosen,), others = unite(found)
    assert (chosen.machine, chosen.metric) == ("b", "power")
    assert others == ("a", "c")


def test_another_metric_gives_the_device_and_more_evidence() -> None:
    (chosen,), others = unite([verdict("a", "cpu", NOW), verdict("a", "power", NOW + 9, device="gpu3")])
    assert (chosen.metric, chosen.device) == ("cpu", "gpu3")
    assert others == ()


def test_nothing_found_is_no_verdict() -> None:
    assert unite([]) == ((), ())
