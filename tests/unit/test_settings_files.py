"""Settings files that a person would not write, or that say what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainminder.errors import SettingsError
from trainminder.settings import load_settings

DOUBLING = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{here}: &{here} {{x: *{before}, y: *{before}, z: *{before}}}\n"
    for before, here in zip("abcdefghijklmnopqr", "bcdefghijklmnopqrs", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("detect: &d {minutes: 5, metrics: *d}", "holds itself"),
        (DOUBLING, "by its aliases"),
        ("a: " + "[" * 40 + "]" * 40, "nested deeper than 20"),
        ("a: " + "[" * 5000 + "]" * 5000, "YAML"),
        ("detect: {minutes: 5\0}", "not YAML"),
        ("detect: !!python/object/apply:os.getcwd []", "not YAML at line 1"),
    ],
    ids=["itself", "aliases", "deep", "deeper", "nul", "tag"],
)
def test_a_file_that_is_no_plain_settings_is_refused_on_one_line(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_settings(file, environment={})
    (problem,) = refused.value.problems
    assert words in problem
    assert "\n" not in problem


def test_aliases_of_a_sane_size_are_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("tasks:\n- {name: a, machines: &m [x, y, z]}\n- {name: b, machines: *m}\n")
    assert [task.machines for task in load_settings(file, environment={}).tasks] == [("x", "y", "z")] * 2


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize("key", ["detect.minutes", "detect.continuity_seconds", "store.timeout_seconds"])
def test_settings_are_finite(key: str, value: str, tmp_path: Path) -> None:
    section, name = key.split(".")
    file = tmp_path / "settings.yaml"
    file.write_text(f"{section}: {{{name}: {value}}}")
    with pytest.raises(SettingsError, match=key):
        load_settings(file, environment={})


def test_many_tasks_are_checked_in_a_moment() -> None:
    names = [{"name": f"task-{i}"} for i in range(20_000)]
    assert len(load_settings(None, environment={}, flags={"tasks": names}).tasks) == 20_000
    with pytest.raises(SettingsError, match="'task-7' is given twice"):
        load_settings(None, environment={}, flags={"tasks": [*names, {"name": "task-7"}]})


def test_every_problem_is_told_at_once_in_words_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        """
store: {url: "localhost:9090", timeout_seconds: ten}
tasks:
- {name: a, machines: [x, x]}
- {name: b, machines: x}
"""
    )
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {})
    assert caught.value.problems == (
        "store.url: write it with http:// or https://, such as http://prometheus:9090 (it is 'localhost:9090')",
        "store.timeout_seconds: a number is wanted (it is 'ten')",
        "tasks.0.machines: 'x' is given twice: a machine is a member once",
        "tasks.1.machines: a list is wanted, such as [a, b] (it is 'x')",
    )


def test_the_password_in_an_address_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("store: {url: 'user:secret@prometheus:9090'}")
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {})
    assert "secret" not in str(caught.value)
