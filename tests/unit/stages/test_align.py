from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from small_tasks import NOW, POWER, series_of
from trainminder.align import Sampling, cells_of, is_judged, normalisation, panels, sampling_of, window_means
from trainminder.errors import Unobservable
from trainminder.types import FloatArray, MetricSpec, RawMetric

NAN = np.nan


def test_a_missing_second_takes_the_nearest_sample_and_stays_marked() -> None:
    raw = series_of("power", {"a": np.array([1.0, 2.0, NAN, NAN, NAN, 6.0, 7.0]), "b": np.arange(7.0)})
    (panel,) = panels(raw, ("a", "b"), 1)
    assert panel.times.tolist() == [NOW + k for k in range(7)]
    # two seconds after 2.0 and one before 6.0; the cell in the middle is equally near: the earlier counts
    assert panel.values[0].tolist() == [1, 2, 2, 2, 6, 6, 7]
    assert panel.present[0].tolist() == [True, True, False, False, False, True, True]
    assert panel.present[1].all()


def test_a_cell_without_a_sample_is_nan_until_it_is_padded() -> None:
    cells = cells_of(series_of("power", {"a": np.array([1.0, 2.0, NAN, 4.0]), "b": np.arange(4.0)}))
    assert np.isnan(cells.values).tolist() == [[False, False, True, False], [False] * 4]
    assert np.array_equal(cells.present, ~np.isnan(cells.values))


def test_a_machine_without_samples_is_nan_and_never_zero() -> None:
    raw = series_of("power", {"a": np.arange(5.0), "b": np.full(5, NAN)})
    cells, (panel,) = cells_of(raw), panels(raw, ("a", "b"), 1)
    for values, present in ((cells.values, cells.present), (panel.values, panel.present)):
        assert np.isnan(values[1]).all()
        assert not present[1].any()


def test_an_idle_machine_reads_zero_and_is_present() -> None:
    cells = cells_of(series_of("power", {"a": np.zeros(4), "b": np.ones(4)}))
    assert cells.values[0].tolist() == [0, 0, 0, 0]
    assert cells.present[0].all()


def test_scrape_offsets_of_the_machines_do_not_matter() -> None:
    base = series_of("power", {"a": np.arange(20.0), "b": np.arange(20.0)}, step=30.0)
    shifted = dataclasses.replace(base, times=base.times + np.repeat([4.0, 11.0], 20))
    cells = cells_of(shifted)
    assert cells.values.shape == (2, 20)
    assert cells.present.all()
    assert cells.values[0].tolist() == cells.values[1].tolist() == list(range(20))
    assert NOW + 4 <= cells.times[0] <= NOW + 11


@pytest.mark.parametrize("drift", [-0.004, 0.004])
def test_a_clock_that_drifts_through_whole_intervals_is_followed(drift: float) -> None:
    base = series_of("power", {"a": np.arange(900.0), "b": np.arange(900.0)})
    late_by = np.concatenate([np.zeros(900), drift * np.arange(900.0)])
    cells = cells_of(dataclasses.replace(base, times=base.times + late_by))
    mine = cells.present[1]
    sampled_at = NOW + (1 + drift) * cells.values[1][mine]
    # by the end b is three and a half intervals off, but never much more than one from its cell
    assert np.abs(sampled_at - cells.times[mine]).max() < 1.01
    # of each interval that it drifts through, a cell stays empty or has two samples
    assert (~mine[: int(900 * (1 + drift))]).sum() == (3 if drift > 0 else 0)
    assert 896 <= mine.sum() <= 900


@settings(deadline=None, max_examples=60)
@given(
    jitter=st.lists(st.floats(-0.2, 0.2), min_size=40, max_size=40),
    lost=st.sets(st.integers(1, 38), max_size=8),
    step=st.sampled_from([1.0, 5.0, 15.0, 60.0]),
)
def test_every_sample_keeps_its_own_cell_under_jitter_and_losses(
    jitter: list[float], lost: set[int], step: float
) -> None:
    wanted = np.array([NAN if k in lost else float(k) for k in range(40)])
    raw = dataclasses.replace(series_of("power", {"a": wanted, "b": np.arange(40.0)}, step=step), interval_seconds=step)
    kept = [k for k in range(40) if k not in lost]
    moves = np.concatenate([np.array(jitter)[kept], np.zeros(40)]) * step
    cells = cells_of(dataclasses.replace(raw, times=raw.times + moves))
    assert cells.values.shape[1] == 40
    assert np.flatnonzero(cells.present[0]).tolist() == kept
    assert cells.values[0][kept].tolist() == kept


@pytest.mark.parametrize("step", [0.25, 1.0, 10.0, 30.0, 60.0])
def test_the_interval_is_found_in_spite_of_gaps_and_jitter(step: float) -> None:
    values = np.arange(60.0)
    values[10:25] = NAN
    raw = series_of("power", {"a": values, "b": np.arange(60.0)}, step=step)
    jitter = np.random.default_rng(1).uniform(-0.02, 0.02, len(raw.times)) * step
    found = sampling_of(dataclasses.replace(raw, times=raw.times + jitter))
    assert found.step_seconds == pytest.approx(step, rel=2e-3)
    assert found.hold_seconds == 0


def test_an_interval_the_source_knows_is_taken() -> None:
    raw = dataclasses.replace(series_of("power", {"a": np.arange(9.0)}), interval_seconds=5.0)
    assert sampling_of(raw) == Sampling(5.0)


def test_no_interval_can_be_known_from_single_samples() -> None:
    with pytest.raises(Unobservable, match="no machine has two samples"):
        sampling_of(series_of("power", {"a": np.array([1.0]), "b": np.array([2.0])}))


def test_losses_of_single_machines_do_not_make_a_metric_event_driven() -> None:
    rng = np.random.default_rng(0)
    lossy = {f"m{number}": np.where(rng.random(300) < 0.6, NAN, 1.0) for number in range(8)}
    assert sampling_of(series_of("power", lossy)) == Sampling(1.0)


def test_a_value_per_training_step_holds_until_the_next() -> None:
    lengths = np.array([0.08, 0.25, 0.16, 0.25, 0.08, 0.25, 0.25, 0.08] * 20)
    ends = NOW + np.cumsum(lengths)
    values = np.arange(len(ends), dtype=np.float64)
    raw = RawMetric(
        "step_ms", tuple("abc"), (None,) * 3, np.arange(4) * len(ends), np.tile(ends, 3), np.tile(values, 3)
    )
    sampling = sampling_of(raw)
    assert sampling.hold_seconds == pytest.approx(0.25)
    cells = cells_of(raw)
    assert cells.step_seconds == sampling.step_seconds
    assert cells.present.all()
    held = values[np.searchsorted(ends, cells.times + sampling.step_seconds / 2, side="right") - 1]
    assert np.mean(cells.values[0] == held) > 0.9


def test_a_value_does_not_hold_for_ever() -> None:
    ends = NOW + np.concatenate([np.cumsum([0.1, 0.25] * 30), 60 + np.cumsum([0.1, 0.25] * 30)])
    raw = RawMetric("step_ms", tuple("abc"), (None,) * 3, np.arange(4) * 120, np.tile(ends, 3), np.ones(360))
    cells = cells_of(raw)
    assert not cells.present[:, (cells.times > ends[59] + 1) & (cells.times < ends[60] - 1)].any()


def test_of_two_samples_in_one_cell_the_nearer_to_its_instant_stays() -> None:
    raw = RawMetric(
        "power",
        ("a", "b"),
        (None, None),
        np.array([0, 5, 9]),
        np.array([NOW, NOW + 1, NOW + 1.3, NOW + 2, NOW + 3, NOW, NOW + 1, NOW + 2, NOW + 3]),
        np.array([0.0, 1, 99, 2, 3, 0, 1, 2, 3]),
        interval_seconds=1.0,
    )
    assert cells_of(raw).values[0].tolist() == [0, 1, 2, 3]


def test_a_window_is_judged_only_with_its_newest_sample_and_half_of_it() -> None:
    present = np.array([[1, 1, 1, 0, 1, 0, 0, 1]], dtype=bool)
    #  windows of 4:   1110 newest missing, 1101 fine, 1010 newest missing, 0100 newest missing, 1001 fine
    assert is_judged(present, 4).tolist() == [[False, True, False, False, True]]


def test_window_means_by_hand() -> None:
    assert window_means(np.array([[1.0, 2.0, 6.0, 3.0]]), 3).tolist() == [[3.0, pytest.approx(11 / 3)]]


def test_one_bad_device_of_eight_is_not_averaged_away() -> None:
    values = {f"m{m}/gpu{d}": np.full(20, 100.0) for m in range(4) for d in range(8)}
    values["m2/gpu5"] = np.full(20, 50.0)
    mean, device = panels(series_of("power", values), ("m0", "m1", "m2", "m3"), 8)
    assert (mean.view, device.view) == ("mean", "device")
    assert mean.values[mean.rows[2, 0]].tolist() == [93.75] * 20
    chosen = device.rows[2]
    assert {device.row_device[row] for row in chosen} == {"gpu5"}
    assert device.values[chosen[0]].tolist() == [50.0] * 20


def test_a_device_that_stops_reporting_does_not_drag_the_mean() -> None:
    values = {f"m{m}/gpu{d}": np.full(12, 100.0 + d) for m in range(3) for d in range(2)}
    values["m1/gpu1"][4:] = NAN
    mean, _ = panels(series_of("power", values), ("m0", "m1", "m2"), 4)
    assert mean.values[1].tolist() == [100.5] * 4 + [100.0] * 8
    assert mean.present[1].all()


def test_one_device_per_machine_needs_one_view_only() -> None:
    views = panels(series_of("power", {f"m{m}/gpu0": np.arange(9.0) for m in range(3)}), ("m0", "m1", "m2"), 4)
    assert [view.view for view in views] == ["device"]
    assert views[0].row_device == ("gpu0",) * 3


def test_fewer_samples_than_a_window_cannot_be_judged() -> None:
    with pytest.raises(Unobservable, match="5 samples at 1 s are fewer than the window's 8"):
        panels(series_of("power", {"a": np.arange(5.0), "b": np.arange(5.0)}), ("a", "b"), 8)


def test_physical_bounds_stand_in_for_the_observed_extremes() -> None:
    spec = MetricSpec("power", "percent", lower=0.0, upper=100.0, spread=2.0, spread_ratio=0.0)
    (panel,) = panels(series_of("power", {m: np.linspace(40, 60, 12) for m in "abc"}), ("a", "b", "c"), 4)
    scale = normalisation(panel, spec)
    assert set(scale.low) == {0.0}
    assert set(scale.high) == {100.0}
    assert scale.spread == pytest.approx(0.02)


def test_the_observed_maximum_uses_nothing_that_comes_later() -> None:
    values = {m: np.full(12, 10.0) for m in "abc"}
    values["b"][9] = 500.0
    (panel,) = panels(series_of("power", values), ("a", "b", "c"), 4)
    scale = normalisation(panel, POWER)
    # windows end at seconds 3 .. 11; the surge is at second 9
    assert scale.high.tolist() == [10.0] * 6 + [500.0] * 3


def test_a_metric_without_bounds_is_normalised_by_its_extremes_so_far() -> None:
    spec = MetricSpec("step_ms", "")
    (panel,) = panels(series_of("step_ms", {m: np.array([5.0, 4, 6, 9, 2]) for m in "abc"}), ("a", "b", "c"), 3)
    scale = normalisation(panel, spec)
    assert scale.low.tolist() == [4, 4, 2]
    assert scale.high.tolist() == [6, 9, 9]


@settings(deadline=None, max_examples=40)
@given(constant=st.floats(-1e4, 1e4), seed=st.integers(0, 99))
def test_adding_a_constant_to_all_changes_nothing_after_normalisation(constant: float, seed: int) -> None:
    spec = MetricSpec("step_ms", "", spread_ratio=0.0)
    rng = np.random.default_rng(seed)
    drawn = {m: rng.uniform(1, 50, 20) for m in "abc"}

    def normalised(added: float) -> tuple[FloatArray, FloatArray]:
        raw = series_of("step_ms", {m: values + added for m, values in drawn.items()})
        (panel,) = panels(raw, ("a", "b", "c"), 8)
        scale = normalisation(panel, spec)
        return (panel.values[:, 7:] - scale.low) / (scale.high - scale.low), scale.spread

    for here, there in zip(normalised(0.0), normalised(constant), strict=True):
        assert np.allclose(here, there, atol=1e-9)


def test_the_ordinary_spread_follows_the_level_of_the_task() -> None:
    (panel,) = panels(series_of("power", {m: np.full(12, 400.0) for m in "abc"}), ("a", "b", "c"), 4)
    scale = normalisation(panel, POWER)
    # 3 % of a level of 400 W, on a scale from 0 to 400 W
    assert scale.spread == pytest.approx(0.03)


def test_resuming_goes_on_with_the_extremes_seen_before() -> None:
    spec = MetricSpec("step_ms", "")
    (panel,) = panels(series_of("step_ms", {m: np.full(12, 5.0) for m in "abc"}), ("a", "b", "c"), 4)
    scale = normalisation(panel, spec, seen=(1.0, 9.0))
    assert (set(scale.low), set(scale.high)) == ({1.0}, {9.0})


def test_one_stray_instant_cannot_fill_the_memory() -> None:
    raw = series_of("power", {m: np.arange(300.0) for m in "abc"})
    times = raw.times.copy()
    times[-1] += 365 * 86_400
    with pytest.raises(Unobservable, match=r"its samples span 3153630\d s at one each 1 s, of which 0.00% are there"):
        panels(dataclasses.replace(raw, times=times), ("a", "b", "c"), 8)


def test_instants_in_the_wrong_unit_are_no_sampling() -> None:
    raw = series_of("power", {m: np.arange(30.0) for m in "abc"}, step=1e-9, start=0.0)
    with pytest.raises(Unobservable, match=r"1e-09 s apart, .*recording\.time_unit"):
        sampling_of(raw)


@pytest.mark.parametrize("level", [0.0, 5e-324, 1e17, -1e17, 1e100])
def test_bounds_are_apart_where_a_metric_stands_still(level: float) -> None:
    (panel,) = panels(series_of("step_ms", {m: np.full(12, level) for m in "abc"}), ("a", "b", "c"), 4)
    scale = normalisation(panel, MetricSpec("step_ms", ""))
    assert np.isfinite(1.0 / (scale.high - scale.low)).all()
