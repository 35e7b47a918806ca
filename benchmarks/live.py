"""Fetch and judge a task from a real Prometheus, timed apart.

    python benchmarks/live.py [--machines 64] [--minutes 15]

Starts a Prometheus of its own on this host (Debian package prometheus), backfilled with a simulated task of 8
device-level metrics at one second, one device a machine, and ends it afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from trainminder.catalogue import load_catalogue
from trainminder.denoise import load_model
from trainminder.membership.promql import find_task
from trainminder.report import verdict_sentence
from trainminder.settings import Settings, load_settings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.prometheus import PrometheusSource, StoreClient
from trainminder.stream import run_pass

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from servers import Servers, prometheus_with, series_of

START = 1_764_580_000.0
NAMES = {
    "gpu_duty_cycle": "DCGM_FI_DEV_GPU_UTIL",
    "gpu_power_draw": "DCGM_FI_DEV_POWER_USAGE",
    "gpu_graphics_activity": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "gpu_tensor_activity": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "gpu_sm_activity": "DCGM_FI_PROF_SM_ACTIVE",
    "gpu_memory_bandwidth": "DCGM_FI_PROF_DRAM_ACTIVE",
    "gpu_sm_clock": "DCGM_FI_DEV_SM_CLOCK",
    "gpu_temperature": "DCGM_FI_DEV_GPU_TEMP",
}


def fetch_and_judge(settings: Settings, from_at: float, to_at: float) -> tuple[float, float, str, int]:
    """Seconds to fetch, seconds to judge, the verdict in words, and how many samples there were."""
    catalogue = load_catalogue()
    began = time.perf_counter()
    with StoreClient(settings.store) as client:
        task = find_task("llm-7", settings, client, catalogue, from_at, to_at)
        source = PrometheusSource(client, catalogue, settings.store, settings.membership, metrics=tuple(NAMES))
        raw = source.fetch_raw(task, from_at, to_at)
    fetched = time.perf_counter()
    result = run_pass(raw, settings.detect, lambda metric: load_model(None, metric, settings.detect.window_samples))
    judged = time.perf_counter()
    samples = sum(len(metric.times) for metric in raw.metrics)
    return fetched - began, judged - fetched, verdict_sentence(result), samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=15.0)
    asked = parser.parse_args()
    spec = ClusterSpec(
        asked.machines,
        devices_per_machine=1,
        seed=5,
        duration_seconds=asked.minutes * 60,
        start_at=START,
        task="llm-7",
        metrics=tuple(NAMES),
        phase_ratio=0.0,
        jitter_ratio=0.0,
    )
    raw, _ = simulate_task(spec, [Fault(asked.machines // 2, "thermal_throttling", 300.0)], specs=load_catalogue())
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder))
        try:
            url = prometheus_with(servers, series_of(raw, NAMES)).url
            settings = load_settings(environment={}, flags={"store.url": url})
            to_at = START + asked.minutes * 60 - 1
            for run in ("first run (compiles what is not cached yet)", "second run"):
                fetch, judge, sentence, samples = fetch_and_judge(settings, START, to_at)
                print(f"{run}: {asked.machines} machines x {len(NAMES)} metrics, {samples:,} samples")
                print(f"  fetched in {fetch:.2f} s, judged in {judge:.2f} s")
            print(sentence)
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
