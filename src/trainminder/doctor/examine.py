"""The examination: every metric looked at once, then what they say together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from trainminder.coverage import Sight, lasting_seconds, verdict_seconds
from trainminder.doctor.diagnosis import Diagnosis, Finding, Kind, MetricDiagnosis
from trainminder.doctor.findings import (
    absent_findings,
    clock_findings,
    fleet_findings,
    gap_findings,
    metric_findings,
    sampling_findings,
    source_findings,
    value_findings,
)
from trainminder.doctor.look import Look, look_at
from trainminder.errors import Unobservable
from trainminder.settings import DetectSettings
from trainminder.types import MetricSpec, RawTask
from trainminder.wording import counted

__all__ = ["diagnose"]


def diagnose(
    raw: RawTask,
    settings: DetectSettings,
    *,
    now: float,
    catalogue: Mapping[str, MetricSpec] | None = None,
    found: str = "",
) -> Diagnosis:
    """Examine a task's data: can it be judged, and what stands in the way?

    The task can be judged exactly if a pass with the same settings would not call it unknown, unless that pass
    finds a fault in what little it sees.

    Args:
        now: Unix seconds; samples after it are in the future.
        catalogue: says how metrics that are absent could be had.
        found: how the task was found, in words.
    """
    sight = Sight()
    wanted = [metric for metric in raw.metrics if settings.metrics is None or metric.metric in settings.metrics]
    looks = [look_at(metric, raw, settings, sight, now) for metric in wanted]
    verdict = _verdict(raw, settings, sight)
    findings = [
        *([verdict] if verdict else []),
        *source_findings(raw),
        *fleet_findings(raw, settings, looks),
        *gap_findings(raw, looks),
        *clock_findings(looks),
        *value_findings(raw, looks),
        *metric_findings(raw, settings, looks),
        *sampling_findings(raw, settings, looks),
        *absent_findings(raw, catalogue or {}),
    ]
    intervals = [look.interval_seconds for look in looks if look.reason is None and look.interval_seconds is not None]
    return Diagnosis(
        task=raw.task,
        found=found,
        from_at=raw.from_at,
        to_at=raw.to_at,
        machines=raw.machines,
        machines_seen=len(sight.last_seen),
        metrics=(
            *(_metric(raw, look, findings) for look in looks),
            *(MetricDiagnosis(name, is_absent=True) for name in raw.metrics_absent),
        ),
        findings=tuple(sorted(findings, key=lambda finding: finding.severity == "note")),
        reason=verdict.text if verdict else None,
        method=settings.method,
        continuity_seconds=settings.continuity_seconds if settings.method == "paper" else None,
        confirmed_after_seconds=min((lasting_seconds(each, settings) for each in intervals), default=None),
        verdict_seconds=min((verdict_seconds(each, settings) for each in intervals), default=None),
        is_partial=raw.is_partial,
    )


def _verdict(raw: RawTask, settings: DetectSettings, sight: Sight) -> Finding | None:
    """Why the task cannot be judged; None: it can."""
    sizes = Counter(raw.groups.get(machine, "") for machine in raw.machines)
    if max(sizes.values(), default=0) < settings.min_machines:
        count = len(raw.machines)
        where = f", none of its {len(sizes)} groups has as many as" if count >= settings.min_machines else " and not"
        text = f"it has {counted(count, 'machine')}{where} the {settings.min_machines} needed to compare"
        return Finding(
            "too_few_machines",
            "problem",
            text,
            "check the task's matcher, its list of machines and membership.machine_label; "
            "for groups, membership.group_label",
        )
    try:
        sight.check_observed(raw.to_at, settings)
    except Unobservable as unobservable:
        kind: Kind
        if not sight.used:
            kind, remedy = "nothing_usable", "see the findings about the metrics: one that can be judged is enough"
        elif sight.spare_seconds < 0:
            kind, remedy = "short_range", "look at more data with --minutes"
            if settings.method == "paper":
                remedy += ", or lower detect.continuity_seconds"
        else:
            kind, remedy = "idle", "look again while the task works, or at another time with --at"
        return Finding(kind, "problem", str(unobservable), remedy)
    return None


def _metric(raw: RawTask, look: Look, findings: list[Finding]) -> MetricDiagnosis:
    source = raw.sources.get(look.metric)
    gap, holder = look.longest_gap or (0.0, None)
    about = dict.fromkeys(
        finding.kind for finding in findings if look.metric in finding.metrics and finding.severity == "problem"
    )
    return MetricDiagnosis(
        metric=look.metric,
        found_as=source.name if source else None,
        exporter=source.exporter if source else None,
        machines=len(look.machines),
        devices=sum(look.devices.values()),
        interval_seconds=look.interval_seconds,
        is_event_driven=look.is_event_driven,
        samples_missing=None if look.samples_missing is None else round(look.samples_missing, 6),
        longest_gap_seconds=gap,
        longest_gap_machine=holder,
        reason=look.reason,
        remarks=tuple(kind.replace("_", " ") for kind in about),
    )
