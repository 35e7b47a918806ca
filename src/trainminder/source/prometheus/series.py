"""From a store's label sets to machines and devices: identity, replicas, clusters. Pure."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from trainminder.errors import StoreError
from trainminder.settings import MembershipSettings, StoreSettings
from trainminder.source.cleaning import build_metric, classify_values, dropped_warnings
from trainminder.source.prometheus.matrix import MatrixAnswer
from trainminder.source.prometheus.names import machine_name
from trainminder.types import BoolArray, FloatArray, MetricQuery, MetricSpec, RawMetric
from trainminder.wording import some_names

__all__ = [
    "Fetched",
    "build_raw",
    "check_clusters",
    "identify",
    "join_answers",
    "kept",
    "renamed_machines",
]

Row = tuple[str, str | None]


@dataclass(slots=True)
class Fetched:
    """One metric as a store gave it, before names are settled."""

    spec: MetricSpec
    query: MetricQuery
    interval: float
    answer: MatrixAnswer
    rows: list[Row | None] = field(default_factory=list)
    """(machine, device) of each series; None: it names no machine."""

    def bounds(self, index: int) -> tuple[int, int]:
        """Where the samples of a series lie."""
        return int(self.answer.offsets[index]), int(self.answer.offsets[index + 1])


def join_answers(answers: Sequence[MatrixAnswer]) -> MatrixAnswer:
    """Answers to consecutive ranges (or disjoint sets of series) as one; series sorted by their labels."""
    pieces: dict[tuple[tuple[str, str], ...], list[tuple[int, int]]] = defaultdict(list)
    for number, answer in enumerate(answers):
        for index, labels in enumerate(answer.labels):
            pieces[tuple(sorted(labels.items()))].append((number, index))
    keys = sorted(pieces)
    times: list[FloatArray] = []
    values: list[FloatArray] = []
    lengths: list[int] = []
    for key in keys:
        length = 0
        for number, index in pieces[key]:
            answer = answers[number]
            part = slice(int(answer.offsets[index]), int(answer.offsets[index + 1]))
            times.append(answer.times[part])
            values.append(answer.values[part])
            length += part.stop - part.start
        lengths.append(length)
    return MatrixAnswer(
        labels=[dict(key) for key in keys],
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
        times=np.concatenate(times) if times else np.empty(0),
        values=np.concatenate(values) if values else np.empty(0),
        warnings=tuple(dict.fromkeys(text for answer in answers for text in answer.warnings)),
        infos=tuple(dict.fromkeys(text for answer in answers for text in answer.infos)),
    )


def kept(answer: MatrixAnswer, keep: BoolArray) -> MatrixAnswer:
    """The answer with only the samples of the mask; series left without a sample disappear."""
    before = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    offsets = before[answer.offsets]
    alive = np.flatnonzero(np.diff(offsets) > 0)
    return dataclasses.replace(
        answer,
        labels=[answer.labels[i] for i in alive.tolist()],
        offsets=np.concatenate([[0], offsets[alive + 1]]).astype(np.int64),
        times=answer.times[keep],
        values=answer.values[keep],
    )


def identify(
    labels: Mapping[str, str], spec: MetricSpec, query: MetricQuery, settings: MembershipSettings
) -> Row | None:
    """The machine and the device that a series belongs to; None where it names no machine."""
    value = labels.get(settings.machine_label)
    if not value:
        return None
    machine = machine_name(value, settings)
    if spec.level == "machine" and query.device_label is None and not spec.declared:
        return machine, None
    names = ((query.device_label,) if query.device_label else ()) + settings.device_labels
    label = next((name for name in names if labels.get(name)), None)
    return machine, _device_name(labels, label, query) if label else None


def _device_name(labels: Mapping[str, str], label: str, query: MetricQuery) -> str:
    """``gpu0`` for a bare number (``npu0`` for Ascend), else as it is; a MIG instance follows after a slash."""
    value = labels[label]
    if value.isdigit():
        value = ("npu" if "npu" in f"{query.exporter} {query.query}" else "gpu") + value
    part = labels.get("GPU_I_ID")
    return f"{value}/{part}" if part else value


def check_clusters(fetched: Iterable[Fetched], labels: Sequence[str]) -> None:
    """Refuse one machine name in two clusters.

    Raises:
        StoreError: names the clusters and asks for a matcher.
    """
    for label in labels:
        seen: dict[str, set[str]] = defaultdict(set)
        for item in fetched:
            for row, series in zip(item.rows, item.answer.labels, strict=True):
                if row is not None and series.get(label):
                    seen[row[0]].add(series[label])
        shared = sorted(machine for machine, clusters in seen.items() if len(clusters) > 1)
        if shared:
            clusters = sorted(set().union(*(seen[machine] for machine in shared)))
            raise StoreError(
                f"machine {some_names(shared, 3)} is in more than one {label} ({some_names(clusters)}): "
                f'say which by a matcher of the task, such as {label}="{clusters[0]}"'
            )


def renamed_machines(fetched: Iterable[Fetched]) -> dict[str, str]:
    """Old name -> new name, where two names share one address one after the other.

    An exporter's host label changes when it restarts under another name; the halves are one machine. Names that
    were ever alive at the same time are different machines, whatever address they share.
    """
    alive: dict[str, tuple[float, float]] = {}
    shared: dict[str, set[str]] = defaultdict(set)
    for item in fetched:
        for index, row in enumerate(item.rows):
            start, end = item.bounds(index)
            if row is None or start == end:
                continue
            first, last = float(item.answer.times[start]), float(item.answer.times[end - 1])
            known = alive.get(row[0], (first, last))
            alive[row[0]] = (min(first, known[0]), max(last, known[1]))
            address = item.answer.labels[index].get("instance")
            if address:
                shared[address].add(row[0])
    renamed: dict[str, str] = {}
    for _, names in sorted(shared.items()):
        in_order = sorted(names, key=lambda name: alive[name])
        renamed |= {old: new for old, new in pairwise(in_order) if alive[old][1] < alive[new][0]}
    return {old: _last(old, renamed) for old in renamed}


def _last(name: str, renamed: Mapping[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def build_raw(
    item: Fetched, store: StoreSettings, extra_sentinels: Iterable[float]
) -> tuple[RawMetric | None, list[str]]:
    """One metric's series as a ``RawMetric``: replicas merged, values scaled and cleaned; and what was decided.

    None: no sample was left.
    """
    groups: dict[Row, list[int]] = defaultdict(list)
    for index, row in enumerate(item.rows):
        if row is not None:
            groups[row].append(index)
    machines = sorted({machine for machine, _ in groups})
    devices = sorted({device for _, device in groups if device is not None})
    machine_code = {name: code for code, name in enumerate(machines)}
    device_code: dict[str | None, int] = {name: code for code, name in enumerate(devices)} | {None: -1}
    parts: list[tuple[FloatArray, FloatArray]] = []
    codes: list[tuple[int, int]] = []
    doubled: dict[str, set[str]] = defaultdict(set)
    for row, members in sorted(groups.items(), key=lambda entry: (entry[0][0], entry[0][1] or "")):
        variants = _variants(item.answer, members, store.replica_labels)
        merged = [_merged_replicas(item, variant) for variant in variants]
        if len(merged) > 1 and _overlap([times for times, _ in merged]):
            for label in _differing([item.answer.labels[variant[0]] for variant in variants]):
                doubled[label].add(row[0])
        parts += merged
        codes += [(machine_code[row[0]], device_code[row[1]])] * len(merged)
    if not parts:
        return None, []
    notes = [
        f'{item.spec.name}: several series of one {"device" if devices else "machine"} differ in the label "{label}" '
        f"on {some_names(sorted(names))}: their mean is taken; if they are copies, add it to store.replica_labels"
        for label, names in sorted(doubled.items())
    ]
    lengths = [len(times) for times, _ in parts]
    codes_of = np.repeat(np.array(codes, dtype=np.int64).reshape(-1, 2), lengths, axis=0)
    times = np.concatenate([times for times, _ in parts])
    raw = np.concatenate([values for _, values in parts])
    scaled = raw * item.query.scale
    code = classify_values(scaled, item.spec, extra_sentinels)
    if item.query.scale != 1.0:
        # A marker is a marker in the exporter's unit.
        unbounded = dataclasses.replace(item.spec, lower=None, upper=None)
        code[classify_values(raw, unbounded, extra_sentinels) == 3] = 3
    notes += dropped_warnings(item.spec, code, codes_of[:, 0], machines)
    keep = code == 0
    if not keep.any():
        return None, notes
    built, _ = build_metric(
        item.spec.name,
        codes_of[keep, 0],
        codes_of[keep, 1],
        times[keep],
        scaled[keep],
        machines,
        devices,
        interval_seconds=item.interval,
    )
    return built, notes


def _variants(answer: MatrixAnswer, members: Sequence[int], replica_labels: Sequence[str]) -> list[list[int]]:
    """Series that differ in nothing but replica labels, the first replica first."""
    if len(members) == 1:
        return [list(members)]
    found: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
    for index in members:
        rest = {name: value for name, value in answer.labels[index].items() if name not in replica_labels}
        found[tuple(sorted(rest.items()))].append(index)
    for copies in found.values():
        copies.sort(key=lambda index: [answer.labels[index].get(label, "") for label in replica_labels])
    return [found[key] for key in sorted(found)]


def _merged_replicas(item: Fetched, variant: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    pieces = [slice(*item.bounds(index)) for index in variant]
    if len(pieces) == 1:
        return item.answer.times[pieces[0]], item.answer.values[pieces[0]]
    times = np.concatenate([item.answer.times[piece] for piece in pieces])
    values = np.concatenate([item.answer.values[piece] for piece in pieces])
    # A NaN of the first copy is a hole that another may fill.
    measured = ~np.isnan(values)
    times, first = np.unique(times[measured], return_index=True)
    return times, values[measured][first]


def _overlap(times: Sequence[FloatArray]) -> bool:
    together = np.concatenate(times)
    return len(np.unique(together)) < len(together)


def _differing(label_sets: Sequence[Mapping[str, str]]) -> list[str]:
    names = sorted(set().union(*label_sets))
    return [name for name in names if len({labels.get(name) for labels in label_sets}) > 1]
