"""The methods that the bench compares: each finds what it can find, from the data alone, and keeps to its threshold."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from trainminder.bench.methods import METHODS, augurs, standard_methods
from trainminder.bench.methods.integrated import IntegratedModel, centred_windows
from trainminder.bench.methods.joint import join
from trainminder.bench.methods.mahalanobis import statistics
from trainminder.bench.methods.prepared import prepare
from trainminder.bench.tasks import PLAIN
from trainminder.bench.types import LabelledTask, Method
from trainminder.catalogue import load_catalogue
from trainminder.denoise import load_model
from trainminder.errors import MissingExtra, MissingProgram
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.stream import run_pass
from trainminder.types import Denoiser, RawMetric, RawTask, Verdict

#: Twelve machines, a quarter of an hour every five seconds. The methods that learn from what they judge need the
#: time before the fault, the others that after it.
SPEC = ClusterSpec(
    machines=12, devices_per_machine=2, seed=3, interval_seconds=5.0, duration_seconds=900.0, metrics=PLAIN
)
GROSS = Fault(5, "cuda_execution_error", onset_seconds=500.0, strength=0.9)
#: Their scores depend on the threshold: a more sensitive detector may draw its band around others.
MAY_CHANGE_THEIR_MIND = {"mad", "dbscan"}


@cache
def simulated(*faults: Fault, spec: ClusterSpec = SPEC) -> LabelledTask:
    raw, truths = simulate_task(spec, faults, specs=load_catalogue())
    return LabelledTask("task", raw, truths)


@cache
def method_of(name: str) -> Method:
    return METHODS[name]()


def said(name: str, task: LabelledTask) -> list[tuple[Verdict, ...]]:
    """Its verdicts at each of its thresholds."""
    return method_of(name).judge(task, method_of(name).thresholds)


@dataclass(frozen=True)
class Brief:
    """What the bench reads of a verdict."""

    machine: str
    metric: str
    onset: float
    confirmed: float

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> list[Brief]:
        return [cls(each.machine, each.metric, each.onset, each.confirmed) for each in verdicts]


def denoiser_for(metric: str) -> Denoiser:
    return load_model(None, metric, 8)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_names_the_culprit_after_the_onset_and_nobody_without_the_fault(name: str) -> None:
    (truth,) = simulated(GROSS).truths
    both = zip(said(name, simulated(GROSS)), said(name, simulated()), strict=True)
    assert any(
        [verdict.machine for verdict in faulty] == [truth.machine]
        and truth.start <= faulty[0].onset <= faulty[0].confirmed <= simulated(GROSS).raw.to_at
        and not healthy
        for faulty, healthy in both
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_method_bears_the_name_it_is_found_by(name: str) -> None:
    assert method_of(name).name == name


def test_the_standard_comparison_has_every_method_once() -> None:
    assert len(set(standard_methods())) == len(standard_methods())
    others = set(METHODS) - set(standard_methods())
    assert "paper-more-metrics" in others
    for name in others:
        assert said(name, simulated(GROSS)) == said("paper", simulated(GROSS))


@pytest.mark.parametrize("name", METHODS)
def test_verdicts_do_not_depend_on_the_order_of_series(name: str) -> None:
    task = simulated(GROSS)
    turned = replace(task, raw=replace(task.raw, metrics=tuple(turned_round(each) for each in task.raw.metrics)))
    assert turned.raw.metrics[0].machines != task.raw.metrics[0].machines
    assert said(name, turned) == said(name, task)


def turned_round(metric: RawMetric) -> RawMetric:
    """The same series, last first."""
    order = range(len(metric.machines) - 1, -1, -1)
    pieces = [slice(metric.offsets[series], metric.offsets[series + 1]) for series in order]
    return replace(
        metric,
        machines=metric.machines[::-1],
        devices=metric.devices[::-1],
        offsets=np.concatenate(([0], np.cumsum(np.diff(metric.offsets)[::-1]))),
        times=np.concatenate([metric.times[piece] for piece in pieces]),
        values=np.concatenate([metric.values[piece] for piece in pieces]),
    )


@pytest.mark.parametrize("name", [name for name in METHODS if name not in MAY_CHANGE_THEIR_MIND])
@pytest.mark.parametrize("onset", [500.0, 250.0])
def test_a_stricter_threshold_never_confirms_earlier(name: str, onset: float) -> None:
    # Where samples are missing it may: a looser candidate may take over while the machine is not seen.
    whole = replace(SPEC, missing_ratio=0.0, gaps_per_hour=0.0, bursts_per_hour=4.0)
    verdicts = said(name, simulated(replace(GROSS, onset_seconds=onset, strength=0.3), spec=whole))
    confirmed = [min((each.confirmed for each in some), default=np.inf) for some in verdicts]
    assert confirmed == sorted(confirmed, reverse=True)


# ---------------------------------------------------------------- the product's own


def tasks_of_passes() -> Iterator[tuple[str, RawTask]]:
    yield "a gross fault", simulated(GROSS).raw
    yield "a healthy task", simulated().raw
    losing = replace(SPEC, seed=4, missing_ratio=0.1, gaps_per_hour=6.0, bursts_per_hour=6.0)
    yield "lost samples", simulated(replace(GROSS, fault_type="cpu_contention"), spec=losing).raw
    fast = replace(SPEC, machines=8, seed=5, interval_seconds=1.0, metrics=None)
    yield "every second", simulated(Fault(2, "thermal_throttling", 300.0, strength=0.4), spec=fast).raw
    raw = simulated(GROSS).raw
    groups = {machine: "one" if place < 2 else f"{place % 2}" for place, machine in enumerate(raw.machines)}
    yield "groups, one too small", replace(raw, groups=groups)


@pytest.mark.parametrize(("kind", "raw"), list(tasks_of_passes()), ids=[kind for kind, _ in tasks_of_passes()])
def test_paper_says_what_a_pass_says_with_that_setting(kind: str, raw: RawTask) -> None:
    probabilities = (1e-30, 1e-12, 1e-5, 1e-2, 1e-1)
    settings = [DetectSettings(method="paper", false_alarm_probability=each) for each in probabilities]
    passes = [run_pass(raw, each, denoiser_for).verdicts for each in settings]
    judged = method_of("paper").judge(LabelledTask(kind, raw, ()), probabilities)
    assert [Brief.of(each) for each in judged] == [Brief.of(each) for each in passes]
    assert any(passes) == (kind != "a healthy task")


@pytest.mark.parametrize(("kind", "raw"), list(tasks_of_passes()), ids=[kind for kind, _ in tasks_of_passes()])
def test_default_says_what_a_pass_says_with_that_setting(kind: str, raw: RawTask) -> None:
    allowed = (1e-4, 1e-2, 0.3)
    settings = [DetectSettings(false_alarms_per_machine_day=each) for each in allowed]
    passes = [run_pass(raw, each, denoiser_for).verdicts for each in settings]
    judged = method_of("default").judge(LabelledTask(kind, raw, ()), allowed)
    assert [Brief.of(each) for each in judged] == [Brief.of(each) for each in passes]
    assert any(passes) == (kind != "a healthy task")


# ---------------------------------------------------------------- the oracle


def culprits(task: LabelledTask) -> list[str]:
    return sorted(truth.machine for truth in task.truths)


def named(task: LabelledTask) -> list[str]:
    (verdicts,) = method_of("oracle").judge(task, (0.0,))
    return sorted(verdict.machine for verdict in verdicts)


def test_the_oracle_says_nothing_of_a_healthy_task() -> None:
    assert simulated().truths == ()
    assert named(simulated()) == []


@pytest.mark.parametrize(
    "second",
    [Fault(9, "cpu_contention", 510.0, strength=0.5), Fault(9, "cuda_execution_error", 520.0, strength=0.5)],
    ids=["of another type", "of the same type"],
)
def test_of_two_culprits_the_oracle_names_both(second: Fault) -> None:
    both = simulated(replace(GROSS, strength=0.5), second)
    assert len(set(culprits(both))) == 2
    assert named(both) == culprits(both)


@pytest.mark.parametrize("machine", [0, 2, 11])
def test_the_oracle_finds_the_culprit_in_the_data_whatever_the_truth_says(machine: int) -> None:
    task = simulated(replace(GROSS, machine=machine))
    (truth,) = task.truths
    assert truth.machine == task.raw.machines[machine]
    slandered = replace(task, truths=(replace(truth, machine=task.raw.machines[7]),))
    assert named(task) == named(slandered) == [truth.machine]


def test_the_oracle_is_told_when_it_broke() -> None:
    (truth,), (verdicts,) = simulated(GROSS).truths, said("oracle", simulated(GROSS))
    assert (verdicts[0].onset, verdicts[0].confirmed) == (truth.start, truth.end)


# ---------------------------------------------------------------- mahalanobis and the model of all metrics


def test_the_statistics_of_windows_are_those_of_the_textbook() -> None:
    windows = np.random.default_rng(0).gamma(2.0, 0.1, (5, 7, 8)).astype(np.float32)
    found = statistics(windows)
    exact = windows.astype(np.float64)
    textbook = (exact.mean(axis=2), exact.var(axis=2), stats.skew(exact, axis=2), stats.kurtosis(exact, axis=2))
    np.testing.assert_allclose(found, np.stack(textbook, axis=2), rtol=1e-4, atol=1e-6)


def test_a_flat_window_has_neither_skewness_nor_kurtosis() -> None:
    # one of them but for rounding
    windows = np.full((1, 2, 8), 0.3, dtype=np.float32)
    windows[0, 1, 3] = np.nextafter(np.float32(0.3), np.float32(1.0))
    found = statistics(windows)
    np.testing.assert_allclose(found[0, :, 0], 0.3, rtol=1e-6)
    np.testing.assert_allclose(found[0, :, 1], 0.0, atol=1e-12)
    assert (found[0, :, 2:] == 0.0).all()


@pytest.fixture(scope="module")
def build_integrated() -> ModuleType:
    """The tool that trains the model of all metrics: its network is what inference must equal."""
    path = Path(__file__).parents[3] / "tools" / "build_integrated.py"
    spec = spec_from_file_location("build_integrated", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_inference_of_the_model_of_all_metrics_is_that_of_the_network_it_was_trained_as(
    build_integrated: ModuleType,
) -> None:
    import torch

    joint = join(prepare(simulated(GROSS).raw))
    assert joint is not None
    # in another order than the task has them, and with one that the task lacks
    channels = ("absent/machine", *(channel.name for channel in reversed(joint.channels)))
    torch.manual_seed(0)
    network = build_integrated.Autoencoder(len(channels))
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(2.0)
    model = IntegratedModel(channels, build_integrated.weights_of(network))
    deviations, means = centred_windows(joint, channels, slice(None))
    samples, machines, windows, _ = deviations.shape
    with torch.no_grad():
        given = torch.from_numpy(deviations.reshape(samples, machines * windows, -1)).transpose(0, 1)
        rendered = network(given, None)[0].numpy().reshape(machines, windows, samples, -1)
    assert rendered.std() > 0.05
    for number, found in enumerate(model.render(joint)):
        place = channels.index(joint.channels[number].name)
        np.testing.assert_allclose(found, rendered[..., place] + means[..., place, None], atol=1e-5)


# ---------------------------------------------------------------- what is not installed


@pytest.mark.parametrize("name", ["mad", "dbscan"])
def test_without_node_it_is_said_what_to_install(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match=rf"method {name} needs node: install Node.js 18 or newer \(Debian: "):
        METHODS[name]()


@pytest.mark.parametrize("name", ["mad", "dbscan"])
def test_without_the_npm_package_it_is_said_how_to_install_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(MissingProgram) as raised:
        METHODS[name]()
    command = f"npm install --no-save --prefix {tmp_path} {augurs.PACKAGE}@{augurs.VERSION}"
    assert str(raised.value) == f"method {name} needs the npm package {augurs.PACKAGE}: {command}"


@pytest.mark.parametrize("name", ["knn", "iforest"])
def test_without_pyod_it_is_said_which_extra_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # as if it were not installed
    monkeypatch.setitem(sys.modules, "pyod", None)
    with pytest.raises(MissingExtra, match=rf'method {name} needs the extra "bench": pip install'):
        METHODS[name]()
