"""Samples that are no measurements are dropped and counted; doubles become one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainminder.source.cleaning import (
    KINDS,
    build_metric,
    classify_values,
    dropped_warnings,
    is_count,
    rates_of,
)
from trainminder.types import MetricSpec, RawMetric

RATIO = MetricSpec("gpu_sm_activity", "ratio", 0.0, 1.0, level="device")
PERCENT = MetricSpec("cpu_usage", "percent", 0.0, 100.0)
BYTES = MetricSpec("pcie_bandwidth", "bytes/s", 0.0, None, level="device")
FREE = MetricSpec("loss", "")


def kept(values: list[float], spec: MetricSpec, extra: tuple[float, ...] = ()) -> list[bool]:
    return (classify_values(np.array(values), spec, extra) == 0).tolist()  # type: ignore[no-any-return]


def why_missing(value: float, spec: MetricSpec) -> str:
    code = int(classify_values(np.array([value]), spec)[0])
    return KINDS[code - 1] if code else "kept"


def test_zero_is_a_measurement() -> None:
    assert kept([0.0, -0.0], BYTES) == [True, True]


def test_each_kind_of_missing_is_told_apart() -> None:
    values = [np.nan, np.inf, -np.inf, 2.0**47, 7.0, 0.5]
    told = [why_missing(value, RATIO) for value in values]
    assert told == ["nan", "infinite", "infinite", "sentinel", "impossible", "kept"]


@pytest.mark.parametrize(
    "marker",
    [
        9.2e18,
        float(0x7FFFFFFFFFFFFFF0),
        2.0**63,
        2.0**63 - 1024,
        2.0**63 + 3e10,
        2.0**64 - 1,
        2.0**31,
        2.0**31 - 1,
        2.0**32 - 1,
        float(0x7FFFFFF0),
        float(0x7FFFFFF3),
        140737488355328.0,
        140737488355331.0,
    ],
)
@pytest.mark.parametrize("spec", [BYTES, FREE, RATIO])
def test_a_no_value_marker_is_missing_whatever_the_bounds(marker: float, spec: MetricSpec) -> None:
    assert why_missing(marker, spec) == "sentinel"


@pytest.mark.parametrize("rate", [2147483631.0, 2147483649.5, 4294967297.0, 1e11, 140737488355332.0])
def test_a_rate_beside_a_marker_is_a_measurement(rate: float) -> None:
    assert kept([rate], BYTES) == [True]


def test_a_marker_named_in_settings_is_missing() -> None:
    assert kept([999999.0, 999998.0], BYTES, (999999.0,)) == [False, True]


def test_a_rate_read_late_may_pass_its_bound_a_little() -> None:
    assert kept([104.9, 105.1, -0.4], PERCENT) == [True, False, True]


def test_minus_one_never_passes_for_an_idle_machine() -> None:
    for spec in (PERCENT, RATIO, BYTES, MetricSpec("gpu_temperature", "C", 0.0, 120.0)):
        assert why_missing(-1.0, spec) == "impossible"


def test_a_metric_without_bounds_may_be_negative() -> None:
    assert kept([-1.0, -5e6], FREE) == [True, True]


def test_the_warning_names_metric_count_and_the_machine_left_without_data() -> None:
    values = np.array([2.0**47, 2.0**47, 0.5, 2.0**47])
    lines = dropped_warnings(RATIO, classify_values(values, RATIO), np.array([1, 1, 0, 0]), ["node-a", "node-b"])
    assert lines == [
        'gpu_sm_activity: samples that are a "no value" marker count as missing: 3, on node-a, node-b; '
        "no data for this metric: node-b"
    ]


def test_series_are_sorted_by_name_whatever_the_codes() -> None:
    raw, conflicts = build_metric(
        "m",
        np.array([0, 1, 0, 1]),
        np.array([0, -1, -1, 0]),
        np.array([2.0, 1.0, 3.0, 0.0]),
        np.array([10.0, 20.0, 30.0, 40.0]),
        ["b", "a"],
        ["gpu0"],
    )
    assert raw.machines == ("a", "a", "b", "b")
    assert raw.devices == (None, "gpu0", None, "gpu0")
    assert raw.values.tolist() == [20.0, 40.0, 30.0, 10.0]
    assert raw.offsets.tolist() == [0, 1, 2, 3, 4]
    assert conflicts == 0


def doubled(duplicates: str, values: list[float]) -> tuple[list[float], int]:
    n = len(values)
    raw, conflicts = build_metric(
        "m",
        np.zeros(n, np.int64),
        np.full(n, -1),
        np.full(n, 5.0),
        np.array(values),
        ["a"],
        [],
        duplicates,  # type: ignore[arg-type]
    )
    return raw.values.tolist(), conflicts


def test_equal_doubles_merge_silently() -> None:
    assert doubled("mean", [3.0, 3.0, 3.0]) == ([3.0], 0)


def test_of_different_doubles_the_mean_of_the_distinct_values_is_taken() -> None:
    assert doubled("mean", [1.0, 2.0, 1.0]) == ([1.5], 1)


def test_of_different_doubles_the_last_wins_where_asked() -> None:
    assert doubled("last", [1.0, 2.0, 1.5]) == ([1.5], 1)


def test_no_samples_give_no_series() -> None:
    none = np.array([], dtype=np.int64)
    raw, conflicts = build_metric("m", none, none, np.array([]), np.array([]), ["a"], [])
    assert (raw.machines, raw.offsets.tolist(), conflicts) == ((), [0], 0)


samples = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(-1, 1), st.integers(0, 4), st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 1e9])
    ),
    max_size=25,
)


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_not_one_byte(rows: list[tuple[int, int, int, float]], random: object) -> None:
    def build(rows: list[tuple[int, int, int, float]]) -> tuple[bytes, ...]:
        machine, device, times, values = (np.array([row[i] for row in rows]) for i in range(4))
        raw, conflicts = build_metric(
            "m",
            machine.astype(np.int64),
            device.astype(np.int64),
            times.astype(float),
            values.astype(float),
            ["a", "c", "b"],
            ["gpu1", "gpu0"],
        )
        return (
            repr((raw.machines, raw.devices, conflicts)).encode(),
            raw.offsets.tobytes(), raw.times.tobytes(), raw.values.tobytes(),
        )  # fmt: skip

    # A single -0.0 keeps its sign: only merged values are brought to one zero.
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert build(rows) == build(shuffled)


@given(samples)
def test_instants_of_a_series_strictly_increase(rows: list[tuple[int, int, int, float]]) -> None:
    machine, device, times, values = (np.array([row[i] for row in rows], dtype=float) for i in range(4))
    raw, _ = build_metric(
        "m", machine.astype(np.int64), device.astype(np.int64), times, values, ["a", "b", "c"], ["g0", "g1"]
    )
    for start, end in zip(raw.offsets[:-1], raw.offsets[1:], strict=True):
        assert end > start
        assert (np.diff(raw.times[start:end]) > 0).all()


def test_a_number_whose_square_is_none_is_no_measurement() -> None:
    assert kept([1.7e308, -1e200, 1e99], FREE) == [False, False, True]


def counted(*series: list[float]) -> RawMetric:
    lengths = [len(values) for values in series]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    times = np.concatenate([10.0 * np.arange(length) for length in lengths])
    names = tuple(f"node-{i}" for i in range(len(series)))
    return RawMetric("bytes_total", names, (None,) * len(series), offsets, times, np.concatenate(series))


def test_a_count_becomes_its_rate_and_nothing_is_known_across_a_restart() -> None:
    raw = counted([100.0 * i for i in range(40)], [500, 600, 700, 10, 30, *(30 + 100.0 * i for i in range(1, 36))])
    assert is_count(raw)
    rates, restarted = rates_of(raw)
    assert restarted == ["node-1"]
    assert rates.offsets.tolist() == [0, 39, 77]
    assert rates.times[39:43].tolist() == [10, 20, 40, 50]
    assert rates.values[39:43].tolist() == [10, 10, 2, 10]
    assert set(rates.values[:39]) == {10.0}


def test_what_also_falls_or_hardly_rises_is_no_count() -> None:
    rising = [float(i) for i in range(40)]
    noisy = [float(i % 7) for i in range(40)]
    steps = [float(i // 10) for i in range(40)]
    assert not is_count(counted(rising, noisy))
    assert not is_count(counted(steps, steps))
    assert not is_count(counted(rising[:5], rising))
