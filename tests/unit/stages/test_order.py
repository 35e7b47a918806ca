"""The order in which metrics are asked: that of the environment whose metrics a task has."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.order import ordered, shipped_orders
from trainminder.prioritise import LabelledWindows, hold_out
from trainminder.settings import DetectSettings

ENVIRONMENTS = tuple(shipped_orders())


def test_there_is_an_order_for_every_environment_that_settings_offer() -> None:
    offered = get_args(DetectSettings.model_fields["metric_order"].annotation)
    assert set(offered) == {"auto", "catalogue", *ENVIRONMENTS}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_metric_of_an_order_is_one_of_the_catalogue_s_and_comes_once(environment: str) -> None:
    order = shipped_orders()[environment].metrics
    assert set(order) <= set(load_catalogue())
    assert len(order) == len(set(order))


BETTER = [name for name in ENVIRONMENTS if shipped_orders()[name].is_better]


@pytest.mark.parametrize("environment", BETTER)
def test_the_environment_is_told_by_the_metrics_even_if_one_is_missing(environment: str) -> None:
    order = shipped_orders()[environment].metrics
    in_catalogue = [name for name in load_catalogue() if name in order]
    assert ordered(in_catalogue, "auto") == order
    for missing in order:
        left = tuple(name for name in order if name != missing)
        assert ordered(reversed(left), "auto") == left


@pytest.mark.parametrize("environment", [name for name in ENVIRONMENTS if name not in BETTER])
def test_an_order_that_did_not_prove_better_is_taken_only_by_its_name(environment: str) -> None:
    order = shipped_orders()[environment].metrics
    in_catalogue = tuple(name for name in load_catalogue() if name in order)
    assert ordered(in_catalogue, "auto") == in_catalogue
    assert ordered(in_catalogue, environment) == order != in_catalogue


def test_metrics_that_an_order_does_not_know_come_last_as_given() -> None:
    order = shipped_orders()["plain"].metrics
    assert ordered(["step_ms", order[1], "wait_ms", order[0]], "plain") == (order[0], order[1], "step_ms", "wait_ms")


def test_the_order_of_the_catalogue_is_kept_where_it_is_asked_for() -> None:
    names = tuple(load_catalogue())
    assert ordered(names, "catalogue") == names
    assert ordered(names, "auto") != names


def test_held_out_windows_are_told_by_a_metric_that_tells_and_by_no_other() -> None:
    rng = np.random.default_rng(5)

    def windows(count: int) -> LabelledWindows:
        abnormal = rng.integers(0, 2, count)
        telling = np.where(abnormal == 1, rng.uniform(0.8, 1.0, count), rng.uniform(0.2, 0.6, count))
        return LabelledWindows(("noise", "telling"), np.column_stack([rng.random(count), telling]), abnormal)

    known, asked = [windows(400)], [windows(400)]
    assert hold_out(known, asked, ["telling"]) == 1.0
    assert hold_out(known, asked, ["noise"]) == pytest.approx(0.5, abs=0.1)
    assert hold_out(known, asked, ["noise", "telling"]) == 1.0
