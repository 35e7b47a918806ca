"""The main job on simulated tasks: the faulty machine is found, and its healthy twin is quiet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from small_tasks import pieces_of
from trainminder.catalogue import load_catalogue
from trainminder.denoise import load_model
from trainminder.pipeline import METHODS
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.stream import TaskStream, run_pass
from trainminder.types import Denoiser, PassResult, RawMetric, RawTask

CATALOGUE = load_catalogue()
SEEDS = range(100, 112)
FAULTS = ["ecc_error", "pcie_downgrading", "thermal_throttling", "clock_drop", "cuda_execution_error", "nvlink_error"]


def denoiser_for(metric: str) -> Denoiser:
    return load_model(None, metric, 8)


def judged(raw: RawTask, method: str = "default") -> PassResult:
    return run_pass(raw, by(method), denoiser_for)


def by(method: str) -> DetectSettings:
    return DetectSettings.model_validate({"method": method})


def cluster(seed: int) -> ClusterSpec:
    return ClusterSpec(machines=(6, 10, 24)[seed % 3], devices_per_machine=4, seed=seed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_injected_fault_is_found_and_its_healthy_twin_is_quiet(seed: int, method: str) -> None:
    spec = cluster(seed)
    fault = Fault(seed % spec.machines, FAULTS[seed % len(FAULTS)], onset_seconds=300.0)
    faulty, (truth,) = simulate_task(spec, [fault], specs=CATALOGUE)
    healthy, _ = simulate_task(spec, specs=CATALOGUE)
    result = judged(faulty, method)
    assert result.status == "faulty", result.reason
    assert result.verdicts[0].machine == truth.machine
    assert result.verdicts[0].onset >= truth.start - 1
    assert result.verdicts[0].confirmed <= truth.start + 500
    twin = judged(healthy, method)
    assert (twin.status, twin.verdicts) == ("none", ())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("interval", [5.0, 15.0, 30.0])
def test_slower_exporters_still_show_the_machine(interval: float, method: str) -> None:
    spec = ClusterSpec(
        machines=12, devices_per_machine=4, seed=int(interval), interval_seconds=interval, duration_seconds=1800
    )
    faulty, (truth,) = simulate_task(spec, [Fault(4, "pcie_downgrading", onset_seconds=600.0)], specs=CATALOGUE)
    assert [verdict.machine for verdict in judged(faulty, method).verdicts] == [truth.machine]
    healthy, _ = simulate_task(spec, specs=CATALOGUE)
    assert judged(healthy, method).status == "none"


def silent(strength: float, seed: int = 3) -> RawTask:
    """Machine 5 of 8 ceases to report at 200 s; how much the task suffers is the strength."""
    spec = ClusterSpec(machines=8, devices_per_machine=2, seed=seed)
    fault = Fault(5, "machine_unreachable", onset_seconds=200.0, strength=strength)
    return simulate_task(spec, [fault], specs=CATALOGUE)[0]


def without_samples(metric: RawMetric, machine: str, start: float) -> RawMetric:
    """The same metric, with nothing of one machine from an instant on."""
    of = np.repeat(np.array(metric.machines) == machine, np.diff(metric.offsets))
    kept = ~(of & (metric.times >= start))
    offsets = np.concatenate(([0], np.cumsum(kept)))[metric.offsets].astype(np.int64)
    return replace(metric, offsets=offsets, times=metric.times[kept], values=metric.values[kept])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3, 7))
def test_a_machine_that_leaves_a_task_that_goes_on_is_unknown_and_never_healthy_or_faulty(
    seed: int, method: str
) -> None:
    whole, _ = simulate_task(ClusterSpec(machines=8, devices_per_machine=2, seed=seed), specs=CATALOGUE)
    left = tuple(without_samples(metric, "machine-0005", whole.from_at + 200.0) for metric in whole.metrics)
    result = judged(replace(whole, metrics=left), method)
    assert (result.status, result.verdicts) == ("unknown", ())
    assert "machine-0005 stopped reporting" in (result.reason or "")
    assert any("stopped reporting" in warning and "machine-0005" in warning for warning in result.warnings)


@pytest.mark.parametrize("seed", range(3, 7))
def test_a_machine_that_goes_silent_as_the_task_breaks_down_is_named_for_its_silence(seed: int) -> None:
    raw = silent(1.0, seed)
    result = judged(raw)
    (verdict,) = result.verdicts
    assert verdict.machine == "machine-0005"
    assert verdict.evidence[0].kind == "silence"
    assert "machine-0005 ceased to report while its peers went on" in verdict.evidence[0].text
    # A minute, and that often in which a first scrape may be missed.
    assert raw.from_at + 200 < verdict.confirmed <= raw.from_at + 200 + 90
    assert any("stopped reporting" in warning and "machine-0005" in warning for warning in result.warnings)


@pytest.mark.parametrize("metrics", [("pcie_bandwidth", "cpu_usage"), None])
@pytest.mark.parametrize("interval", [1.0, 15.0])
@pytest.mark.parametrize("latest", [0.0, 10.0])
@pytest.mark.parametrize("method", METHODS)
def test_whatever_is_judged_in_pieces_gives_what_the_whole_gives(
    method: str, latest: float, interval: float, metrics: tuple[str, ...] | None
) -> None:
    spec = ClusterSpec(
        8, devices_per_machine=2, seed=9, interval_seconds=interval, duration_seconds=1200, metrics=metrics
    )
    raw, _ = simulate_task(spec, [Fault(3, "pcie_downgrading", onset_seconds=400.0)], specs=CATALOGUE)
    whole = judged(raw, method)
    assert [verdict.machine for verdict in whole.verdicts] == ["machine-0003"]
    rng = np.random.default_rng(int(interval + latest))
    settings = by(method).model_copy(update={"lag_seconds": latest})
    for count in (1, 4, 40):
        stream = TaskStream(settings, denoiser_for)
        for piece in pieces_of(raw, rng.uniform(0.0, 1200.0, count).tolist(), latest=latest, seed=count):
            stream.take(piece)
        assert stream.result().as_json() == whole.as_json()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_whatever_task_give_what_the_whole_gives(seed: int, method: str) -> None:
    spec = ClusterSpec(
        (6, 10)[seed % 2],
        devices_per_machine=2,
        seed=40 + seed,
        interval_seconds=(1.0, 5.0)[seed // 2],
        missing_ratio=0.1 * (seed % 2),
        phase_ratio=1.0,
        gaps_per_hour=4.0,
        bursts_per_hour=6.0,
    )
    faults = [Fault(3, FAULTS[seed], onset_seconds=300.0)] if seed else [Fault(3, "machine_unreachable", 300.0)]
    raw, _ = simulate_task(spec, faults, specs=CATALOGUE)
    cuts = np.random.default_rng(seed).uniform(0.0, spec.duration_seconds, 12).tolist()
    stream = TaskStream(by(method).model_copy(update={"lag_seconds": 5.0}), denoiser_for)
    for piece in pieces_of(raw, cuts, latest=5.0, seed=seed):
        stream.take(piece)
    assert stream.result().as_json() == judged(raw, method).as_json()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", [*FAULTS[:3], "machine_unreachable"])
def test_names_of_machines_and_their_order_do_not_matter(fault: str, method: str) -> None:
    spec = ClusterSpec(9, devices_per_machine=2, seed=6)
    raw, _ = simulate_task(spec, [Fault(2, fault, onset_seconds=300.0)], specs=CATALOGUE)
    # The first becomes the last.
    other = {name: f"machine-{9 - number:04d}" for number, name in enumerate(raw.machines)}
    renamed = replace(
        raw,
        machines=tuple(sorted(other.values())),
        metrics=tuple(
            replace(metric, machines=tuple(other[machine] for machine in metric.machines)) for metric in raw.metrics
        ),
        groups={other[machine]: group for machine, group in raw.groups.items()},
    )
    mine, theirs = judged(raw, method), judged(renamed, method)
    assert (mine.status, mine.reason is None) == (theirs.status, theirs.reason is None)
    assert [(other[each.machine], each.device, each.metric, each.onset, each.confirmed) for each in mine.verdicts] == [
        (each.machine, each.device, each.metric, each.onset, each.confirmed) for each in theirs.verdicts
    ]
    assert [each.score for each in mine.verdicts] == pytest.approx([each.score for each in theirs.verdicts], rel=1e-3)


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_to_the_method_paper_a_machine_that_goes_silent_is_unknown_and_never_healthy_or_faulty(
    strength: float,
) -> None:
    raw = silent(strength)
    result = judged(raw, "paper")
    assert "machine-0005" not in [verdict.machine for verdict in result.verdicts]
    assert any("stopped reporting" in warning and "machine-0005" in warning for warning in result.warnings)
