"""The canonical metrics as they follow from what the machines are doing.

A metric is its level in each state of the timeline, weighted by the share of the sampling window spent
there, times the machine's permanent offset, changed by the faults, plus noise and bursts. Levels are those
of eight large training accelerators per machine, with one network port each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainminder.simulate.cluster import Cluster, ClusterSpec, generator
from trainminder.simulate.faults import ActiveFault, Effect
from trainminder.simulate.sampling import Sampling
from trainminder.simulate.timeline import Timeline
from trainminder.types import FloatArray, Level

__all__ = ["METRIC_MODELS", "MetricModel", "Renderer"]


@dataclass(frozen=True, slots=True)
class MetricModel:
    """How one metric behaves; amounts in the catalogue's unit, ratios of the metric's own value.

    ``levels``: one per state, in the order of ``timeline.STATES``. ``task_range``: the range of the factor
    by which one training task's level differs from another's. ``offset_ratio``: permanent spread between
    machines (and, at a third of it, devices). ``noise_ratio``, ``noise``: spread of each sample.
    ``wander_ratio``: slow noise of a machine. ``burst``: typical height of a burst.
    ``resolution``: step of the exporter's values. ``is_rate``: taken over the whole interval, as rates and the
    device's profiling fields are, where other gauges average over one second at most.
    """

    level: Level
    levels: tuple[float, ...]
    burst: float
    upper: float | None = None
    offset_ratio: float = 0.004
    noise_ratio: float = 0.01
    noise: float = 0.0
    wander_ratio: float = 0.0
    task_range: tuple[float, float] = (0.85, 1.1)
    resolution: float | None = None
    is_rate: bool = False
    role_ratio: float = 0.1
    """How far the level differs between pipeline stages where they are fully uneven."""
    cron: float = 0.0
    """What a scheduled job adds."""
    rank0: float = 0.0
    """What the duties of rank 0 add on the first machine."""


_AMBIENT_CELSIUS, _CELSIUS_PER_WATT, _HEATING_SECONDS = 30.0, 0.055, 40.0
_WANDER_SECONDS = 20.0

# states: compute, communicate, optimise, save, evaluate, load, busy, idle, wait, down
METRIC_MODELS: Mapping[str, MetricModel] = {
    "pfc_tx_packet_rate": MetricModel(
        "machine", (4, 14, 3, 1, 2, 1, 1, 0.5, 3, 0.3),
        role_ratio=0.5, burst=350, offset_ratio=0.2, noise_ratio=0.2, noise=1.5, task_range=(0.5, 2), is_rate=True,
    ),
    "cpu_usage": MetricModel(
        "machine", (24, 18, 22, 34, 22, 38, 23, 9, 17, 2.5),
        cron=18, role_ratio=0.3, burst=22, upper=100, rank0=0.6, is_rate=True,
        offset_ratio=0.02, noise_ratio=0.025, wander_ratio=0.025, task_range=(0.6, 1.6),
    ),
    "gpu_duty_cycle": MetricModel(
        "device", (99.7, 99.6, 99.3, 22, 99, 4, 99.7, 3, 99.7, 0),
        role_ratio=0, burst=-25, upper=100, offset_ratio=0.0005, noise_ratio=0.002, task_range=(1, 1), resolution=1,
    ),
    "gpu_power_draw": MetricModel(
        "device", (610, 390, 450, 150, 520, 120, 560, 85, 280, 75),
        burst=-90, offset_ratio=0.012, noise_ratio=0.01, resolution=0.001,
    ),
    "gpu_graphics_activity": MetricModel(
        "device", (0.97, 0.95, 0.93, 0.12, 0.95, 0.02, 0.97, 0.02, 0.96, 0),
        role_ratio=0.02, burst=-0.2, upper=1, offset_ratio=0.002, noise_ratio=0.004, task_range=(0.97, 1), is_rate=True,
    ),
    "gpu_tensor_activity": MetricModel(
        "device", (0.46, 0.08, 0.05, 0, 0.42, 0, 0, 0, 0, 0),
        burst=-0.12, upper=1, noise_ratio=0.012, is_rate=True,
    ),
    "nvlink_bandwidth": MetricModel(
        "device", (1.1e11, 2.6e11, 5e10, 1e9, 1e11, 1e8, 1e9, 0, 2e9, 0),
        role_ratio=0.2, burst=-3e10, noise_ratio=0.015, task_range=(0.6, 1.2), is_rate=True,
    ),
    "gpu_sm_activity": MetricModel(
        "device", (0.88, 0.4, 0.75, 0.05, 0.8, 0.01, 0.86, 0.01, 0.24, 0),
        burst=-0.18, upper=1, is_rate=True,
    ),
    "gpu_fp_activity": MetricModel(
        "device", (0.13, 0.03, 0.22, 0, 0.11, 0, 0, 0, 0, 0),
        burst=-0.04, upper=1, noise_ratio=0.015, is_rate=True,
    ),
    "gpu_memory_bandwidth": MetricModel(
        "device", (0.42, 0.3, 0.65, 0.05, 0.4, 0.04, 0.05, 0, 0.08, 0),
        burst=-0.12, upper=1, noise_ratio=0.012, is_rate=True,
    ),
    "gpu_sm_clock": MetricModel(
        "device", (1745, 1860, 1830, 1965, 1770, 1980, 1745, 1980, 1935, 345),
        role_ratio=0.02, burst=-150, offset_ratio=0.003, noise_ratio=0.003, task_range=(0.97, 1.02), resolution=15,
    ),
    "gpu_temperature": MetricModel(
        "device", (0,) * 10,
        role_ratio=0, burst=4, upper=120, noise_ratio=0, noise=0.3, task_range=(1, 1), resolution=1,
    ),
    "gpu_memory_used": MetricModel(
        "device", (68500,) * 5 + (30000,) + (68500,) * 3 + (600,),
        role_ratio=0.25, burst=400, offset_ratio=0.0015, noise_ratio=0.0003, task_range=(0.6, 1.1), resolution=1,
    ),
    "pcie_bandwidth": MetricModel(
        "device", (4e9, 3.2e10, 3e9, 8e9, 3e9, 1.2e10, 1e9, 2e8, 8e8, 1e7),
        role_ratio=0.4, burst=4e9, offset_ratio=0.01, noise_ratio=0.02, task_range=(0.7, 1.2), is_rate=True,
    ),
    "rdma_throughput": MetricModel(
        "machine", (2e10, 2.4e11, 1e9, 5e8, 1e10, 2e9, 1e8, 1e8, 2e8, 1e6),
        role_ratio=0.5, burst=-3e10, noise_ratio=0.015, task_range=(0.6, 1.2), is_rate=True,
    ),
    "cnp_packet_rate": MetricModel(
        "machine", (40, 260, 20, 5, 30, 5, 10, 2, 20, 0.5),
        burst=250, offset_ratio=0.08, noise_ratio=0.1, noise=5, task_range=(0.5, 2), is_rate=True,
    ),
    "memory_usage": MetricModel(
        "machine", (46, 46, 46, 48.5, 46, 30, 46, 46, 46, 9),
        cron=5, role_ratio=0.15, burst=4, upper=100, offset_ratio=0.01, noise_ratio=0.001, wander_ratio=0.003,
        task_range=(0.7, 1.35), rank0=0.4,
    ),
    "tcp_throughput": MetricModel(
        "machine", (1.6e8, 9e7, 1.1e8, 2.8e9, 1.2e8, 3.5e9, 8e7, 2e7, 6e7, 3e6),
        cron=7e8, role_ratio=0.6, burst=4e8, rank0=5e6, is_rate=True,
        offset_ratio=0.04, noise_ratio=0.06, wander_ratio=0.06, task_range=(0.5, 1.6),
    ),
    "disk_io": MetricModel(
        "machine", (0.05, 0.04, 0.04, 0.82, 0.05, 0.35, 0.04, 0.02, 0.03, 0.01),
        cron=0.4, burst=0.3, upper=1, offset_ratio=0.04, noise_ratio=0.05, noise=0.004, wander_ratio=0.04, is_rate=True,
    ),
    "disk_usage": MetricModel(
        "machine", (37,) * 10,
        role_ratio=0, burst=1, upper=100, offset_ratio=0.025, noise_ratio=0.0002, task_range=(0.5, 1.8),
    ),
}  # fmt: skip


@dataclass(slots=True)
class Renderer:
    """Renders metrics of one simulated task; shares of the same window are computed once."""

    spec: ClusterSpec
    cluster: Cluster
    timeline: Timeline
    faults: Sequence[ActiveFault]
    samplings: dict[Level, Sampling]
    _shares: dict[tuple[Level, float], FloatArray] = field(default_factory=dict)

    def render(self, name: str) -> FloatArray:
        """Every sample of a metric before any is lost: (machine, device, sample), in the catalogue's unit.

        Machine-level metrics have one device.
        """
        model = METRIC_MODELS[name]
        values = self._heat() if name == "gpu_temperature" else self._clean(name)
        self._apply_effects(name, values)
        rng = generator(self.spec.seed, f"noise {name}")
        if model.wander_ratio:
            white = rng.standard_normal(values.shape)
            alpha = 1 - np.exp(-self.spec.interval_seconds / _WANDER_SECONDS)
            calm = np.sqrt(alpha / (2 - alpha))  # how much the lag stills white noise
            values *= 1 + model.wander_ratio * _smooth(white, alpha, calm * white[..., 0]) / calm
        if model.noise_ratio:
            values *= 1 + model.noise_ratio * rng.standard_normal(values.shape, dtype=np.float32)
        if model.noise:
            values += model.noise * rng.standard_normal(values.shape, dtype=np.float32)
        self._add_bursts(name, values)
        if model.cron and self.spec.conditions.cron_per_hour:
            self._add_cron(name, values)
        np.clip(values, 0, model.upper, out=values)
        shows = any(effect.metric == name for fault in self.faults for effect in fault.effects)
        if name in self.spec.conditions.constant_metrics and not shows:
            values[:] = np.median(values)
        if model.resolution:
            np.round(values / model.resolution, out=values)
            values *= model.resolution
        return values

    def _clean(self, name: str) -> FloatArray:
        """The metric as it follows from the timeline and the permanent offsets."""
        model = METRIC_MODELS[name]
        levels, offsets = self._levels(name)
        window = self.spec.interval_seconds if model.is_rate else min(self.spec.interval_seconds, 1.0)
        seconds = self.samplings[model.level].seconds
        shares = self._shares_of(model.level, window)
        values: FloatArray = np.tensordot(levels, shares, axes=1)[:, None, :] * offsets[:, :, None]
        for fault in self.faults:
            if fault.device is not None and model.level == "machine":
                continue
            rows = slice(None) if fault.device is None else slice(fault.device, fault.device + 1)
            for machine in fault.machines:
                mine = self.timeline.with_lost_time(shares, machine, seconds, window)
                values[machine, rows] = (levels @ mine) * offsets[machine, rows, None]
        values[0] += model.rank0 * self.spec.conditions.rank0_duties
        return values

    def _levels(self, name: str) -> tuple[FloatArray, FloatArray]:
        """The task's level in each state, (state,), and the permanent factors, (machine, device)."""
        model, machines = METRIC_MODELS[name], self.spec.machines
        rng = generator(self.spec.seed, f"offsets {name}")
        levels = np.array(model.levels) * rng.uniform(*model.task_range)
        devices = self.spec.devices_per_machine if model.level == "device" else 1
        machine_offset, device_offset = rng.standard_normal((machines, 1)), rng.standard_normal((machines, devices))
        offsets = np.clip(machine_offset, -2, 2) + np.clip(device_offset, -2, 2) / 3
        roles = generator(self.spec.seed, f"roles {name}").uniform(-1, 1, self.spec.pipeline_stages)
        factor = 1 + self.spec.conditions.stage_unevenness * model.role_ratio * roles[self.cluster.stage]
        factor *= self.cluster.factors.get(name, 1.0)
        return levels, (1 + model.offset_ratio * offsets) * factor[:, None]

    def _shares_of(self, level: Level, window: float) -> FloatArray:
        if (level, window) not in self._shares:
            self._shares[level, window] = self.timeline.shares(self.samplings[level].seconds, window)
        return self._shares[level, window]

    def _heat(self) -> FloatArray:
        """Temperature: power through a slow first-order lag, over the air of rack and slot."""
        power = self._clean("gpu_power_draw")
        self._apply_effects("gpu_power_draw", power)
        # the task has run for long before the data begin
        levels, offsets = self._levels("gpu_power_draw")
        pace = self.cluster.pace
        settled: FloatArray = levels[:3] @ (pace.compute, pace.communicate, pace.optimise) / pace.period * offsets
        if self.spec.conditions.warm_up_at_seconds is not None:
            settled = power[..., 0]
        warmth = _smooth(power, 1 - np.exp(-self.spec.interval_seconds / _HEATING_SECONDS), settled)
        air = self.cluster.rack_celsius[:, None] + self.cluster.slot_celsius
        return _AMBIENT_CELSIUS + air[:, :, None] + _CELSIUS_PER_WATT * warmth

    def _apply_effects(self, name: str, values: FloatArray) -> None:
        level = METRIC_MODELS[name].level
        for fault in self.faults:
            for effect in fault.effects:
                if effect.metric == name:
                    self._apply_effect(fault, effect, values, self.samplings[level])

    def _apply_effect(self, fault: ActiveFault, effect: Effect, values: FloatArray, sampling: Sampling) -> None:
        culprits = np.array(fault.machines)
        chosen = np.setdiff1d(np.arange(self.spec.machines), culprits) if effect.scope == "peers" else culprits
        whole = sampling.level == "machine" or fault.device is None or effect.scope != "culprit"
        devices = slice(None) if whole else slice(fault.device, (fault.device or 0) + 1)
        amount = fault.envelope(sampling.seconds[chosen])[:, None, :]
        if effect.metric == "gpu_temperature":
            amount = _smooth(amount, 1 - np.exp(-self.spec.interval_seconds / _HEATING_SECONDS), 0.0)
        before = values[chosen, devices]
        if effect.change == "add":
            after = before + effect.amount * amount
        elif effect.change == "scale":
            after = before * (1 + (effect.amount - 1) * amount)
        else:
            after = before + (effect.amount - before) * amount
        values[chosen, devices] = after

    def _add_cron(self, name: str, values: FloatArray) -> None:
        """Scheduled jobs: some on one machine, some on all within half a minute, each as long as it takes there."""
        spec, model = self.spec, METRIC_MODELS[name]
        # the same jobs for every metric
        rng = generator(spec.seed, "cron")
        hours = spec.duration_seconds / 3600
        singles = rng.poisson(spec.conditions.cron_per_hour / 8 * spec.machines * hours)
        fleet = rng.poisson(spec.conditions.cron_per_hour / 2 * hours)
        starts = np.concatenate(
            (
                rng.uniform(-60, spec.duration_seconds, singles),
                (rng.uniform(-60, spec.duration_seconds, fleet)[:, None] + rng.uniform(0, 30, spec.machines)).ravel(),
            )
        )
        machines = np.concatenate((rng.integers(spec.machines, size=singles), np.tile(np.arange(spec.machines), fleet)))
        lengths = np.exp(rng.uniform(np.log(20.0), np.log(360.0), len(starts)))
        lengths[singles:] /= 4
        heights = model.cron * rng.lognormal(0, 0.4, len(starts))
        seconds = self.samplings[model.level].seconds
        for machine, start, length, height in zip(machines, starts, lengths, heights, strict=True):
            first, last = np.searchsorted(seconds[machine], (start, start + length))
            values[machine, :, first:last] += height

    def _add_bursts(self, name: str, values: FloatArray) -> None:
        """Heavy-tailed jitter that is no fault: most bursts last a second or two, few over a minute."""
        spec, model = self.spec, METRIC_MODELS[name]
        rng = generator(spec.seed, f"bursts {name}")
        count = rng.poisson(spec.bursts_per_hour * spec.machines * spec.duration_seconds / 3600)
        lengths = np.minimum((1 - rng.random(count)) ** (-1 / 0.9), 90.0)
        heights = model.burst * rng.lognormal(0, 0.5, count)
        starts = rng.uniform(-5, spec.duration_seconds, count)
        machines = rng.integers(spec.machines, size=count)
        devices = rng.integers(values.shape[1], size=count)
        seconds = self.samplings[model.level].seconds
        for machine, device, start, length, height in zip(machines, devices, starts, lengths, heights, strict=True):
            first, last = np.searchsorted(seconds[machine], (start, start + length))
            values[machine, device, first:last] += height


def _smooth(values: FloatArray, alpha: float, settled: FloatArray | float) -> FloatArray:
    """First-order lag along the last axis, from the state it had settled at before."""
    smoothed = np.empty(values.shape)
    state: FloatArray | float = settled
    for sample in range(values.shape[-1]):
        state = state + alpha * (values[..., sample] - state)
        smoothed[..., sample] = state
    return smoothed
