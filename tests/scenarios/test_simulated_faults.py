"""The main job on simulated tasks: the faulty machine is found, and its healthy twin is quiet."""

from __future__ import annotations

import pytest

from trainminder.catalogue import load_catalogue
from trainminder.denoise import load_model
from trainminder.pipeline import run_pass
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.types import Denoiser, PassResult, RawTask

CATALOGUE = load_catalogue()
SEEDS = range(100, 112)
FAULTS = ["ecc_error", "pcie_downgrading", "thermal_throttling", "clock_drop", "cuda_execution_error", "nvlink_error"]


def denoiser_for(metric: str) -> Denoiser:
    return load_model(None, metric, 8)


def judged(raw: RawTask) -> PassResult:
    return run_pass(raw, DetectSettings(), denoiser_for)[0]


def cluster(seed: int) -> ClusterSpec:
    return ClusterSpec(machines=(6, 10, 24)[seed % 3], devices_per_machine=4, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_injected_fault_is_found_and_its_healthy_twin_is_quiet(seed: int) -> None:
    spec = cluster(seed)
    fault = Fault(seed % spec.machines, FAULTS[seed % len(FAULTS)], onset_seconds=300.0)
    faulty, (truth,) = simulate_task(spec, [fault], specs=CATALOGUE)
    healthy, _ = simulate_task(spec, specs=CATALOGUE)
    result = judged(faulty)
    assert result.status == "faulty", result.reason
    assert result.verdicts[0].machine == truth.machine
    assert result.verdicts[0].onset >= truth.start - 1
    assert result.verdicts[0].confirmed <= truth.start + 500
    twin = judged(healthy)
    assert (twin.status, twin.verdicts) == ("none", ())


@pytest.mark.parametrize("interval", [5.0, 15.0, 30.0])
def test_slower_exporters_still_show_the_machine(interval: float) -> None:
    spec = ClusterSpec(
        machines=12, devices_per_machine=4, seed=int(interval), interval_seconds=interval, duration_seconds=1800
    )
    faulty, (truth,) = simulate_task(spec, [Fault(4, "pcie_downgrading", onset_seconds=600.0)], specs=CATALOGUE)
    assert [verdict.machine for verdict in judged(faulty).verdicts] == [truth.machine]
    healthy, _ = simulate_task(spec, specs=CATALOGUE)
    assert judged(healthy).status == "none"


def test_a_machine_that_goes_silent_while_all_suffer_is_named_for_its_silence() -> None:
    spec = ClusterSpec(machines=8, devices_per_machine=2, seed=3)
    raw, (truth,) = simulate_task(
        spec, [Fault(5, "machine_unreachable", onset_seconds=200.0, strength=0.3)], specs=CATALOGUE
    )
    result = judged(raw)
    assert [verdict.machine for verdict in result.verdicts] == [truth.machine]
    assert result.verdicts[0].evidence[0].kind == "silence"
    assert any("stopped reporting" in warning and truth.machine in warning for warning in result.warnings)
