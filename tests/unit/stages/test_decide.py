from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from small_tasks import NOW
from trainminder.decide import Confirmed, candidates, follow, unite
from trainminder.types import Continuity, Evidence, Verdict, WindowScores

NAN = np.nan


def scores(rows: list[list[float]], *, step: float = 60.0, threshold: float = 4.0, first: int = 0) -> WindowScores:
    """Machines a, b, c ...; one column per window, ``step`` seconds apart, the first so many windows after NOW."""
    table = np.array(rows, dtype=np.float64)
    return WindowScores(
        metric="power",
        view="machine",
        machines=tuple("abcdef"[: len(rows)]),
        ends_at=NOW + step * (first + np.arange(table.shape[1], dtype=np.float64)),
        step_seconds=step,
        dissimilarity=table,
        normal_score=table,
        threshold=np.full(table.shape, threshold),
        group_of=np.zeros(len(rows), dtype=np.int64),
    )


def confirm(
    given: WindowScores, continuity: Continuity | None = None, **changes: Any
) -> tuple[Continuity | None, list[Confirmed]]:
    options: dict[str, Any] = {"continuity_seconds": 240.0, "patience_seconds": 8 * given.step_seconds}
    return follow(given, 0, continuity, **(options | changes))


def test_the_largest_above_the_threshold_is_the_candidate() -> None:
    given = scores([[1, 5, 9, NAN, 4], [1, 6, 8, NAN, 4], [1, 1, 1, NAN, 4]])
    # nobody passes; b; a; nobody judged; at the threshold is not above it
    assert candidates(given, 0).tolist() == [-1, 1, 0, -2, -1]


def test_of_equal_scores_the_first_name_is_taken() -> None:
    assert candidates(scores([[5.0], [5.0], [1.0]]), 0).tolist() == [0]


def test_the_same_candidate_for_the_continuity_threshold_is_the_verdict() -> None:
    given = scores([[1, 9, 9, 9, 9, 9, 9], [1] * 7, [1] * 7])
    _, (found,) = confirm(given)
    # candidate from the second window on: 240 s later is the sixth
    assert (found.machine, found.onset, found.confirmed) == ("a", NOW + 60, NOW + 300)
    assert (found.score, found.threshold) == (9.0, 4.0)


def test_the_score_of_a_verdict_is_the_mean_from_onset_to_confirmation_and_nothing_later() -> None:
    _, (found,) = confirm(scores([[7, 9, 9, 9, 11, 90, 90], [1] * 7, [1] * 7]))
    assert found.score == 9.0


def test_a_continuity_is_confirmed_once_and_a_new_one_again() -> None:
    _, found = confirm(scores([[9.0] * 20 + [1.0] + [9.0] * 20, [1.0] * 41, [1.0] * 41]))
    assert [(each.onset, each.confirmed) for each in found] == [
        (NOW, NOW + 240),
        (NOW + 21 * 60, NOW + 25 * 60),
    ]


@pytest.mark.parametrize(
    ("devices", "named"),
    [
        (["gpu1"] * 5, "gpu1"),
        (["gpu0", "gpu1", "gpu1", "gpu1", "gpu1"], "gpu1"),
        (["gpu0", "gpu0", "gpu1", "gpu1", "gpu1"], None),
        ([None] * 5, None),
        # what comes after the confirmation does not count
        (["gpu1"] * 5 + ["gpu0"] * 9, "gpu1"),
    ],
)
def test_the_device_that_was_the_odd_one_in_two_thirds_of_the_windows_is_named(
    devices: list[str | None], named: str | None
) -> None:
    windows = len(devices)
    given = scores([[9.0] * windows, [1.0] * windows, [1.0] * windows])
    _, (found,) = confirm(given, device_in=lambda machine, window: devices[window] if machine == 0 else "other")
    assert found.device == named


@pytest.mark.parametrize("step", [1.0, 10.0, 30.0, 60.0])
def test_continuity_is_counted_in_seconds_at_any_sampling(step: float) -> None:
    needed = int(240 / step)
    short, enough = ([[9.0] * count, [1.0] * count, [1.0] * count] for count in (needed, needed + 1))
    assert confirm(scores(short, step=step))[1] == []
    _, (found,) = confirm(scores(enough, step=step))
    assert found.confirmed - found.onset == 240


def test_one_window_of_another_candidate_breaks_continuity() -> None:
    given = scores([[9, 9, 9, 5, 9, 9], [1, 1, 1, 6, 1, 1], [1] * 6])
    assert confirm(given)[1] == []


def test_one_quiet_window_breaks_continuity() -> None:
    assert confirm(scores([[9, 9, 9, 1, 9, 9], [1] * 6, [1] * 6]))[1] == []


def test_a_window_in_which_the_candidate_was_not_seen_neither_extends_nor_breaks() -> None:
    continuity, (found,) = confirm(scores([[9, 9, NAN, NAN, 9, 9], [1] * 6, [1] * 6]))
    assert found.confirmed == NOW + 240
    assert continuity is not None
    assert continuity.windows == 4


def test_what_was_not_seen_for_long_did_not_last() -> None:
    unseen = [NAN] * 9
    continuity, found = confirm(scores([[9, 9, *unseen, 9, 9], [1] * 13, [1] * 13]))
    assert found == []
    assert continuity is not None
    assert continuity.since_at == NOW + 11 * 60


def test_a_candidate_that_is_never_the_same_is_jitter() -> None:
    rows = np.ones((4, 40))
    rows[np.arange(40) % 4, np.arange(40)] = 9.0
    assert confirm(scores(rows.tolist()))[1] == []


@pytest.mark.parametrize("cut", range(1, 9))
def test_cutting_and_resuming_gives_the_same_verdict(cut: int) -> None:
    rows: list[list[float]] = [[1, 9, 9, NAN, 9, 9, 9, 9, 9], [1] * 9, [1, 1, 1, 9, 1, 1, 1, 1, 1]]
    devices = ["gpu0", "gpu1", "gpu1", "gpu1", "gpu0", "gpu1", "gpu1", "gpu1", "gpu1"]
    left, whole = confirm(scores(rows), device_in=lambda _, window: devices[window])
    assert [each.device for each in whole] == ["gpu1"]
    continuity, before = confirm(scores([row[:cut] for row in rows]), device_in=lambda _, window: devices[window])
    later = scores([row[cut:] for row in rows], first=cut)
    resumed, after = confirm(later, continuity, device_in=lambda _, window: devices[cut + window])
    assert before + after == whole
    assert resumed == left


def verdict(machine: str, metric: str, confirmed: float, device: str | None = None) -> Verdict:
    return Verdict(machine, device, metric, NOW, confirmed, 9.0, None, ())


def told(metric: str, confirmed: float) -> Verdict:
    """A verdict on machine a with its evidence."""
    item = Evidence("metric", metric, "machine", None, NOW, confirmed, 9.0, 4.0, 1.0, 2.0, "W", "")
    return replace(verdict("a", metric, confirmed), evidence=(item,))


def test_the_earliest_confirmation_is_the_verdict_and_the_metric_asked_first_breaks_ties() -> None:
    found = [verdict("a", "cpu", NOW + 9), verdict("b", "power", NOW + 5), verdict("c", "clock", NOW + 5)]
    (chosen,), others = unite(found)
    assert (chosen.machine, chosen.metric) == ("b", "power")
    assert others == ("a", "c")


def test_another_metric_gives_the_device_and_more_evidence() -> None:
    (chosen,), others = unite([verdict("a", "cpu", NOW), verdict("a", "power", NOW + 9, device="gpu3")])
    assert (chosen.metric, chosen.device) == ("cpu", "gpu3")
    assert others == ()


def test_what_stands_already_stays_and_others_are_told() -> None:
    known = (verdict("b", "power", NOW + 5),)
    (chosen,), others = unite([verdict("a", "cpu", NOW + 9), verdict("b", "clock", NOW + 7)], known)
    assert (chosen.machine, chosen.metric, chosen.confirmed) == ("b", "power", NOW + 5)
    assert others == ("a",)


def test_a_metric_is_evidence_once_however_often_it_convicts() -> None:
    found = [told("power", NOW + 5), told("clock", NOW + 9)]
    (first,), _ = unite([told("power", NOW)])
    (chosen,), _ = unite(found, (first,))
    assert [(item.metric, item.until) for item in chosen.evidence] == [("power", NOW), ("clock", NOW + 9)]


def test_nothing_found_is_no_verdict() -> None:
    assert unite([]) == ((), ())
