"""Instants in any unit, type or zone come out as the same Unix seconds, and what was decided is said."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainminder.errors import RecordingError, SettingsError
from trainminder.settings import RecordingSettings
from trainminder.source.recordings.timestamps import FACTORS, read_instants

NOW = 1_760_000_000
SAME = "2025-10-09T08:53:20"


def read(cells: list[object] | pl.Series, **setting: object) -> tuple[list[float | None], list[str]]:
    column = cells if isinstance(cells, pl.Series) else pl.Series(cells)
    seconds, said = read_instants(column.rename("time"), RecordingSettings.model_validate(setting))
    return seconds.to_list(), said


@pytest.mark.parametrize("unit", FACTORS)
@pytest.mark.parametrize("kind", [pl.Int64, pl.UInt64, pl.Float64, pl.String])
def test_numbers_of_every_unit_are_told_apart_by_size(unit: str, kind: type[pl.DataType]) -> None:
    seconds, said = read(pl.Series([NOW * FACTORS[unit], None, (NOW + 60) * FACTORS[unit]]).cast(kind))
    assert seconds == [NOW, None, NOW + 60]
    assert len(said) == (unit != "s")
    assert all("judged by its size" in line and "recording.time_unit" in line for line in said)


@given(st.integers(NOW * 1000, NOW * 1000 + 10**9))
def test_milliseconds_read_as_the_decimal_they_are(count: int) -> None:
    assert read([count])[0] == [float(f"{count // 1000}.{count % 1000:03}")]
    assert read([f"{count}"])[0] == [float(f"{count // 1000}.{count % 1000:03}")]


def test_a_stated_unit_beats_the_size() -> None:
    assert read([5_000, 6_000], time_unit="ms")[0] == [5.0, 6.0]
    assert read([NOW * 1000], time_unit="ms") == ([NOW], [])
    with pytest.raises(RecordingError, match="holds 1760000000000, which is no instant between 2000 and 2100 in s "):
        read([NOW * 1000], time_unit="s")


def test_small_numbers_count_from_the_start_and_it_is_said() -> None:
    for cells in ([0, 1, 1000], [0.0, 1.0, 1000.0], ["0", "1.0", "1e3"]):
        seconds, said = read(cells)  # type: ignore[arg-type]
        assert seconds == [0.0, 1.0, 1000.0]
        assert "since the start of the recording" in said[0]


@pytest.mark.parametrize("odd", [-1, 500_000_000, 50_000_000_000, 2**63 - 1])
def test_a_number_that_is_no_instant_is_an_error_with_the_remedy(odd: int) -> None:
    with pytest.raises(RecordingError, match=r'column "time" holds .* recording.time_unit'):
        read([NOW, odd])


def test_one_column_holds_one_unit() -> None:
    with pytest.raises(RecordingError, match="mixes units: 1760000000 and 1760000060000"):
        read([NOW, (NOW + 60) * 1000])
    with pytest.raises(RecordingError, match="mixes units"):
        read([0, NOW])


def test_float32_is_too_coarse_for_unix_time_but_not_for_relative_time() -> None:
    with pytest.raises(RecordingError, match="float32"):
        read(pl.Series([NOW], dtype=pl.Float32))
    assert read(pl.Series([0.5], dtype=pl.Float32))[0] == [0.5]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_typed_instants_of_every_unit_and_zone_are_the_same(unit: str) -> None:
    aware = pl.Series([datetime(2025, 10, 9, 8, 53, 20, 250_000, tzinfo=UTC)]).cast(pl.Datetime(unit, "UTC"))  # type: ignore[arg-type]
    assert read(aware) == ([NOW + 0.25], [])
    assert read(aware.dt.convert_time_zone("Asia/Tokyo")) == ([NOW + 0.25], [])
    seconds, said = read(aware.dt.replace_time_zone(None), timezone="Europe/Berlin")
    assert seconds == [NOW + 0.25 - 7200]
    assert "taken as Europe/Berlin" in said[0]


def test_dates_and_durations_are_read() -> None:
    assert read([date(2025, 10, 9)])[0] == [NOW - 32_000]
    assert read([timedelta(seconds=1.5)])[0] == [1.5]


@pytest.mark.parametrize(
    "text",
    [
        f"{SAME}Z",
        f"{SAME}z",
        "2025-10-09 08:53:20+00:00",
        "2025/10/09 10:53:20 +0200",
        "2025-10-09T03:23:20-05:30",
        "2025-10-09T08:53:20.000000000Z",
        "2025-10-09T06:53:20-02",
        "2025-10-09 08:53:20 UTC",
    ],
)
def test_iso_text_with_a_zone_needs_no_word(text: str) -> None:
    assert read([text, None, text]) == ([NOW, None, NOW], [])


def test_fractions_of_a_second_are_kept() -> None:
    assert read([f"{SAME}.1Z", f"{SAME},123456789Z"])[0] == [1_760_000_000.1, 1_760_000_000.123456789]


def test_text_without_a_zone_is_taken_in_the_zone_of_the_settings_and_it_is_said() -> None:
    assert read([SAME])[0] == [NOW]
    seconds, said = read(["2025-10-09 10:53"], timezone="Europe/Berlin")
    assert seconds == [NOW - 20]
    assert said == ['column "time": the instants carry no zone: taken as Europe/Berlin (recording.timezone)']


def test_mixed_zones_are_read_row_by_row_and_it_is_said() -> None:
    seconds, said = read([f"{SAME}Z", "2025-10-09T10:53:20+02:00", "2025-10-09T17:53:20"], timezone="Asia/Tokyo")
    assert seconds == [NOW, NOW, NOW]
    assert ["mixes zones" in said[0], "some instants carry no zone" in said[1]] == [True, True]


@pytest.mark.parametrize("hour", ["2025-10-26T02:30:00", "2025-03-30T02:30:00"])
def test_an_hour_that_the_clocks_show_twice_or_skip_is_an_error(hour: str) -> None:
    for cells in ([hour], pl.Series([hour]).str.to_datetime()):
        with pytest.raises(RecordingError, match="without an offset"):
            read(cells, timezone="Europe/Berlin")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["2025-13-09T08:53:20Z", "09.10.2025 08:53", "yesterday", f"{SAME}+99:00", "08:53:20"])
def test_text_that_is_no_instant_is_an_error_naming_it(text: str) -> None:
    with pytest.raises(RecordingError, match="which is no instant: write Unix seconds, or ISO 8601") as caught:
        read([f"{SAME}Z", text])
    assert f'"{text}"' in str(caught.value)


def test_an_instant_outside_the_sane_span_is_an_error_whatever_its_form() -> None:
    for cells in (["1970-01-01T00:00:00Z"], [datetime(2300, 1, 1, tzinfo=UTC)]):
        with pytest.raises(RecordingError, match="not between 2000 and 2100"):
            read(cells)  # type: ignore[arg-type]


def test_numbers_and_text_in_one_column_are_an_error() -> None:
    with pytest.raises(RecordingError, match=r"mixes numbers \(1760000000\) and text"):
        read([str(NOW), f"{SAME}Z"])


def test_an_unknown_zone_is_an_error_of_the_settings() -> None:
    with pytest.raises(SettingsError, match='"Mars/Olympus" is no zone'):
        read([SAME], timezone="Mars/Olympus")


def test_cells_without_an_instant_are_empty() -> None:
    assert read(["", "N/A", f"{SAME}Z"])[0] == [None, None, NOW]
    assert read([float("nan"), float(NOW)])[0] == [None, NOW]
    assert read(pl.Series([None, None]))[0] == [None, None]
