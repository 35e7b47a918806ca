"""``trainminder settings``: what is in force, whether it is right, what can be set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainminder.settings import Settings, iter_settings


def written(folder: Path, text: str) -> str:
    file = folder / "trainminder.yaml"
    file.write_text(text)
    return str(file)


def test_show_prints_yaml_that_read_back_gives_the_same_settings(run: Any, tmp_path: Path) -> None:
    text = """
    tasks: [{name: llm-7, machines: [a, "10.0.0.1"], groups: {a: "stage: 1"}}]
    metrics: {my.metric: {unit: "# odd", spread: 3}, cpu_usage: {upper: 50}}
    recording: {columns: {"time, UTC": timestamp}, sentinels: [1.0e+18]}
    membership: {machine_rewrites: [{match: "(.*)-ib", replace: '\\1'}]}
    detect: {metrics: [cpu_usage], models_dir: "models # 2"}
    """
    file = written(tmp_path, text)
    ran = run("settings", "show", "--settings", file)
    assert ran.code == 0
    back = Settings.model_validate(yaml.safe_load(ran.out))
    assert back == Settings.model_validate(yaml.safe_load(text))
    # A field that was not set stays the catalogue's.
    assert back.metrics["cpu_usage"].model_fields_set == {"upper"}


def test_show_says_where_each_setting_that_was_set_comes_from_and_nothing_of_the_others(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "detect: {minutes: 30, method: paper}\nstore: {retries: 4}\n")
    monkeypatch.setenv("TRAINMINDER_DETECT__MINUTES", "40")
    ran = run("settings", "show", "--settings", file, "--set", "train.seed=9")
    said = {line.split(":")[0].strip(): line for line in ran.out.splitlines() if "  # " in line}
    assert said == {
        "minutes": "  minutes: 40.0  # from TRAINMINDER_DETECT__MINUTES",
        "method": f"  method: paper  # from {file}",
        "retries": f"  retries: 4  # from {file}",
        "seed": "  seed: 9  # from the command line",
    }


def test_show_never_prints_a_secret(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(
        tmp_path,
        "store: {url: 'http://bob:hunter2@prom:9090/p', password: hunter2, headers: {X-Key: hunter2, Y: hunter2}}",
    )
    monkeypatch.setenv("TRAINMINDER_STORE__BEARER_TOKEN", "hunter2")
    ran = run("settings", "show", "--settings", file)
    assert ran.code == 0
    assert "hunter2" not in ran.out + ran.err
    assert "url: http://**********@prom:9090/p" in ran.out
    assert "bearer_token: '**********'  # from TRAINMINDER_STORE__BEARER_TOKEN" in ran.out


def test_check_says_that_right_settings_are_right_and_how_many_were_set(run: Any, tmp_path: Path) -> None:
    file = written(tmp_path, "detect: {minutes: 30, method: paper}\n")
    ran = run("settings", "check", "--settings", file, "--set", "train.seed=9")
    assert (ran.code, ran.err) == (0, "")
    assert f"Values set: 2 in {file}, 0 in the environment, 1 on the command line" in ran.out


def test_check_reports_all_problems_at_once_with_key_and_nearest_name(run: Any, tmp_path: Path) -> None:
    file = written(tmp_path, "detect: {minutse: 30, window_samples: 1}\nstore: {retries: many}\n")
    ran = run("settings", "check", "--settings", file)
    assert (ran.code, ran.out) == (1, "")
    lines = ran.err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert 'error: detect.minutse: unknown setting; did you mean "detect.minutes"?' in lines


def test_check_also_checks_what_the_metrics_become(run: Any, tmp_path: Path) -> None:
    ran = run("settings", "check", "--settings", written(tmp_path, "metrics: {cpu_usage: {upper: -1}}\n"))
    assert ran.code == 1
    assert "metrics.cpu_usage: lower is 0 but upper is -1" in ran.err


def test_a_variable_with_one_underscore_too_few_is_said_and_not_ignored_in_silence(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMINDER_DETECT_MINUTES", "30")
    # What Kubernetes sets in every pod beside a service named trainminder is no mistake of the user's.
    monkeypatch.setenv("TRAINMINDER_PORT", "tcp://10.0.0.1:80")
    ran = run("settings", "check")
    assert ran.code == 0
    assert "TRAINMINDER_DETECT_MINUTES is ignored: did you mean TRAINMINDER_DETECT__MINUTES?" in ran.err
    assert "TRAINMINDER_PORT" not in ran.err


def test_explain_without_a_key_explains_every_setting(run: Any) -> None:
    ran = run("settings", "explain")
    assert ran.code == 0
    for key, _, _, meaning in iter_settings():
        assert f"\n{key}  (" in f"\n{ran.out}"
        assert meaning
        assert meaning in ran.out


def test_explain_gives_type_default_meaning_and_variable_of_one_setting(run: Any) -> None:
    ran = run("settings", "explain", "store.interval_seconds")
    assert ran.out.splitlines() == [
        "store.interval_seconds  (number | null; default null)",
        "    Sampling interval of the store's series. None: measured for each metric.",
        "    environment: TRAINMINDER_STORE__INTERVAL_SECONDS",
    ]


@pytest.mark.parametrize(
    ("asked", "explained"),
    [
        ("train.kl_weight", {"train.kl_weight"}),
        ("tasks", {"tasks[].name", "tasks[].machines", "tasks[].matcher", "tasks[].domains", "tasks[].groups"}),
        ("metrics.cpu_usage.unit", {"metrics[].unit"}),
        ("metrics[].unit", {"metrics[].unit"}),
        (
            "membership.machine_rewrites",
            {"membership.machine_rewrites[].match", "membership.machine_rewrites[].replace"},
        ),
    ],
)
def test_explain_takes_a_key_a_section_and_a_name_of_ones_own(run: Any, asked: str, explained: set[str]) -> None:
    ran = run("settings", "explain", asked)
    assert {line.split()[0] for line in ran.out.splitlines() if not line.startswith(" ")} == explained


@pytest.mark.parametrize(
    ("asked", "nearest"), [("detct", "detect"), ("detect.methd", "detect.method"), ("store.ulr", "store.url")]
)
def test_explain_names_the_nearest_of_an_unknown_setting(run: Any, asked: str, nearest: str) -> None:
    ran = run("settings", "explain", asked)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f'error: {asked}: unknown setting; did you mean "{nearest}"?\n'
