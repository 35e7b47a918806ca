"""How names, numbers and instants read, wherever they are read."""

from __future__ import annotations

import pytest

from trainminder.wording import (
    bounds,
    counted,
    iso_time,
    machine_and_device,
    quantity,
    ratio_as_percent,
    shortened,
    some_names,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.2e9, "bytes/s", "12.2 GB/s"),
        (0.0, "bytes/s", "0 B/s"),
        (999.0, "bytes/s", "999 B/s"),
        (45_300.0, "packets/s", "45.3 k packets/s"),
        (98.24, "percent", "98.2 %"),
        (0.4312, "ratio", "0.431"),
        (1410.0, "MHz", "1410 MHz"),
        (71_234.0, "MiB", "71200 MiB"),
        (67.0, "C", "67 °C"),
        (3.2, "", "3.2"),
        (-4.1e6, "bytes/s", "-4.1 MB/s"),
    ],
)
def test_a_quantity_reads_with_its_unit(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_a_share_that_is_not_zero_never_reads_as_zero() -> None:
    assert ratio_as_percent(0.0) == "0 %"
    assert ratio_as_percent(0.00003) == "under 0.01 %"
    assert ratio_as_percent(1.0) == "100 %"


def test_a_long_name_keeps_more_of_its_end() -> None:
    assert shortened("gpu-cluster-eu-west-node-0042", 18) == "gpu-cl…t-node-0042"
    assert shortened("gpu-03", 18) == "gpu-03"


def test_the_first_names_are_listed_and_the_others_counted() -> None:
    assert some_names(["a", "b", "c"], 3) == "a, b, c"
    assert some_names(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_one_is_no_plural() -> None:
    assert [counted(count, "machine") for count in (0, 1, 2)] == ["0 machines", "1 machine", "2 machines"]


def test_a_device_follows_its_machine() -> None:
    assert machine_and_device("gpu-03", "gpu5") == "gpu-03 (gpu5)"
    assert machine_and_device("gpu-03", None) == "gpu-03"


def test_an_open_bound_is_left_out_and_zero_is_a_bound() -> None:
    assert [bounds(0.0, 100.0), bounds(0.0, None), bounds(None, 0.5), bounds(None, None)] == [
        "0..100",
        "0..",
        "..0.5",
        "",
    ]


def test_an_instant_is_utc_to_the_second_unless_more_is_asked() -> None:
    assert iso_time(1_772_359_200.123) == "2026-03-01T10:00:00Z"
    assert iso_time(1_772_359_200.123, "milliseconds") == "2026-03-01T10:00:00.123Z"
