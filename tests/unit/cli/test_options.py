"""Shared options: what the user writes, and the settings it becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from trainminder.cli.instants import parse_instant
from trainminder.cli.options import AtOption, detect_flags, parse_overrides, recording_flags, store_flags
from trainminder.errors import SettingsError
from trainminder.settings import Settings, load_settings


def loaded(flags: dict[str, object]) -> Settings:
    return load_settings(environment={}, flags=flags)


def test_options_not_given_change_nothing() -> None:
    flags = {**store_flags(), **recording_flags(None), **detect_flags()}
    assert loaded(flags) == Settings()


def test_store_options_become_the_settings_of_the_store() -> None:
    settings = loaded(
        store_flags(
            "http://prom:9090",
            bearer_token_file=Path("token"),
            header=["X-Scope-OrgID=a", "X.Dotted: b=c"],
            machine_label="node",
        )
    )
    assert settings.store.url == "http://prom:9090"
    assert settings.store.bearer_token_file == Path("token")
    headers = {name: value.get_secret_value() for name, value in settings.store.headers.items()}
    assert headers == {"X-Scope-OrgID": "a", "X.Dotted": "b=c"}
    assert settings.membership.machine_label == "node"


def test_a_broken_header_is_refused_without_showing_what_may_be_a_secret() -> None:
    with pytest.raises(SettingsError, match=r"^--header: write --header NAME=VALUE$"):
        store_flags(header=["hunter2"])


def test_an_instant_relative_to_now_is_no_option_although_it_starts_with_a_dash(run: Any, command: Any) -> None:
    def probe(at: AtOption = "now") -> None:
        typer.echo(parse_instant(at, now=1000.0))

    command(probe)
    assert run("probe", "--at", "-15m").out == run("probe", "--at=-15m").out == "100.0\n"
    assert run("probe").out == "1000.0\n"


def test_columns_are_renamed_even_when_their_names_hold_dots() -> None:
    assert loaded(recording_flags(["time.utc=timestamp", "host = machine"])).recording.columns == {
        "time.utc": "timestamp",
        "host": "machine",
    }


@pytest.mark.parametrize("text", ["", "time", "=timestamp", "time="])
def test_a_column_without_both_names_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=f'--column "{text}": write --column FROM=TO'):
        recording_flags([text])


def test_options_of_judging_become_the_settings_of_judging() -> None:
    settings = loaded(detect_flags("paper", minutes=30, continuity_seconds=60, models_dir=Path("models")))
    assert (settings.detect.method, settings.detect.minutes) == ("paper", 30)
    assert (settings.detect.continuity_seconds, settings.detect.models_dir) == (60, Path("models"))


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"detect\.method: .*'default' or 'paper'.*'mind'"):
        loaded(detect_flags("mind"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("null", None), ("[a, b]", ["a", "b"]), ("false", False), ("a=b", "a=b"), ("[a", "[a"), ("", None)],
)
def test_values_of_set_are_yaml_and_text_where_they_are_not(text: str, value: object) -> None:
    assert parse_overrides([f"detect.key={text}"]) == {"detect": {"key": value}}


def test_null_takes_back_what_the_file_set(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "trainminder.yaml"
    file.write_text("store: {interval_seconds: 5, retries: 1}\n")
    ran = run("settings", "show", "--settings", str(file), "--set", "store.interval_seconds=null")
    assert "  interval_seconds: null  # from the command line" in ran.out.splitlines()
    assert f"  retries: 1  # from {file}" in ran.out.splitlines()


def test_a_key_that_is_both_a_value_and_a_section_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"detect\.minutes: detect is also given as 3"):
        parse_overrides(["detect=3", "detect.minutes=4"])
