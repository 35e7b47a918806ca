"""How exporters see the cluster: the instants of their samples, and which of them are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.simulate.cluster import ClusterSpec, generator, swapped_machines
from trainminder.simulate.faults import ActiveFault
from trainminder.types import BoolArray, FloatArray, Level, RawMetric

__all__ = ["Sampling", "draw_sampling", "sample_metric"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """The scrapes of one exporter (one per level) on every machine.

    ``seconds``: (machine, sample) from the start of the data, increasing; ``kept``: likewise, False where
    the whole scrape is lost.
    """

    level: Level
    seconds: FloatArray
    kept: BoolArray


def draw_sampling(spec: ClusterSpec, level: Level) -> Sampling:
    """Draw each machine's phase, the lateness of each sample, lost scrapes and longer gaps."""
    rng = generator(spec.seed, f"sampling {level}")
    shape = (spec.machines, spec.samples)
    phase = spec.phase_ratio * rng.random((spec.machines, 1))
    late = rng.standard_exponential(shape, dtype=np.float32) * spec.jitter_ratio
    # within its own interval, so that the instants increase
    slots = np.arange(spec.samples) + np.minimum(phase + late, 0.999)
    kept = rng.random(shape, dtype=np.float32) >= spec.missing_ratio / 2
    count = rng.poisson(spec.gaps_per_hour * spec.machines * spec.duration_seconds / 3600)
    seconds: FloatArray = slots.astype(np.float64) * spec.interval_seconds
    for machine, start, length in zip(
        rng.integers(spec.machines, size=count),
        rng.uniform(0, spec.duration_seconds, count),
        rng.uniform(5, 40, count),
        strict=True,
    ):
        kept[machine] &= (seconds[machine] < start) | (seconds[machine] >= start + length)
    if swapped := swapped_machines(spec):
        gone, new = swapped
        at = spec.conditions.swap_at_seconds or 0.0
        kept[gone] &= seconds[gone] < at
        kept[new] &= seconds[new] >= at + 20.0
    return Sampling(level, seconds, kept)


def sample_metric(
    spec: ClusterSpec,
    sampling: Sampling,
    name: str,
    values: FloatArray,
    faults: Sequence[ActiveFault],
) -> RawMetric:
    """Cut a metric down to the samples that arrive.

    Args:
        values: (machine, device, sample); one device for machine-level metrics.
    """
    rng = generator(spec.seed, f"missing {name}")
    kept = rng.random(values.shape, dtype=np.float32) >= spec.missing_ratio / 2
    kept &= sampling.kept[:, None, :]
    for fault in faults:
        if fault.model.silences is None or (fault.model.silences == "device" and sampling.level == "machine"):
            continue
        device = slice(None) if fault.model.silences == "machine" else fault.device
        for machine in fault.machines:
            kept[machine, device] &= ~fault.is_on(sampling.seconds[machine])
    conditions = spec.conditions
    # what a fault shows in is there, so that it can be found
    if conditions.absent_ratio and not any(effect.metric == name for fault in faults for effect in fault.effects):
        kept[generator(spec.seed, f"absent {name}").random(spec.machines) < conditions.absent_ratio] = False
    skew = conditions.clock_skew_seconds * generator(spec.seed, "clocks").standard_normal(spec.machines)

    counts = kept.sum(axis=2)
    # an exporter has no series without a sample
    series = [(int(machine), int(device)) for machine, device in np.argwhere(counts > 0)]
    return RawMetric(
        metric=name,
        machines=tuple(spec.machine_name(machine) for machine, _ in series),
        devices=tuple(f"gpu{device}" if sampling.level == "device" else None for _, device in series),
        offsets=np.concatenate(([0], np.cumsum(counts[counts > 0]))).astype(np.int64),
        times=spec.start_at + np.broadcast_to((sampling.seconds + skew[:, None])[:, None, :], values.shape)[kept],
        values=values[kept],
        interval_seconds=spec.interval_seconds,
    )
