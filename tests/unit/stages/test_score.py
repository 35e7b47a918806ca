from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import norm

from trainminder.score import backed_score, candidate_threshold, dissimilarity, normal_score
from trainminder.types import BoolArray, Distance, Float32Array, FloatArray, IntArray, Panel, Scale

METRIC = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


def together(machines: int) -> IntArray:
    return np.zeros(machines, dtype=np.int64)


def scores_of(sums: FloatArray, spread: float = 0.02, **changes: object) -> tuple[FloatArray, FloatArray]:
    options = {"width": 8, "false_alarm_probability": 1e-4} | changes
    return normal_score(sums, np.full(sums.shape[1], spread), together(len(sums)), **options)  # type: ignore[arg-type]


def test_sums_of_three_points_by_hand() -> None:
    # 3-4-5 triangle: distances 3, 4, 5
    points = np.array([[[0.0, 0.0]], [[3.0, 0.0]], [[0.0, 4.0]]], dtype=np.float32)
    judged = np.ones((3, 1), dtype=bool)
    sums = {kind: dissimilarity(points, judged, together(3), kind)[:, 0].tolist() for kind in METRIC}  # type: ignore[arg-type]
    assert sums == {"euclidean": [7, 8, 9], "manhattan": [7, 10, 11], "chebyshev": [7, 7, 8]}


@pytest.mark.parametrize("kind", METRIC)
@pytest.mark.parametrize(("machines", "width"), [(3, 8), (70, 8), (200, 8), (130, 5)])
def test_sums_agree_with_the_whole_distance_matrix(kind: Distance, machines: int, width: int) -> None:
    rng = np.random.default_rng(machines)
    embeddings = rng.normal(size=(machines, 6, width)).astype(np.float32)
    judged = rng.random((machines, 6)) < 0.8
    sums = dissimilarity(embeddings, judged, together(machines), kind)
    for window in range(6):
        here = np.flatnonzero(judged[:, window])
        points = embeddings[here, window].astype(np.float64)
        assert sums[here, window] == pytest.approx(cdist(points, points, METRIC[kind]).sum(axis=1), rel=2e-6)
    assert np.isnan(sums[~judged]).all()


def test_machines_are_compared_within_their_group_only() -> None:
    embeddings = np.zeros((6, 1, 8), dtype=np.float32)
    embeddings[3:] = 100.0
    judged = np.ones((6, 1), dtype=bool)
    assert dissimilarity(embeddings, judged, np.array([0, 0, 0, 1, 1, 1]))[:, 0].tolist() == [0] * 6
    assert np.isnan(dissimilarity(embeddings, judged, np.array([0, 0, 0, -1, -1, -1]))[3:]).all()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), machines=st.integers(3, 40))
def test_reordering_machines_reorders_the_scores(seed: int, machines: int) -> None:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(0.5, 0.05, size=(machines, 3, 8)).astype(np.float32)
    judged = np.ones((machines, 3), dtype=bool)
    order = rng.permutation(machines)

    def scored(points: Float32Array, who: BoolArray) -> FloatArray:
        return scores_of(dissimilarity(points, who, together(machines)))[0]

    assert scored(embeddings[order], judged[order]) == pytest.approx(scored(embeddings, judged)[order], rel=1e-4)


def test_identical_machines_give_no_candidate() -> None:
    score, threshold = scores_of(np.zeros((5, 4)))
    assert (score < threshold).all()


def fault_among(machines: int, depth: float, *, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Scores of one window in which machine 0 stands ``depth`` ordinary deviations out."""
    rng = np.random.default_rng(seed)
    offsets = np.clip(rng.standard_normal(machines), -2, 2) * 0.02
    offsets[0] = depth * 0.02
    embeddings = np.repeat(offsets[:, None, None], 8, axis=2).astype(np.float32)
    return scores_of(dissimilarity(embeddings, np.ones((machines, 1), dtype=bool), together(machines)))


@pytest.mark.parametrize("machines", [3, 4, 8, 64, 1000, 4000])
def test_a_gross_fault_passes_and_an_ordinary_machine_does_not_at_any_number_of_machines(machines: int) -> None:
    score, threshold = fault_among(machines, depth=15.0)
    assert score[0, 0] > threshold[0, 0]
    assert (score[1:] < threshold[1:]).all()
    score, threshold = fault_among(machines, depth=2.0)
    assert (score < threshold).all()


def test_a_plain_z_score_could_not_pass_a_fixed_threshold_of_three_among_eight() -> None:
    score, threshold = fault_among(8, depth=30.0)
    assert (8 - 1) / np.sqrt(8) < 3
    assert score[0, 0] > threshold[0, 0] > 3


@pytest.mark.parametrize("machines", [4, 32, 512])
def test_healthy_tasks_pass_the_threshold_about_as_rarely_at_any_size(machines: int) -> None:
    asked = 0.02
    tasks = 1500
    offsets = np.random.default_rng(machines).standard_normal((machines, tasks)) * 0.02
    embeddings = np.repeat(offsets[:, :, None], 8, axis=2).astype(np.float32)
    judged = np.ones((machines, tasks), dtype=bool)
    score, threshold = scores_of(
        dissimilarity(embeddings, judged, together(machines)), spread=0.02, false_alarm_probability=asked
    )
    rate = (score > threshold).any(axis=0).mean()
    assert asked / 10 < rate < 2 * asked


def test_two_machines_that_agree_by_chance_do_not_convict_the_third() -> None:
    # two of three within a hair, the third at two ordinary deviations: no fault, however small the spread of two
    embeddings = np.repeat(np.array([0.5, 0.5001, 0.54])[:, None, None], 8, axis=2).astype(np.float32)
    score, threshold = scores_of(dissimilarity(embeddings, np.ones((3, 1), dtype=bool), together(3)))
    assert (score < threshold).all()


def test_however_still_the_peers_a_hair_is_no_fault() -> None:
    embeddings = np.full((500, 1, 8), 0.5, dtype=np.float32)
    embeddings[7] += 0.01  # half an ordinary deviation
    score, threshold = scores_of(dissimilarity(embeddings, np.ones((500, 1), dtype=bool), together(500)))
    assert (score < threshold).all()


def test_fewer_judged_machines_than_asked_for_are_not_scored() -> None:
    sums = np.array([[1.0, 1.0], [2.0, np.nan], [9.0, 9.0]])
    score, threshold = scores_of(sums)
    assert not np.isnan(score[:, 0]).any()
    assert np.isnan(score[:, 1]).all()
    assert np.isnan(threshold[:, 1]).all()


def test_the_threshold_is_what_the_largest_of_n_passes_with_the_stated_chance() -> None:
    for machines in (3, 4, 4000):
        beyond = 2 * norm.sf(candidate_threshold(machines, 1e-3))
        assert 1 - (1 - beyond) ** machines == pytest.approx(1e-3, rel=1e-2)


def one_metric(values: FloatArray, high: float) -> tuple[Panel, Scale]:
    """Three machines sampled each minute, of which the two newest samples of a window are compared."""
    machines, seconds = values.shape
    windows = seconds - 7
    rows = np.repeat(np.arange(machines)[:, None], windows, axis=1)
    present = np.ones(values.shape, dtype=bool)
    names = tuple("abcdef"[:machines])
    times = 60.0 * np.arange(seconds, dtype=np.float64)
    panel = Panel("x", "machine", names, 60.0, times, values, present, np.arange(machines), (None,) * machines, rows, 8)
    return panel, Scale(np.zeros(windows), np.full(windows, high), np.full(windows, 0.01))


def test_a_score_that_the_data_do_not_show_falls_in_proportion() -> None:
    values = np.full((4, 10), 10.0)
    # in the first window the burst is among the two samples compared, in the second one of them, then neither
    values[0, 4:8] = 1000.0
    panel, scale = one_metric(values, 1000.0)
    # the denoiser puts machine 0 at the same distance throughout: 0.99 in each of two samples
    sums = np.array([[3 * 0.99 * np.sqrt(2.0)] * 3] + [[0.99 * np.sqrt(2.0)] * 3] * 3)
    score = np.array([[9.0] * 3] + [[1.0] * 3] * 3)
    threshold = np.full((4, 3), 4.0)
    backed = backed_score(score, threshold, sums, panel, scale, together(4), width=2)
    # one of two samples is 1 / sqrt(2) of the distance, more than the half asked for; none of them is nothing
    assert backed[0].tolist() == pytest.approx([9.0, 9.0, 0.0])
    assert backed[1:].tolist() == score[1:].tolist()


def test_a_difference_half_as_large_in_the_data_as_in_the_embedding_is_enough() -> None:
    values = np.full((4, 8), 100.0)
    values[2] += 200.0
    panel, scale = one_metric(values, 1000.0)
    score, threshold = np.array([[0.0], [0.0], [8.0], [0.0]]), np.full((4, 1), 4.0)
    for embedded, expected in ((0.2, 8.0), (0.4, 8.0), (0.8, 4.0)):
        sums = np.full((4, 1), 3 * embedded * np.sqrt(2.0))
        backed = backed_score(score, threshold, sums, panel, scale, together(4), width=2)
        assert backed[2, 0] == pytest.approx(expected)
