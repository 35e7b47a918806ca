"""Instants: what is read, what is said about it, and what is refused."""

from __future__ import annotations

import pytest

from trainminder.cli.instants import parse_instant, read_instant
from trainminder.errors import SettingsError

NOW = 1_772_359_200.0  # 2026-03-01T10:00:00Z


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1772359200", NOW),
        ("1772359200.25", NOW + 0.25),
        ("2026-03-01T10:00:00Z", NOW),
        ("2026-03-01T12:00:00+02:00", NOW),
        ("2026-03-01 10:00:00.5+00:00", NOW + 0.5),
        ("now", NOW),
        ("-15m", NOW - 900),
        ("now-15m", NOW - 900),
        ("-1h30m", NOW - 5400),
        ("-0.5h", NOW - 1800),
        ("-2d", NOW - 172_800),
        ("-90s", NOW - 90),
    ],
)
def test_every_documented_form_is_read_exactly_and_without_a_note(text: str, at: float) -> None:
    instant = read_instant(text, NOW)
    assert instant.at == at
    assert instant.note is None


@pytest.mark.parametrize(
    ("text", "at"),
    [("2026-03-01T10:00:00", NOW), ("2026-03-01 10:00", NOW), ("2026-03-01", NOW - 36_000), ("20260301", NOW - 36_000)],
)
def test_an_instant_without_a_zone_is_utc_and_says_so(text: str, at: float) -> None:
    instant = read_instant(text, NOW)
    assert instant.at == at
    assert instant.note is not None
    assert text in instant.note
    assert "UTC" in instant.note


def test_milliseconds_are_told_by_their_magnitude_and_said() -> None:
    instant = read_instant("1772359200123", NOW)
    assert instant.at == pytest.approx(NOW + 0.123, abs=1e-6)
    assert instant.note is not None
    assert "milliseconds: 2026-03-01T10:00:00.123" in instant.note


def test_the_zone_of_the_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read_instant("2026-03-01T10:00:00", NOW).at == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "15m", "now+15m", "-15", "-15w", "nan", "inf", "12", "99999999", "100000000000000", "1e9"),
        *("2026-13-01", "2026-03-01T25:00Z", "2026-03-01 10:00 Europe/Berlin", "-1772359200"),
    ],
)
def test_anything_else_is_refused_with_the_forms_that_are_read(text: str) -> None:
    with pytest.raises(SettingsError, match="is not an instant: write 2026-03-01T10:00:00Z, Unix seconds") as refused:
        read_instant(text, NOW)
    assert f'"{text}"' in str(refused.value)


def test_the_note_goes_to_standard_error_and_nothing_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_instant("2026-03-01T10:00:00", now=NOW) == NOW
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ("note: 2026-03-01T10:00:00 carries no zone and was taken as UTC: 2026-03-01T10:00:00Z\n")


def test_further_back_than_time_goes_is_refused() -> None:
    with pytest.raises(SettingsError, match='"-99999999999999999999d" is further back than time goes'):
        read_instant("-99999999999999999999d", NOW)
