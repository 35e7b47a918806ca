"""Looking at some windows only gives what looking at every window gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from small_tasks import NOW
from trainminder.decide import Confirmed, follow
from trainminder.sparing import Windows, followed_sparingly, stride_of
from trainminder.types import Continuity, FloatArray, WindowScores

CONTINUITY, PATIENCE, MACHINES, WINDOWS = 24.0, 8, 4, 160


def scores_of(table: FloatArray, first: int, end: int) -> WindowScores:
    """The scores of some windows, one each second; a machine passes at more than 4, where three can be judged."""
    part = table[:, first:end]
    part = np.where((~np.isnan(part)).sum(axis=0) >= 3, part, np.nan)
    return WindowScores(
        metric="power",
        view="device",
        machines=tuple("abcd"),
        ends_at=NOW + np.arange(first, end, dtype=np.float64),
        step_seconds=1.0,
        dissimilarity=part,
        normal_score=part,
        threshold=np.full(part.shape, 4.0),
        group_of=np.zeros(MACHINES, dtype=np.int64),
    )


def device_in(machine: int, window: int) -> str:
    return f"gpu{(machine + window // 40) % 2}"


def sparingly(
    table: FloatArray, first: int, end: int, continuity: Continuity | None, stride: int
) -> tuple[Continuity | None, list[Confirmed]]:
    part = scores_of(table, first, end)
    windows = Windows(
        part.machines,
        lambda begin, until: scores_of(table, first + begin, first + until),
        ~np.isnan(table[:, first:end]),
        part.ends_at,
        1.0,
        part.group_of,
    )
    return followed_sparingly(
        windows,
        0,
        continuity,
        stride=stride,
        continuity_seconds=CONTINUITY,
        patience_windows=PATIENCE,
        device_in=lambda machine, window: device_in(machine, first + window),
    )


def every_window(table: FloatArray) -> list[Confirmed]:
    return follow(
        scores_of(table, 0, table.shape[1]),
        0,
        None,
        continuity_seconds=CONTINUITY,
        patience_seconds=float(PATIENCE),
        device_in=device_in,
    )[1]


@st.composite
def tables(draw: st.DrawFn) -> FloatArray:
    """Quiet machines, of which some stand out for a while, or are not judged, again and again."""
    table = np.ones((MACHINES, WINDOWS))
    stretches = st.tuples(
        st.integers(0, MACHINES - 1),
        st.integers(0, WINDOWS - 1),
        st.sampled_from([1, 2, 5, 8, 9, 12, 24, 25, 26, 40, 80]),
        st.sampled_from([np.nan, 1.0, 6.0, 7.0, 9.0]),
    )
    for machine, begin, count, score in draw(st.lists(stretches, max_size=10)):
        table[machine, begin : begin + count] = score
    holes = st.tuples(st.sets(st.integers(0, MACHINES - 1)), st.integers(0, WINDOWS - 1), st.integers(1, 12))
    for machines, begin, count in draw(st.lists(holes, max_size=8)):
        table[sorted(machines), begin : begin + count] = np.nan
    return table


def firsts(found: list[Confirmed]) -> list[Confirmed]:
    """The first confirmation of each machine: the others add nothing to a verdict."""
    return list({each.machine: each for each in reversed(found)}.values())[::-1]


@settings(deadline=None, max_examples=400)
@given(table=tables())
def test_looking_at_some_windows_confirms_what_looking_at_all_does(table: FloatArray) -> None:
    _, found = sparingly(table, 0, WINDOWS, None, stride_of(CONTINUITY, 1.0))
    assert firsts(found) == firsts(every_window(table))


@settings(deadline=None, max_examples=400)
@given(table=tables(), cuts=st.lists(st.integers(1, WINDOWS - 1), max_size=6))
def test_so_it_does_in_pieces(table: FloatArray, cuts: list[int]) -> None:
    continuity: Continuity | None = None
    found: list[Confirmed] = []
    edges = sorted({0, *cuts, WINDOWS})
    for first, end in pairwise(edges):
        continuity, more = sparingly(table, first, end, continuity, stride_of(CONTINUITY, 1.0))
        found += more
    assert firsts(found) == firsts(every_window(table))


@pytest.mark.parametrize("gap", range(126, 134))
def test_a_run_that_begins_after_a_confirmed_one_and_before_a_window_without_judgement_is_not_missed(gap: int) -> None:
    table = np.ones((MACHINES, WINDOWS))
    table[0, 44:124] = 6.0
    table[1, 124:149] = 6.0
    table[:2, gap : gap + 7] = np.nan
    _, found = sparingly(table, 0, WINDOWS, None, stride_of(CONTINUITY, 1.0))
    assert [each.machine for each in found] == ["a", "b"]
    assert found == every_window(table)


@pytest.mark.parametrize("window", range(WINDOWS - 40, WINDOWS - 24))
def test_a_window_in_which_too_few_are_judged_to_compare_breaks_nothing(window: int) -> None:
    table = np.ones((MACHINES, WINDOWS))
    table[0, window - 20 : window + 10] = 6.0
    table[1:3, window] = np.nan
    found = sparingly(table, 0, WINDOWS, None, stride_of(CONTINUITY, 1.0))[1]
    assert found == every_window(table)
    assert len(found) == 1


@pytest.mark.parametrize("lasts", [24, 25, 60])
@pytest.mark.parametrize("begin", range(30, 45, 2))
def test_of_a_fault_onset_confirmation_and_score_are_exact(begin: int, lasts: int) -> None:
    table = np.ones((MACHINES, WINDOWS))
    table[2, begin : begin + lasts] = 6.0 + 0.01 * np.arange(lasts)
    found = sparingly(table, 0, WINDOWS, None, stride_of(CONTINUITY, 1.0))[1]
    assert found == every_window(table)
    assert len(found) == (lasts > CONTINUITY)
