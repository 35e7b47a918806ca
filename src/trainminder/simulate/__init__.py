"""A seeded cluster that trains, with faults to inject: the same values in give the same bytes out.

Here belongs the model of synchronous training, its metrics and its faults; nothing here reads files or
clocks, and nothing judges. What it simulates is stated where it is modelled; it is no measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainminder.errors import SettingsError
from trainminder.simulate.cluster import Cluster, ClusterSpec, draw_cluster, swapped_machines
from trainminder.simulate.conditions import CALM, Conditions
from trainminder.simulate.faults import FAULT_MODELS, Fault, activate
from trainminder.simulate.metrics import METRIC_MODELS, Renderer
from trainminder.simulate.sampling import draw_sampling, sample_metric
from trainminder.simulate.timeline import Timeline, run_timeline
from trainminder.types import MetricSpec, RawTask, Truth

__all__ = [
    "CALM",
    "FAULT_MODELS",
    "METRIC_MODELS",
    "Cluster",
    "ClusterSpec",
    "Conditions",
    "Fault",
    "Timeline",
    "simulate_task",
    "simulate_timeline",
    "swapped_machines",
]


def simulate_task(
    spec: ClusterSpec, faults: Sequence[Fault] = (), *, specs: Mapping[str, MetricSpec]
) -> tuple[RawTask, tuple[Truth, ...]]:
    """Simulate one training task as a source would give it, and the truth about it.

    Args:
        specs: the catalogue. A metric of it that the simulator does not know is listed as absent.
    Returns:
        the raw task, sampled from ``spec.start_at`` for ``spec.duration_seconds``, and one entry per machine at fault.
    Raises:
        SettingsError: a fault that does not fit the cluster, or a metric that is not in ``specs``.
    """
    wanted = tuple(specs) if spec.metrics is None else spec.metrics
    if unknown := [name for name in wanted if name not in specs]:
        raise SettingsError(*(f'simulate.metrics: "{name}" is not in the catalogue' for name in unknown))
    active = activate(spec, faults)
    cluster = draw_cluster(spec)
    known = [name for name in wanted if name in METRIC_MODELS]
    renderer = Renderer(
        spec=spec,
        cluster=cluster,
        timeline=run_timeline(spec, cluster, active),
        faults=active,
        samplings={level: draw_sampling(spec, level) for level in ("machine", "device")},
    )
    metrics = tuple(
        sample_metric(spec, renderer.samplings[METRIC_MODELS[name].level], name, renderer.render(name), active)
        for name in known
    )
    raw = RawTask(
        task=spec.task,
        from_at=spec.start_at,
        to_at=spec.start_at + spec.duration_seconds,
        machines=tuple(sorted(cluster.names)),
        metrics=metrics,
        specs={name: specs[name] for name in known},
        metrics_absent=tuple(name for name in wanted if name not in METRIC_MODELS),
    )
    truth = tuple(
        Truth(
            machine=cluster.names[machine],
            device=None if fault.device is None else cluster.devices[fault.device],
            fault_type=fault.fault_type,
            start=spec.start_at + fault.start,
            end=spec.start_at + fault.end,
        )
        for fault in active
        for machine in fault.machines
    )
    return raw, truth


def simulate_timeline(spec: ClusterSpec, faults: Sequence[Fault] = ()) -> Timeline:
    """The iterations behind ``simulate_task`` with the same values: when each began, and who kept it waiting.

    Raises:
        SettingsError: a fault that does not fit the cluster.
    """
    return run_timeline(spec, draw_cluster(spec), activate(spec, faults))
