"""What the faults of a real run changed, on the culprit and on the others, and what a method makes of it.

    python benchmarks/real_training/look.py DIR [--method paper] [--continuity-seconds 30] [--metrics all|host|NAME,...]
                                              [--changes]

DIR holds what run.py wrote. Levels are medians of the healthy part and of the part from ten seconds after the onset. A
level is marked * where it left the middle 98 % of the healthy part. "after" is how many seconds after the onset the
first of three such seconds in a row came.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from record import STEP_UNITS, UNITS
from trainminder.errors import TrainminderError
from trainminder.settings import DetectSettings
from trainminder.source.recordings import read_truth
from trainminder.types import BoolArray, FloatArray

sys.path.insert(0, str(Path(__file__).parents[1]))
from labelled import Judged, declared_flags, judge, read_tags

SETTLED_SECONDS = 10.0
IN_A_ROW = 3
#: What node_exporter shows of any machine; the rest needs cgroup counters.
HOST = ("cpu_usage", "memory_usage", "tcp_throughput")
SHOWN = (
    *HOST,
    "sent_packets",
    "received_packets",
    "retransmits",
    "cpu_waiting",
    "io_waiting",
    "throttled_periods",
    "disk_written",
)


def print_changes(path: Path, metrics: Sequence[str]) -> None:
    """A line per metric that changed: culprit and others, before and after, and how soon."""
    run, scope, table = _run_of(path), read_tags(path)["scope"], pl.read_parquet(path)
    culprits = [truth.machine for truth in read_truth(path)]
    where = ", ".join(culprits) or {"all": "all", "none": "nobody"}[scope]
    print(
        f"{path.stem}: {run['strength']} on {where}; "
        f"steps per second {run['steps_per_second_before']} -> {run['steps_per_second_after']}"
    )
    heads = f"{'before':>12}{'then':>12}{'after':>7}"
    print(f"  {'metric':<19}{'culprit':>10}{heads}{'others':>10}{heads}")
    for metric in metrics:
        if metric not in table.columns:
            continue
        mine = pl.col("machine").is_in(culprits)
        both = [_change(table.filter(rows), metric, float(run["onset"])) for rows in (mine, ~mine)]
        if any(change is not None and change.has_left for change in both):
            print(f"  {metric:<19}" + "".join(f"{'':10}{_words(change)}" for change in both))


def _run_of(path: Path) -> dict[str, Any]:
    """What run.py wrote of an episode beside its labels."""
    run: dict[str, Any] = json.loads(path.with_suffix(".run.json").read_text())
    return run


@dataclass(frozen=True, slots=True)
class Change:
    """Level before and after, whether it left what was usual, and how many seconds after the onset."""

    before: float
    after: float
    has_left: bool
    seconds: float | None


def _change(rows: pl.DataFrame, metric: str, onset: float) -> Change | None:
    series = rows.group_by("timestamp").agg(pl.col(metric).median()).drop_nulls().sort("timestamp")
    times, values = series["timestamp"].to_numpy(), series[metric].to_numpy()
    before, after = values[times <= onset], values[times >= onset + SETTLED_SECONDS]
    if not len(before) or not len(after):
        return None
    low, high = np.quantile(before, (0.01, 0.99))
    level = float(np.median(after))
    out = (values < low) | (values > high)
    return Change(float(np.median(before)), level, bool(level < low or level > high), _first(out, times - onset))


def _first(out: BoolArray, since: FloatArray) -> float | None:
    """Seconds until the first of some seconds in a row that are out."""
    out, since = out[since > 0], since[since > 0]
    for at in range(len(out) - IN_A_ROW + 1):
        if out[at : at + IN_A_ROW].all():
            return float(since[at])
    return None


def _words(change: Change | None) -> str:
    if change is None:
        return f"{'-':>12}{'-':>12}{'-':>7}"
    soon = "-" if change.seconds is None else f"{change.seconds:.0f} s"
    return f"{_short(change.before):>12}{_short(change.after) + '*' * change.has_left:>12}{soon:>7}"


def _short(value: float) -> str:
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def print_verdict(one: Judged, onset: float) -> None:
    """What was named, when after the onset, and what else convicted."""
    named = "; ".join(
        f"{v.machine} by {', '.join(dict.fromkeys(e.metric for e in v.evidence)) or v.metric}, "
        f"{v.confirmed - onset:.0f} s after the onset"
        for v in one.result.verdicts
    )
    truth = ", ".join(t.machine for t in one.truths) or "nobody"
    print(f"{one.name:<32}{truth:<8}{one.outcome:<9}{named or one.result.reason or 'nobody named'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--method", default="paper")
    parser.add_argument("--continuity-seconds", type=float, default=30.0)
    parser.add_argument("--metrics", default="all", metavar="all|host|NAME,...", help="what the method may look at")
    parser.add_argument("--changes", action="store_true", help="also what changed, metric by metric")
    asked = parser.parse_args()
    paths = sorted(asked.folder.glob("real-*.parquet"))
    if not paths:
        raise SystemExit(f"error: {asked.folder} holds no recording real-*.parquet: make them with run.py")
    if asked.changes:
        for path in paths:
            print_changes(path, (*SHOWN, *STEP_UNITS))
    chosen = {"all": (*HOST, *UNITS), "host": HOST}.get(asked.metrics, tuple(asked.metrics.split(",")))
    units = {name: unit for name, unit in (UNITS | STEP_UNITS).items() if name in chosen}
    settings = DetectSettings(method=asked.method, continuity_seconds=asked.continuity_seconds, metrics=tuple(chosen))
    print(f"method {settings.method}, continuity {settings.continuity_seconds:g} s, {declared_flags(units)}")
    print(f"{'recording':<32}{'truth':<8}{'outcome':<9}named")
    try:
        for path in paths:
            print_verdict(judge(path, units, settings), float(_run_of(path)["onset"]))
    except TrainminderError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
