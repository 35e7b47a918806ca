"""The rule that sets every threshold, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainminder.bench import tasks
from trainminder.bench.calibrate import Chosen, check_disjoint, choose, trade_off
from trainminder.bench.methods.default import DefaultMethod
from trainminder.bench.outcomes import Outcome, Said, TaskFacts
from trainminder.bench.thresholds import read_thresholds, write_thresholds
from trainminder.errors import SettingsError
from trainminder.types import Truth


def curve(*points: tuple[float, float | None, float]) -> list[dict[str, Any]]:
    """(threshold, F1, false alarms per 1,000 machine-hours), strictest first."""
    return [
        {"threshold": threshold, "f1": f1, "false_alarms_per_1000_machine_hours": rate}
        for threshold, f1, rate in points
    ]


def test_the_best_f1_within_the_false_alarm_rate_is_chosen() -> None:
    chosen = choose(curve((9, 0.3, 0.0), (7, 0.8, 1.0), (5, 0.7, 2.0), (3, 0.9, 2.1)), 2.0)
    assert chosen == Chosen(7, True, 2.0, 0.8, 1.0)


def test_a_rate_equal_to_the_limit_is_within_it() -> None:
    assert choose(curve((7, 0.8, 1.0), (3, 0.9, 2.0)), 2.0).threshold == 3


def test_of_equals_the_strictest_is_chosen() -> None:
    assert choose(curve((9, 0.8, 0.0), (7, 0.8, 1.0), (5, 0.8, 0.5)), 2.0).threshold == 9


def test_a_shipped_threshold_stands_whatever_others_give() -> None:
    chosen = choose(curve((9, 0.9, 0.0), (7, 0.8, 1.0), (5, 0.7, 2.5)), 2.0, shipped=5)
    assert chosen == Chosen(5, False, 2.0, 0.7, 2.5)


def test_the_shipped_setting_is_among_those_that_calibration_looks_at() -> None:
    assert DefaultMethod().shipped in DefaultMethod().thresholds


def test_having_said_nothing_is_worse_than_any_f1() -> None:
    assert choose(curve((9, None, 0.0), (7, 0.0, 1.0)), 2.0).threshold == 7


def test_where_none_keeps_to_the_rate_the_lowest_is_taken_and_it_is_said() -> None:
    chosen = choose(curve((9, 0.2, 5.0), (7, 0.6, 4.0), (5, 0.5, 4.0), (3, 0.9, 8.0)), 2.0)
    assert chosen == Chosen(7, False, 2.0, 0.6, 4.0)


def test_the_curve_has_the_figures_at_every_threshold() -> None:
    faulty = TaskFacts("faulty", 1, 5, 500.0, (Truth("a", None, "ecc_error", 0.0, 900.0),))
    healthy = TaskFacts("healthy", 2, 5, 500.0, ())
    true, false = Said("a", "cpu_usage", 0.0, 100.0), Said("b", "cpu_usage", 0.0, 100.0)
    points = trade_off(
        [
            Outcome(faulty, "m", (3.0, 2.0, 1.0), ((), (true,), (true,)), 1.0),
            Outcome(healthy, "m", (3.0, 2.0, 1.0), ((), (), (false,)), 1.0),
        ]
    )
    assert [point["threshold"] for point in points] == [3.0, 2.0, 1.0]
    assert [point["f1"] for point in points] == [None, 1.0, pytest.approx(2 / 3)]
    assert [point["false_alarms_per_1000_machine_hours"] for point in points] == [0.0, 0.0, 1.0]
    assert choose(points, 2.0).threshold == 2.0


def test_seeds_that_are_measured_are_refused_for_choosing() -> None:
    check_disjoint([1, 2, None], [3, 4, None])
    with pytest.raises(ValueError, match=r"seeds \[2\] are in the calibration set"):
        check_disjoint([1, 2], [2, 3])


def test_the_sets_that_are_measured_share_no_seed_with_the_calibration_set() -> None:
    seeds = [task.seed for task in tasks.calibration_set()]
    assert None not in seeds
    check_disjoint(seeds, [task.seed for task in (*tasks.standard_set(), *tasks.quick_set())])


def test_thresholds_are_read_as_they_were_written_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.toml"
    first, second = Chosen(1e-05, True, 2.0, 0.81, 0.4), Chosen(3.5, False, 2.0, None, 2.5)
    write_thresholds({"paper": first, "no continuity": first}, path)
    write_thresholds({"no continuity": second}, path)
    assert read_thresholds(["no continuity", "paper"], path) == {"no continuity": second, "paper": first}


@pytest.mark.parametrize("text", ["no TOML", "[paper]\nlimits = 3.0\n", None])
def test_a_file_of_thresholds_that_cannot_be_used_is_said_with_the_remedy(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "thresholds.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match="name a file that --write-thresholds wrote"):
        read_thresholds(["paper"], path)


def test_a_method_without_a_threshold_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="method no_such_method has no threshold in the package: leave it out"):
        read_thresholds(["no_such_method"])
    path = tmp_path / "thresholds.toml"
    path.touch()
    with pytest.raises(SettingsError, match=r"method paper has no threshold in .*thresholds.toml"):
        read_thresholds(["paper"], path)
