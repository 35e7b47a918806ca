"""The methods that are compared: each finds what is gross, none sees the answer, shortcuts change nothing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from trainminder.bench.methods import METHODS, standard_methods
from trainminder.bench.methods.deciding import confirmed_at, fixed_limits
from trainminder.bench.methods.integrated import IntegratedModel
from trainminder.bench.methods.mahalanobis import statistics
from trainminder.bench.methods.paper import PaperMethod
from trainminder.bench.types import LabelledTask, Method
from trainminder.catalogue import load_catalogue
from trainminder.decide import Confirmed, follow
from trainminder.denoise import load_model
from trainminder.errors import MissingExtra, MissingProgram
from trainminder.pipeline import run_pass
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.types import FloatArray, RawMetric, RawTask, Verdict, WindowScores

ONSET = 420.0


@cache
def simulated(*culprits: int, fault: str = "nic_dropout", seed: int = 7) -> LabelledTask:
    """Eight machines for twenty minutes; each of the culprits breaks 30 s after the one before."""
    spec = ClusterSpec(machines=8, seed=seed, interval_seconds=5.0, duration_seconds=1200.0)
    faults = [
        Fault(machine=machine, fault_type=fault, onset_seconds=ONSET + 30.0 * place, strength=0.8)
        for place, machine in enumerate(culprits)
    ]
    raw, truths = simulate_task(spec, faults, specs=load_catalogue())
    return LabelledTask("a task", raw, truths)


@cache
def built(name: str) -> Method:
    return METHODS[name]()


def shuffled(raw: RawTask) -> RawTask:
    """The same task with the machines' series in another order; a machine's devices remain in theirs."""
    place = dict(zip(raw.machines, np.random.default_rng(3).permutation(len(raw.machines)).tolist(), strict=True))

    def turned(metric: RawMetric) -> RawMetric:
        order = sorted(range(len(metric.machines)), key=lambda row: place[metric.machines[row]])
        spans = [slice(metric.offsets[row], metric.offsets[row + 1]) for row in order]
        return replace(
            metric,
            machines=tuple(metric.machines[row] for row in order),
            devices=tuple(metric.devices[row] for row in order),
            offsets=np.concatenate(([0], np.cumsum([span.stop - span.start for span in spans]))),
            times=np.concatenate([metric.times[span] for span in spans]),
            values=np.concatenate([metric.values[span] for span in spans]),
        )

    return replace(raw, metrics=tuple(turned(metric) for metric in raw.metrics))


def right(task: LabelledTask, verdicts: tuple[Verdict, ...]) -> bool:
    (truth,) = task.truths
    return [verdict.machine for verdict in verdicts] == [truth.machine] and verdicts[0].confirmed > truth.start


@pytest.mark.parametrize("name", standard_methods())
def test_every_method_tells_a_gross_fault_from_none_at_one_of_its_thresholds(name: str) -> None:
    method, faulty, healthy = built(name), simulated(3), simulated()
    found = method.judge(faulty, method.thresholds)
    blamed = method.judge(healthy, method.thresholds)
    assert any(right(faulty, said) and not unsaid for said, unsaid in zip(found, blamed, strict=True)), (
        f"{[len(said) for said in found]} {[len(said) for said in blamed]}"
    )


def test_without_continuity_one_window_is_enough() -> None:
    sudden, patient = built("paper-no-continuity"), built("paper")
    (at_once,), (later,) = (method.judge(simulated(3), [1e-8])[0] for method in (sudden, patient))
    assert at_once.confirmed - at_once.onset < 20.0
    assert later.confirmed - later.onset >= 240.0


@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.parametrize("fault", ["nic_dropout", "clock_drop"])
def test_the_method_paper_says_what_a_pass_of_the_product_says(fault: str, seed: int) -> None:
    task, thresholds = simulated(5, fault=fault, seed=seed), (1e-12, 1e-4, 1e-2)
    for threshold, said in zip(thresholds, PaperMethod("paper").judge(task, thresholds), strict=True):
        settings = DetectSettings(method="paper", false_alarm_probability=threshold)
        result, _ = run_pass(task.raw, settings, lambda metric: load_model(None, metric, 8))
        assert [(v.machine, v.metric, v.onset, v.confirmed) for v in said] == [
            (v.machine, v.metric, v.onset, v.confirmed) for v in result.verdicts
        ]


@pytest.mark.parametrize("name", ["paper", "paper-con", "mahalanobis", "knn"])
def test_a_stricter_threshold_never_confirms_the_same_machine_earlier(name: str) -> None:
    method = built(name)
    confirmed = [
        {verdict.machine: verdict.confirmed for verdict in said}
        for said in method.judge(simulated(3), method.thresholds)
    ]
    for stricter, looser in pairwise(confirmed):
        assert all(looser.get(machine, at) <= at for machine, at in stricter.items())
    assert any(confirmed)


def random_scores(seed: int) -> WindowScores:
    """Three groups; ties, gaps, a machine that is never seen, and stretches in which one leads."""
    rng = np.random.default_rng(seed)
    score = np.round(rng.gamma(2.0, 1.0, (12, 200)), 1)
    for start in range(0, 200, 40):
        score[rng.integers(12), start : start + rng.integers(10, 40)] += 6.0
    score[rng.random(score.shape) < 0.1] = np.nan
    score[4] = np.nan
    names = tuple(f"m{number:02d}" for number in range(12))
    ends_at = np.arange(200.0)
    return WindowScores("power", "machine", names, ends_at, 1.0, score, score, score, np.repeat([0, 1, 2], [6, 4, 2]))


def followed(scores: WindowScores, group: int, threshold: FloatArray, lasting: float) -> Confirmed | None:
    """What the product's own continuity check says, on all machines."""
    wide = np.broadcast_to(threshold, scores.normal_score.shape)
    return follow(replace(scores, threshold=wide), group, None, continuity_seconds=lasting, patience_seconds=8.0)[1]


@pytest.mark.parametrize("seed", range(8))
def test_following_only_those_who_ever_lead_confirms_what_following_everyone_does(seed: int) -> None:
    scores, limits, lasting = random_scores(seed), fixed_limits((7.0, 5.0, 3.0, 1.0)), 12.0
    expected: list[tuple[int, str, float, float]] = []
    for group in range(3):
        judged = ~np.isnan(scores.normal_score[scores.group_of == group])
        for place, limit in enumerate(limits(judged.sum(axis=0))):
            found = followed(scores, group, np.where(np.isnan(limit), np.inf, limit), lasting)
            expected += [] if found is None else [(place, found.machine, found.onset, found.confirmed)]
    assert expected
    shortcut = confirmed_at(scores, limits, lasting)
    assert [(place, found.machine, found.onset, found.confirmed) for place, found in shortcut] == expected


def test_the_statistics_of_windows_are_the_textbook_s() -> None:
    windows = np.random.default_rng(1).gamma(2.0, 1.0, (4, 5, 8)).astype(np.float32)
    found = statistics(windows)
    expected = [windows.mean(axis=2), windows.var(axis=2), stats.skew(windows, axis=2), stats.kurtosis(windows, axis=2)]
    np.testing.assert_allclose(found, np.stack(expected, axis=2), rtol=1e-3, atol=1e-4)
    assert statistics(np.full((1, 1, 8), 0.3, np.float32))[0, 0, 1:].tolist() == [0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def training() -> Iterator[object]:
    path = Path(__file__).parents[3] / "tools" / "build_integrated.py"
    spec = importlib.util.spec_from_file_location("build_integrated", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_integrated"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["build_integrated"]


def test_the_model_of_all_metrics_renders_without_torch_what_it_does_with_it(training: object) -> None:
    torch.manual_seed(2)
    network = training.Autoencoder(5)  # type: ignore[attr-defined]
    windows = torch.randn(40, 8, 5) * 0.1
    with torch.no_grad():
        expected = network(windows, None)[0].numpy()
    model = IntegratedModel(tuple("abcde"), training.weights_of(network))  # type: ignore[attr-defined]
    rendered = model.render_deviations(np.ascontiguousarray(windows.numpy().transpose(1, 0, 2)))
    np.testing.assert_allclose(rendered.transpose(1, 0, 2), expected, atol=1e-5)


@pytest.mark.parametrize("culprits", [(), (2,), (6,), (1, 4)])
def test_the_oracle_names_every_culprit_and_nobody_in_a_healthy_task(culprits: tuple[int, ...]) -> None:
    oracle, task = built("oracle"), simulated(*culprits)
    (said,) = oracle.judge(task, oracle.thresholds)
    assert {verdict.machine for verdict in said} == {truth.machine for truth in task.truths}


def test_the_oracle_is_not_told_the_machine() -> None:
    oracle, task = built("oracle"), simulated(2)
    told_wrong = replace(task, truths=tuple(replace(truth, machine="machine-0007") for truth in task.truths))
    assert oracle.judge(told_wrong, [0.0]) == oracle.judge(task, [0.0])


@pytest.mark.parametrize("name", ["paper", "paper-int", "mahalanobis", "mad", "dbscan", "knn", "iforest"])
def test_the_order_in_which_machines_come_changes_nothing(name: str) -> None:
    method, task = built(name), simulated(3)
    turned = replace(task, raw=shuffled(task.raw))

    def named(judged: LabelledTask) -> list[list[tuple[str, float]]]:
        return [[(v.machine, v.confirmed) for v in said] for said in method.judge(judged, method.thresholds)]

    assert named(turned) == named(task)


@pytest.mark.parametrize("name", ["mad", "dbscan"])
def test_a_missing_program_or_package_is_named_with_what_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingProgram, match=r"install Node\.js"):
            METHODS[name]()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(MissingProgram, match=r"npm install .*@bsull/augurs@"):
        METHODS[name]()


@pytest.mark.parametrize("name", ["knn", "iforest"])
def test_a_missing_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyod", None)
    with pytest.raises(MissingExtra, match=r'pip install "trainminder\[bench\]"'):
        METHODS[name]()
