from __future__ import annotations

import numpy as np
import pytest

from small_tasks import NOW, series_of, task_of, wavy_machines
from trainminder.errors import SettingsError
from trainminder.prioritise import LabelledWindows, label_windows, learn_priority
from trainminder.types import MetricSpec, RawTask, Truth

SPECS = tuple(MetricSpec(name, "", lower=0.0) for name in ("disk", "pfc", "cpu"))


def labelled(seed: int) -> tuple[RawTask, tuple[Truth, ...]]:
    """Eight machines, 640 s; machine 2 is faulty from 320 s: pfc shows it, cpu in some tasks, disk never."""
    tables = {
        name: wavy_machines(8, 640, seed=10 * seed + number) for number, name in enumerate(("disk", "pfc", "cpu"))
    }
    tables["pfc"]["gpu-02"][320:] *= 3.0
    if seed % 2:
        tables["cpu"]["gpu-02"][320:] *= 2.0
    raw = task_of(*(series_of(name, table) for name, table in tables.items()), specs=SPECS)
    return raw, (Truth("gpu-02", None, "pcie_downgrading", NOW + 320, NOW + 640),)


def windows_of(seed: int) -> LabelledWindows:
    raw, truths = labelled(seed)
    return label_windows(raw, truths, ("disk", "pfc", "cpu"), 8)


def test_the_largest_z_score_over_machines_is_kept_as_a_share_of_the_largest_possible() -> None:
    level = {f"m{number}": np.full(16, 10.0) for number in range(4)}
    level["m3"] = np.full(16, 14.0)
    spec = MetricSpec("power", "")
    windows = label_windows(task_of(series_of("power", level), specs=(spec,)), (), ("power",), 8)
    # 10, 10, 10, 14: mean 11, deviation 2, z of the last (14 - 11) / 2 = 1.5 = (4 - 1) / sqrt(4), the most possible
    assert windows.maxima.tolist() == [[pytest.approx(1.0)]]
    assert windows.abnormal.tolist() == [0]


def test_windows_are_labelled_by_the_faults_and_those_half_covered_are_left_out() -> None:
    raw, _ = labelled(0)
    windows = label_windows(raw, (Truth("gpu-02", None, "x", NOW + 100, NOW + 200),), ("pfc",), 8)
    # windows of 8 s: 79 whole ones in 639 s; the fault covers 104 to 200 whole, and part of the one before
    assert windows.abnormal.sum() == 12
    assert len(windows.abnormal) == 79 - 1


def test_a_metric_the_task_lacks_is_unknown_and_not_zero() -> None:
    raw, truths = labelled(0)
    windows = label_windows(raw, truths, ("pfc", "absent"), 8)
    assert np.isnan(windows.maxima[:, 1]).all()


def test_the_metric_that_shows_the_fault_is_asked_first_and_the_tree_says_why() -> None:
    priority = learn_priority([windows_of(seed) for seed in range(4)])
    assert priority.metrics[0] == "pfc"
    assert priority.depths["pfc"] == 0
    assert priority.tree.splitlines()[0].startswith("|--- pfc <=")
    assert set(priority.metrics) == {"disk", "pfc", "cpu"}
    assert 0 < priority.abnormal < priority.windows


def test_the_same_windows_give_the_same_order() -> None:
    windows = [windows_of(seed) for seed in range(3)]
    assert learn_priority(windows) == learn_priority(windows)


def test_without_faults_there_is_nothing_to_learn() -> None:
    raw, _ = labelled(0)
    with pytest.raises(SettingsError, match="0 abnormal windows, and at least 20 are needed"):
        learn_priority([label_windows(raw, (), ("disk", "pfc", "cpu"), 8)])
