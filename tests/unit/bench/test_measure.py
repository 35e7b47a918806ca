"""What counts as found and as false, worked out by hand."""

from __future__ import annotations

import pytest

from trainminder.bench.measure import by_tag, cost, figures, intervals, tally
from trainminder.bench.outcomes import Outcome, Said, TaskFacts
from trainminder.types import Truth

HOUR = 3600.0


def fault(machine: str, start: float = 100.0, end: float = 900.0, kind: str = "ecc_error") -> Truth:
    return Truth(machine, None, kind, start, end)


def said(machine: str, confirmed: float) -> Said:
    return Said(machine, "cpu_usage", confirmed - 50.0, confirmed)


def task(*truths: Truth, machines: int = 4, hours: float = 1.0, **tags: str) -> TaskFacts:
    return TaskFacts("a task", 1, machines, machines * hours, truths, tags)


def test_a_verdict_on_the_faulty_machine_after_its_onset_is_true() -> None:
    one = tally(task(fault("a")), [said("a", 340.0)])
    assert (one.faults, one.delays, one.false_alarms, one.first_is_true) == (1, (240.0,), 0, True)


@pytest.mark.parametrize("verdict", [said("b", 340.0), said("a", 99.0), said("a", 100.0)])
def test_a_verdict_on_another_machine_or_before_the_onset_is_a_false_alarm(verdict: Said) -> None:
    one = tally(task(fault("a")), [verdict])
    assert (one.delays, one.false_alarms, one.first_is_true) == ((), 1, False)


def test_several_verdicts_on_the_faulty_machine_count_once_and_the_earliest_gives_the_delay() -> None:
    one = tally(task(fault("a")), [said("a", 700.0), said("a", 340.0), said("a", 400.0)])
    assert (one.delays, one.false_alarms) == ((240.0,), 0)


def test_every_verdict_on_a_healthy_machine_is_a_false_alarm_of_its_own() -> None:
    assert tally(task(), [said("a", 340.0), said("b", 340.0), said("a", 900.0)]).false_alarms == 3


def test_a_group_is_one_fault_found_by_naming_any_of_its_machines() -> None:
    group = task(fault("a"), fault("b"), fault("c"))
    one = tally(group, [said("b", 340.0), said("c", 350.0), said("d", 360.0)])
    assert (one.faults, one.delays, one.false_alarms) == (1, (240.0,), 1)


def test_two_faults_at_once_are_two_to_find() -> None:
    pair = task(fault("a"), fault("b", start=200.0), fault("c", kind="nic_dropout"))
    one = tally(pair, [said("b", 440.0)])
    assert (one.faults, one.delays, one.false_alarms) == (3, (240.0,), 0)


def test_a_later_fault_of_the_same_machine_is_not_the_earlier_one_found() -> None:
    twice = task(fault("a", 100.0, 200.0), fault("a", 2000.0, 3000.0))
    late = tally(twice, [said("a", 2300.0)])
    assert (late.faults, late.delays) == (2, (300.0,))
    both = tally(twice, [said("a", 180.0), said("a", 2300.0)])
    assert both.delays == (80.0, 300.0)


def test_one_verdict_finds_two_faults_that_are_both_under_way_on_its_machine() -> None:
    both = task(fault("a", 100.0, 900.0), fault("a", 150.0, 900.0, "thermal_throttling"))
    assert tally(both, [said("a", 400.0)]).delays == (300.0, 250.0)


def test_the_first_verdict_by_confirmation_decides_localisation() -> None:
    faulty = task(fault("a"))
    assert tally(faulty, [said("a", 400.0), said("b", 300.0)]).first_is_true is False
    assert tally(faulty, [said("b", 400.0), said("a", 300.0)]).first_is_true is True
    assert tally(faulty, []).first_is_true is False


def test_the_figures_of_a_hand_worked_set() -> None:
    tallies = [
        tally(task(fault("a")), [said("a", 200.0)]),  # found after 100 s
        tally(task(fault("a")), [said("b", 150.0), said("a", 400.0)]),  # found after 300 s, behind a false alarm
        tally(task(fault("a")), []),  # missed
        tally(task(machines=8, hours=2.0), [said("b", 150.0)]),  # a false alarm
        tally(task(machines=8, hours=2.0), []),
    ]
    assert figures(tallies) == {
        "precision": pytest.approx(2 / 4),
        "recall": pytest.approx(2 / 3),
        "f1": pytest.approx(4 / 7),
        "false_alarms_per_1000_machine_hours": pytest.approx(1000 * 2 / 44),
        "top1": pytest.approx(1 / 3),
        "delay_median_s": 200.0,
        "delay_p90_s": pytest.approx(280.0),
        "tasks": 5,
        "faults": 3,
        "found": 2,
        "false_alarms": 2,
        "machine_hours": 44.0,
    }


def test_a_method_that_says_nothing_has_no_precision_and_a_recall_of_zero() -> None:
    silent = figures([tally(task(fault("a")), []), tally(task(), [])])
    assert silent["precision"] is None
    assert silent["f1"] is None
    assert silent["delay_median_s"] is None
    assert silent["recall"] == 0.0
    assert silent["top1"] == 0.0
    assert silent["false_alarms_per_1000_machine_hours"] == 0.0


def test_without_faults_there_is_no_recall_and_a_false_alarm_makes_precision_zero() -> None:
    healthy = figures([tally(task(), [said("a", 10.0)])])
    assert (healthy["precision"], healthy["recall"], healthy["top1"]) == (0.0, None, None)


def test_intervals_hold_the_figure_and_shrink_with_more_tasks() -> None:
    def drawn(count: int) -> tuple[float, list[float]]:
        tallies = [tally(task(fault("a")), [said("a", 150.0 + n)] if n % 4 else []) for n in range(count)]
        bounds = intervals(tallies)["recall"]
        assert bounds is not None
        return figures(tallies)["recall"], bounds

    few, (low, high) = drawn(20)
    many, (lower, higher) = drawn(400)
    assert few == many == 0.75
    assert low < lower < 0.75 < higher < high
    # Of 400 draws at 0.75, two standard deviations are 0.043.
    assert (higher - lower) / 2 == pytest.approx(0.0425, abs=0.005)


def test_intervals_are_the_same_every_time_and_undefined_where_the_figure_never_is() -> None:
    tallies = [tally(task(fault("a")), []), tally(task(), [])]
    bounds = intervals(tallies)
    assert bounds == intervals(tallies)
    assert bounds["precision"] is None
    assert bounds["delay_p90_s"] is None
    assert bounds["recall"] == [0.0, 0.0]


def test_figures_are_broken_down_by_every_tag_and_sizes_stand_in_their_order() -> None:
    def outcome(facts: TaskFacts, *verdicts: Said) -> Outcome:
        return Outcome(facts, "paper", (1.0,), (verdicts,), 1.0)

    outcomes = [
        outcome(task(fault("a"), size="16", fault="ecc_error"), said("a", 340.0)),
        outcome(task(fault("a"), size="4", fault="ecc_error")),
        outcome(task(size="4", fault="none", difficulty="restart"), said("a", 340.0)),
    ]
    parts = by_tag(outcomes, [tally(each.task, each.verdicts[0]) for each in outcomes])
    assert list(parts["size"]) == ["4", "16"]
    assert parts["fault"]["ecc_error"]["recall"] == 0.5
    assert parts["fault"]["ecc_error"]["delay_median_s"] == 240.0
    assert parts["fault"]["none"]["recall"] is None
    assert parts["difficulty"] == {"restart": figures([tally(outcomes[2].task, outcomes[2].verdicts[0])])}
    assert parts["difficulty"]["restart"]["false_alarms_per_1000_machine_hours"] == 250.0


def test_what_a_failed_task_took_is_no_cost_of_the_method() -> None:
    facts = task()
    outcomes = [
        Outcome(facts, "paper", (1.0,), ((),), 2.0, 30.0),
        Outcome(facts, "paper", (1.0,), ((),), 4.0, 10.0),
        Outcome.failed(facts, "paper", (1.0,), "RuntimeError: no", 99.0),
    ]
    assert cost(outcomes) == {"seconds": 6.0, "seconds_median": 3.0, "peak_mib": 30.0}
    assert cost(outcomes[2:]) == {"seconds": None, "seconds_median": None, "peak_mib": None}
