"""What the metrics say together: one finding for each thing that stands in the way, with what to do about it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from trainminder.coverage import ACTIVITY, LATE_SHARE, SILENT_SECONDS, verdict_seconds, window_samples_of
from trainminder.doctor.clocks import shifted_machines
from trainminder.doctor.diagnosis import Finding, Kind, Severity
from trainminder.doctor.look import GAP_INTERVALS, Look
from trainminder.doctor.remedies import exporter_of, exporters_of, family_of, to_get, to_restart, to_speed_up
from trainminder.settings import DetectSettings
from trainminder.suspect import NEVER_ZERO
from trainminder.types import MetricSpec, RawTask
from trainminder.wording import counted, some_names

__all__ = [
    "absent_findings",
    "clock_findings",
    "fleet_findings",
    "gap_findings",
    "metric_findings",
    "sampling_findings",
    "source_findings",
    "value_findings",
]

#: A window of the method paper longer than this makes detection slow enough to say so.
SLOW_WINDOW_SECONDS = 60.0

#: What a source said -> kind, severity, and what to do; the first mark found in its text counts.
_SAID: tuple[tuple[str, Kind, Severity, str], ...] = (
    ("the store says", "store_warning", "problem", "look into the store's own health: part of it does not answer"),
    ('a "no value" marker', "no_value", "note", "if a machine gives nothing else, restart its exporter"),
    (
        "samples that are outside",
        "impossible",
        "problem",
        "correct the unit: metrics.NAME.queries[].scale, or the file",
    ),
    ("samples that are infinite", "infinite", "note", "correct the query or rule that divides by zero"),
    ("carry no label", "no_machine_label", "problem", "set membership.machine_label to a label that all series carry"),
    ("could not be measured", "interval_assumed", "note", "set store.interval_seconds to the scrape interval"),
    ("carried forward", "carried", "note", "see why the target was down"),
    ("share one address", "renamed", "note", "set membership.machine_label to a label that does not change"),
)
#: What a source says of who fell silent is found here too, with more detail.
_SAID_HERE = ("have no series at all", "stopped reporting", "window ends differ")


def source_findings(raw: RawTask) -> list[Finding]:
    """What the source itself said."""
    found = []
    if raw.is_partial:
        text = "the store says that its answer is incomplete: what is missing is unknown, not healthy"
        found.append(Finding("partial_answer", "problem", text, "look into the store's own health, and ask again"))
    for text in raw.warnings:
        if text == raw.note or any(mark in text for mark in _SAID_HERE):
            continue
        known = next(((kind, grade, what) for mark, kind, grade, what in _SAID if mark in text), None)
        if known is None:
            found.append(Finding("source", "note", text, ""))
        else:
            kind, severity, remedy = known
            found.append(Finding(kind, severity, text, remedy))
    return found


def fleet_findings(raw: RawTask, settings: DetectSettings, looks: Sequence[Look]) -> list[Finding]:
    """Machines that lack everything, some metrics, or some devices; two names for one machine; small groups."""
    found: list[Finding] = []
    seen = frozenset[str]().union(*(look.machines for look in looks))
    silent = tuple(machine for machine in raw.machines if machine not in seen)
    if silent:
        text = f"no data at all from {some_names(silent)}: unknown, not healthy"
        remedy = (
            "see that their exporters run and are scraped; if their series carry another name, set "
            "membership.machine_label or membership.machine_rewrites; or take them out of the task"
        )
        found.append(Finding("silent", "problem", text, remedy, machines=silent))
    with_devices = frozenset[str]().union(*(look.machines for look in looks if look.devices))
    whole = frozenset[str]().union(*(look.machines for look in looks if not look.devices))
    if with_devices and whole and 2 * len(with_devices & whole) < min(len(with_devices), len(whole)):
        text = (
            f"device metrics name the machines {some_names(sorted(with_devices - whole), 3)}, machine metrics "
            f"{some_names(sorted(whole - with_devices), 3)}: the same machines under two names?"
        )
        remedy = "set membership.machine_label to a label on which both agree, or membership.machine_rewrites"
        return [*found, Finding("two_names", "problem", text, remedy)]
    found += _lacking(raw, looks, seen)
    found += _fewer_devices(looks)
    sizes = Counter(raw.groups.get(machine, "") for machine in raw.machines)
    small = tuple(sorted(group for group, size in sizes.items() if size < settings.min_machines))
    if small and len(small) < len(sizes):
        text = f"groups with fewer than {settings.min_machines} machines are not judged: {some_names(small)}"
        remedy = "set coarser groups (membership.group_label, or groups of the task)"
        found.append(Finding("small_groups", "note", text, remedy))
    return found


def _lacking(raw: RawTask, looks: Sequence[Look], seen: frozenset[str]) -> Iterable[Finding]:
    """Metrics that only part of the fleet has; those that lack on the same machines together."""
    by_machines: dict[frozenset[str], list[Look]] = defaultdict(list)
    for look in looks:
        if seen - look.machines and look.unusable != "few_machines":
            by_machines[seen - look.machines].append(look)
    for lacking, of_them in by_machines.items():
        names, metrics = tuple(sorted(lacking)), tuple(look.metric for look in of_them)
        families = {family_of(look.spec) for look in of_them}
        level = bool(of_them[0].devices)
        # A machine without any metric of its devices is blind there, not only less seen.
        is_blind = all(lacking.isdisjoint(look.machines) for look in looks if bool(look.devices) == level)
        remedy = f"on {some_names(names)}: " + (
            to_get("profiling", raw.sources)
            if families == {"profiling"} and not is_blind
            else f"see that {exporters_of(raw, metrics)} runs, is scraped and gives them"
        )
        text = f"{some_names(metrics)}: on {len(seen) - len(names)} of {len(seen)} machines, not on {some_names(names)}"
        yield Finding("part_of_fleet", "problem" if is_blind else "note", text, remedy, metrics, names)


def _fewer_devices(looks: Sequence[Look]) -> Iterable[Finding]:
    """Machines with fewer devices than is usual."""
    most: dict[str, int] = {}
    for look in looks:
        for machine, count in look.devices.items():
            most[machine] = max(count, most.get(machine, 0))
    if not most:
        return
    usual, having = Counter(most.values()).most_common(1)[0]
    fewer = tuple(sorted(machine for machine, count in most.items() if count < usual))
    if fewer and 2 * having > len(most):
        counts = some_names([f"{machine} ({most[machine]})" for machine in fewer])
        text = f"fewer devices than the {usual} of most machines: {counts}"
        yield Finding("fewer_devices", "problem", text, "look for a card that fell off: nvidia-smi -L", (), fewer)


def gap_findings(raw: RawTask, looks: Sequence[Look]) -> list[Finding]:
    """Machines that stopped, came late, or were gone for a while; metrics that end before the range does."""
    holes: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for look in looks:
        for machine, gap in look.gaps.items():
            where = "end" if not gap.before_end_seconds else "start" if gap.is_at_start else "inside"
            holes[where, machine][look.metric] = gap.seconds
    grouped: dict[tuple[str, tuple[str, ...]], dict[str, float]] = defaultdict(dict)
    for (where, machine), seconds in holes.items():
        grouped[where, tuple(seconds)][machine] = max(seconds.values())
    ended = {machine for where, machine in holes if where == "end"}
    is_late = len(ended) >= max(2.0, LATE_SHARE * len(raw.machines))
    found = []
    for (where, metrics), by_machine in grouped.items():
        machines, longest = tuple(sorted(by_machine)), max(by_machine.values())
        who, what = some_names(machines), some_names(metrics)
        if where == "end" and is_late:
            text = f"{who}: {what} end up to {longest:g} s before the others: late data, or they went silent"
            remedy = "look at data that are complete by now, such as --at -5m"
            found.append(Finding("late_data", "problem", text, remedy, metrics, machines))
        elif where == "end":
            text = f"{who}: no sample of {what} for the last {longest:.0f} s: unknown since then, not healthy"
            remedy = f"see whether the machine answers; if so, {to_restart(raw, metrics, who)}"
            found.append(Finding("stopped", "problem", text, remedy, metrics, machines))
        else:
            when = "at the start" if where == "start" else "on the way"
            text = f"{who}: no sample of {what} for {longest:g} s {when}"
            remedy = f"see the machine's and {exporters_of(raw, metrics)}'s logs of that time"
            found.append(Finding("gap", "note", text, remedy, metrics, machines))
    behind = {
        look.metric: look.behind_seconds
        for look in looks
        if look.behind_seconds > max(SILENT_SECONDS, GAP_INTERVALS * (look.interval_seconds or 0.0))
    }
    if behind:
        text = f"{some_names(tuple(behind))}: no sample of any machine for the last {max(behind.values()):.0f} s"
        remedy = f"see that {exporters_of(raw, behind)} is still scraped, or look at an earlier time with --at"
        found.append(Finding("ended", "problem", text, remedy, tuple(behind)))
    return found


def clock_findings(looks: Sequence[Look]) -> list[Finding]:
    """Samples in the future, and machines whose instants are shifted against the others'."""
    found = []
    ahead: dict[str, float] = {}
    for look in looks:
        for machine, seconds in look.future.items():
            ahead[machine] = max(seconds, ahead.get(machine, 0.0))
    if ahead:
        machines = tuple(sorted(ahead))
        text = f"samples up to {max(ahead.values()):.0f} s in the future: {some_names(machines)}"
        remedy = (
            "set their clocks (chronyc tracking), or this machine's; in a file, check the zone and unit of its times"
        )
        found.append(Finding("future", "problem", text, remedy, machines=machines))
    shifted = shifted_machines([look.alignment for look in looks if look.alignment is not None])
    for machine, seconds in shifted.items():
        text = f"clock of {machine} looks {abs(seconds):g} s {'ahead of' if seconds > 0 else 'behind'} its peers'"
        remedy = f"set the clock of {machine} (chronyc tracking), or see whether its data are collected late"
        found.append(Finding("clock", "problem", text, remedy, machines=(machine,)))
    return found


def value_findings(raw: RawTask, looks: Sequence[Look]) -> list[Finding]:
    """Exporters that repeat themselves, and fields that are dead while the device works."""
    frozen: dict[str, dict[str, float]] = defaultdict(dict)
    throughout: set[str] = set()
    for look in looks:
        for still in look.still:
            frozen[still.machine][look.metric] = max(still.seconds, frozen[still.machine].get(look.metric, 0.0))
            throughout |= {still.machine} if still.is_throughout else set()
    found = []
    for machine, by_metric in sorted(frozen.items()):
        metrics = tuple(by_metric)
        # One coarse metric may rest for a while because the machine is at fault; a frozen exporter holds several.
        if len(metrics) == 1 and machine not in throughout:
            continue
        text = (
            f"{some_names(metrics)} repeated exactly on {machine} for {max(by_metric.values()):.0f} s while the "
            f"peers' values change: {'frozen exporter' if len(metrics) > 1 else 'stuck'}?"
        )
        found.append(Finding("frozen", "problem", text, to_restart(raw, metrics, machine), metrics, (machine,)))
    return found + _dead_fields(raw, looks)


def _dead_fields(raw: RawTask, looks: Sequence[Look]) -> list[Finding]:
    levels = {look.metric: look.levels for look in looks if look.levels}
    dead: dict[str, dict[str, str]] = defaultdict(dict)
    for look in looks:
        if look.zeros is None or look.zeros.peers < ACTIVITY.get(look.metric, 0.0):
            continue
        for pair in look.zeros.series:
            moving = [name for name in levels if name != look.metric and levels[name].get(pair, 0.0) >= ACTIVITY[name]]
            if moving:
                dead[pair[0]][look.metric] = moving[0]
    grouped: dict[tuple[tuple[str, ...], str], list[str]] = defaultdict(list)
    for machine, by_metric in sorted(dead.items()):
        grouped[tuple(by_metric), next(iter(by_metric.values()))].append(machine)
    found = []
    for (metrics, moving_one), machines in grouped.items():
        text = (
            f"{some_names(metrics)} {'is' if len(metrics) == 1 else 'are'} 0 throughout on {some_names(machines)}, "
            f"where {moving_one} shows work, while the peers' {'is' if len(metrics) == 1 else 'are'} not: a dead field "
            "rather than an idle device"
        )
        if not all(name in NEVER_ZERO for name in metrics):
            text += ", and it would be judged as a fault"
        remedy = (
            f"{to_restart(raw, metrics, some_names(machines))}, and see that its profiling module is loaded and no "
            "other profiler holds the devices"
        )
        found.append(Finding("dead_field", "problem", text, remedy, metrics, tuple(machines)))
    return found


def metric_findings(raw: RawTask, settings: DetectSettings, looks: Sequence[Look]) -> list[Finding]:
    """Metrics that cannot be judged."""
    found = []
    constant = tuple(look.metric for look in looks if look.unusable == "constant")
    if constant:
        text = f"{some_names(constant)}: one value on every machine throughout, which says nothing"
        remedy = (
            "nothing, if that is as it should be (no pauses, no congestion); else look at the query and the exporter"
        )
        found.append(Finding("constant", "note", text, remedy, constant))
    for look in looks:
        if look.reason is None or look.unusable == "constant":
            continue
        takes = counted(window_samples_of(settings), "sample")
        remedy = {
            "few_machines": to_get(family_of(look.spec), raw.sources),
            "missing": f"see why {exporters_of(raw, [look.metric])} loses samples (scrape timeouts, up); "
            "or raise detect.max_missing_ratio",
        }.get(look.unusable or "", f"ask for more data: it takes {takes} (--minutes)")
        found.append(Finding("not_judged", "problem", look.reason, remedy, (look.metric,)))
    return found


def sampling_findings(raw: RawTask, settings: DetectSettings, looks: Sequence[Look]) -> list[Finding]:
    """Sampling that makes detection slow, and exporters that refresh more slowly than they are scraped."""
    slow: dict[tuple[str, float, bool], list[Look]] = defaultdict(list)
    for look in looks:
        exporter = exporter_of(raw, look.metric) or ""
        if look.refresh_seconds is not None:
            slow[exporter, round(look.refresh_seconds, 1), True].append(look)
        elif _is_slow(look.interval_seconds or 0.0, settings):
            slow[exporter, look.interval_seconds or 0.0, False].append(look)
    found = []
    for (exporter, seconds, is_refresh), of_them in slow.items():
        metrics = tuple(look.metric for look in of_them)
        if is_refresh:
            stored = of_them[0].interval_seconds or 0.0
            text = f"{some_names(metrics)}: values change every {seconds:g} s only, although stored every {stored:g} s"
        else:
            text = f"{some_names(metrics)}: one sample every {seconds:g} s, so that {_slow_by(seconds, settings)}"
        remedy = to_speed_up(exporter, seconds) if exporter else "record at a shorter interval for faster detection"
        found.append(Finding("slow_refresh" if is_refresh else "slow_sampling", "note", text, remedy, metrics))
    return found


def _is_slow(seconds: float, settings: DetectSettings) -> bool:
    """Whether faults are seen late for so long an interval."""
    if settings.method == "paper":
        return seconds * settings.window_samples > SLOW_WINDOW_SECONDS
    return verdict_seconds(seconds, settings) > verdict_seconds(1.0, settings)


def _slow_by(seconds: float, settings: DetectSettings) -> str:
    """What slow sampling costs, by the method that judges."""
    if settings.method == "paper":
        return f"a window of {settings.window_samples} samples spans {settings.window_samples * seconds:g} s"
    return f"a verdict takes at least {verdict_seconds(seconds, settings):g} s of data"


def absent_findings(raw: RawTask, catalogue: Mapping[str, MetricSpec]) -> list[Finding]:
    """Metrics that were asked for and not found."""
    by_remedy: dict[str, list[str]] = defaultdict(list)
    for name in raw.metrics_absent:
        by_remedy[to_get(family_of(catalogue.get(name)), raw.sources)].append(name)
    return [
        Finding("absent", "note", f"absent: {some_names(names, 12)}", remedy, tuple(names))
        for remedy, names in by_remedy.items()
    ]
