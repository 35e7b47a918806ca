"""Public telemetry of real training jobs as labelled recordings, and what a method makes of them.

    python benchmarks/real_data.py SHARED_DATA -o DIR [--seed 1] [--set ascend|whatif|all]
    python benchmarks/real_data.py SHARED_DATA -o DIR --detect [--each] [--method paper] [--continuity-seconds S]

SHARED_DATA holds the folders ``ascend_failslow`` and ``straggler_whatif``; docs/real-data.md says where they come from.
A rank stands for a machine. Nothing is written but to DIR.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from trainminder.errors import SettingsError, TrainminderError
from trainminder.settings import DetectSettings
from trainminder.types import Truth

sys.path.insert(0, str(Path(__file__).parent))
from labelled import Judged, declared_flags, judge, write_labelled

#: mem_alloc_mb and mem_reserved_mb are left out: in some runs they tell the faulty rank before its fault begins.
ASCEND_UNITS = dict.fromkeys(("data_ms", "compute_ms", "comm_ms", "wait_ms", "step_ms"), "ms")
WHATIF_UNITS = dict.fromkeys(
    (
        "backward_compute",
        "backward_recv",
        "backward_send",
        "embedding_grads_all_reduce",
        "forward_compute",
        "forward_recv",
        "forward_send",
        "gc",
        "grads_reduce_scatter",
        "layernorm_grads_all_reduce",
        "optimizer",
        "optimizer_clip_main_grad",
        "params_all_gather",
    ),
    "s",
)
#: How long a machine must stand out: many steps of 0.076 to 0.5 s, and several of 9 to 47 s.
ASCEND_CONTINUITY_SECONDS, WHATIF_CONTINUITY_SECONDS = 5.0, 60.0
#: Rows of the same step, one after another, are what is known of these jobs; their date is not.
WHATIF_START = datetime(2025, 1, 1, tzinfo=UTC).timestamp()


def _needed(folder: Path, *names: str) -> list[Path]:
    """Files of the data.

    Raises:
        SettingsError: one is not there.
    """
    paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            raise SettingsError(f"{path} does not exist: give the folder that holds ascend_failslow, straggler_whatif")
    return paths


def convert_ascend(data: Path, folder: Path, seed: int) -> list[Path]:
    """Write each run of ascend_failslow: 16 ranks of one host in lock step, permuted by the seed and the run.

    Instants are the run's start, as its name states it (zone unknown, taken as UTC), plus the row's seconds.

    Raises:
        SettingsError: the data are not there.
    """
    telemetry, runs = _needed(data / "ascend_failslow", "telemetry.parquet", "runs.csv")
    rows = pl.read_parquet(telemetry).drop("mem_alloc_mb", "mem_reserved_mb").partition_by("run", as_dict=True)
    written = []
    for run in pl.read_csv(runs).iter_rows(named=True):
        table, ranks = rows[(run["run"],)], sorted(rows[(run["run"],)]["rank"].unique())
        names = np.random.default_rng([seed, run["run"]]).permutation(len(ranks)).tolist()
        name_of = {rank: f"rank{place:02d}" for rank, place in zip(ranks, names, strict=True)}
        start = datetime.strptime(run["name"][:15], "%Y%m%d_%H%M%S").replace(tzinfo=UTC).timestamp()
        table = table.with_columns(
            (pl.col("t_s").cast(pl.Float64) + start).alias("timestamp"),
            pl.col("rank").replace_strict(name_of, return_dtype=pl.String).alias("machine"),
        )
        truths = []
        if run["label_scope"] == "rank":
            mine = table.filter(pl.col("rank") == run["faulty_rank"])
            during = mine.filter(pl.col("step").is_between(run["fault_first_step"], run["fault_end_step"] - 1))
            instants = during["timestamp"].to_numpy()
            kind = run["fault"]
            truths.append(Truth(name_of[run["faulty_rank"]], None, kind, float(instants.min()), float(instants.max())))
        tags = {
            "set": "ascend_failslow",
            "workload": run["workload"],
            "fault": run["fault"] or "none",
            "dose": run["dose"] if run["fault"] else "-",
            "scope": run["label_scope"],
        }
        name = f"ascend-{run['run']:03d}-{run['workload']}-{run['fault'] or 'none'}-{run['dose']}"
        columns = ["timestamp", "machine", *ASCEND_UNITS]
        written.append(write_labelled(folder, name, table.select(columns), ASCEND_UNITS, truths, tags))
    return written


def convert_whatif(data: Path, folder: Path) -> list[Path]:
    """Write each job of straggler_whatif: seconds per kind of operation, one row per worker and traced step.

    ``group`` is the pipeline stage. The traced steps follow one another: the untraced ones between them are left out,
    and a step lasts as long as its slowest worker's.

    Raises:
        SettingsError: the data are not there.
    """
    steps, ops, labels = _needed(data / "straggler_whatif", "per_step.parquet", "ops.parquet", "labels.json")
    lasting = (
        pl.read_parquet(ops)
        .with_columns(pl.col("trace").cast(pl.String), (pl.col("start_ts") + pl.col("duration")).alias("end"))
        .group_by("trace", "step")
        .agg(pl.col("end").max().cast(pl.Float64))
        .sort("step")
        .with_columns((WHATIF_START + pl.col("end").cum_sum().over("trace")).alias("timestamp"))
    )
    table = pl.read_parquet(steps).with_columns(pl.col("step").cast(pl.Int64))
    lasting = lasting.with_columns(pl.col("step").cast(pl.Int64))
    written = []
    for trace, label in json.loads(labels.read_text())["traces"].items():
        rows = (
            table.filter(pl.col("trace") == trace)
            .join(lasting.filter(pl.col("trace") == trace).select("step", "timestamp"), on="step", how="left")
            .with_columns(
                pl.format("rank{}", pl.col("rank").cast(pl.String).str.zfill(3)).alias("machine"),
                pl.format("stage{}", "stage").alias("group"),
            )
        )
        truths = []
        if label["faulty_rank"] is not None:
            machine = f"rank{label['faulty_rank']:03d}"
            instants = rows["timestamp"].to_numpy()
            truths.append(Truth(machine, None, "slow_worker", float(instants.min()), float(instants.max())))
        tags = {"set": "straggler_whatif", "fault": "slow_worker" if truths else "none", "scope": "group"}
        columns = ["timestamp", "machine", "group", *WHATIF_UNITS]
        written.append(write_labelled(folder, f"whatif-{trace}", rows.select(columns), WHATIF_UNITS, truths, tags))
    return written


def print_verdicts(judged: Sequence[Judged]) -> None:
    """One line per kind of recording: how many were named right, early, wrong, missed, quiet, unknown."""
    outcomes = ("right", "early", "wrong", "missed", "quiet", "unknown")
    kinds: dict[tuple[str, ...], Counter[str]] = {}
    for one in judged:
        kind = tuple(one.tags.get(tag, "-") for tag in ("scope", "workload", "fault", "dose"))
        kinds.setdefault(kind, Counter())[one.outcome] += 1
    print(f"{'scope':<7}{'workload':<12}{'fault':<13}{'dose':<8}{'runs':>5}" + "".join(f"{o:>9}" for o in outcomes))

    def line(head: str, counted: Counter[str]) -> None:
        print(f"{head:<40}{counted.total():>5}" + "".join(f"{counted[outcome] or '-':>9}" for outcome in outcomes))

    for kind, counted in sorted(kinds.items()):
        line("{:<7}{:<12}{:<13}{:<8}".format(*kind), counted)
    for head, scopes in {"a rank is faulty": ("rank", "group"), "nobody is": ("none", "host", "group")}.items():
        is_faulty = head == "a rank is faulty"
        chosen = [one for one in judged if one.tags["scope"] in scopes and bool(one.truths) == is_faulty]
        line(head, Counter(one.outcome for one in chosen))


def print_each(judged: Sequence[Judged]) -> None:
    """One line per recording: what was named and what should have been."""
    for one in judged:
        named = ", ".join(
            f"{v.machine} by {v.metric} after {v.confirmed - one.result.from_at:.1f} s" for v in one.result.verdicts
        )
        truth = ", ".join(f"{t.machine} from {t.start - one.result.from_at:.1f} s" for t in one.truths) or "nobody"
        print(f"{one.name:<45}{one.outcome:<9}named: {named or one.result.reason or 'nobody'}; truth: {truth}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="SHARED_DATA")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--set", choices=("ascend", "whatif", "all"), default="all", dest="which")
    parser.add_argument("--seed", type=int, default=1, help="of the permutation of ranks")
    parser.add_argument("--match", default="", metavar="REGEX", help="judge only recordings with such a name")
    parser.add_argument("--detect", action="store_true", help="also judge the recordings and print a table")
    parser.add_argument("--each", action="store_true", help="with --detect: a line for each recording")
    parser.add_argument("--method", default="paper")
    parser.add_argument(
        "--continuity-seconds",
        type=float,
        help=f"default: {ASCEND_CONTINUITY_SECONDS:g} for ascend, {WHATIF_CONTINUITY_SECONDS:g} for whatif",
    )
    return parser.parse_args()


def main() -> None:
    asked = _arguments()
    try:
        asked.output.mkdir(parents=True, exist_ok=True)
        made = []
        if asked.which in ("ascend", "all"):
            paths = convert_ascend(asked.data, asked.output, asked.seed)
            made.append((ASCEND_UNITS, ASCEND_CONTINUITY_SECONDS, paths))
        if asked.which in ("whatif", "all"):
            made.append((WHATIF_UNITS, WHATIF_CONTINUITY_SECONDS, convert_whatif(asked.data, asked.output)))
        for units, continuity_seconds, paths in made:
            print(f"{len(paths)} recordings in {asked.output}; metrics to admit: {declared_flags(units)}")
            if asked.detect:
                settings = DetectSettings(
                    method=asked.method, continuity_seconds=asked.continuity_seconds or continuity_seconds
                )
                judged = [judge(path, units, settings) for path in paths if re.search(asked.match, path.stem)]
                print(f"method {settings.method}, continuity {settings.continuity_seconds:g} s")
                print_verdicts(judged)
                if asked.each:
                    print_each(judged)
    except TrainminderError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
