"""A real data-parallel training job with real faults, recorded once a second per rank, as labelled recordings.

    python benchmarks/real_training/run.py -o DIR [--ranks 4] [--faults all|none,cpu_quota,...] [--minutes-per-fault 4]
    python benchmarks/real_training/run.py -o DIR --short          # a minute: what the test of this runs

PyTorch DDP over gloo; every rank has a network namespace and cgroups of its own, and one core. An episode is a
recording with one fault from about its middle, on one rank drawn by the seed (or on all: then nobody is faulty); "none"
is an episode without. Needs root, cgroup v1, and the programs that tools/install_servers.sh installs. Ctrl-C, kill and
kill -9 leave nothing running behind.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from faults import FAULTS, PROGRAMS, Usual
from isolation import Isolation, NotPossible, Rank
from job import Job
from page import serve
from record import STEP_UNITS, UNITS, Recorder, read_steps
from trainminder.errors import TrainminderError
from trainminder.types import Truth

sys.path.insert(0, str(Path(__file__).parents[1]))
from labelled import declared_flags, write_labelled

EPISODES = ("none", *FAULTS)
#: After a fault, the job runs on alone for this long, so that the next recording begins well.
SETTLE_SECONDS = 10.0


class Episodes:
    """Records one episode after another of one job."""

    def __init__(
        self, asked: argparse.Namespace, ranks: Sequence[Rank], job: Job, recorder: Recorder, folder: Path
    ) -> None:
        self._asked, self._ranks, self._job, self._recorder = asked, ranks, job, recorder
        self._folder = folder
        self._draws = np.random.default_rng(asked.seed)

    def record(self, number: int, name: str) -> None:
        """Record one episode and write it.

        Raises:
            NotPossible: the fault cannot be made, or the job does not train.
        """
        fault = FAULTS.get(name)
        seconds = 60.0 * self._asked.minutes_per_fault
        culprit = self._ranks[int(self._draws.integers(len(self._ranks)))]
        wait = seconds * (0.5 + 0.05 * self._draws.uniform(-1, 1))
        if not self._job.is_alive():
            print("a rank died: the job is started again", file=sys.stderr)
            self._job.start()
        self._job.wait_for_steps(5)
        time.sleep(min(SETTLE_SECONDS, seconds / 10))
        from_at, before = time.time(), self._job.steps()
        time.sleep(wait)
        onset, until_onset = time.time(), self._job.steps()
        hit = [] if fault is None else list(self._ranks) if fault.everywhere else [culprit]
        with ExitStack() as undone:
            if fault is not None:
                usual = self._usual(from_at, onset)
                for rank in hit:
                    undone.callback(fault.inject(rank, usual[rank.name]))
            time.sleep(max(0.0, from_at + seconds - time.time()))
            to_at, after = time.time(), self._job.steps()
            if not self._job.is_alive():
                raise NotPossible(f"a rank died in the episode {name}, which is not written: see for memory and disk")
        time.sleep(1.0)  # the sample of the last second
        truths = [] if fault is None or fault.everywhere else [Truth(culprit.name, None, name, onset, to_at)]
        tags = {
            "set": "real_training",
            "fault": name,
            "scope": "none" if fault is None else "all" if fault.everywhere else "one",
            "size": str(len(self._ranks)),
            "interval": "1",
        }
        # Beside the labels, for people and for look.py; results are broken down by tags, and these are no kinds.
        more = {
            "strength": fault.strength if fault else "-",
            "onset": onset,
            "steps_per_second_before": round((until_onset["rank0"] - before["rank0"]) / (onset - from_at), 2),
            "steps_per_second_after": round((after["rank0"] - until_onset["rank0"]) / (to_at - onset), 2),
        }
        label = f"real-{number:02d}-{name}"
        path = write_labelled(self._asked.output, label, self._table(from_at, to_at), self._units, truths, tags)
        path.with_suffix(".run.json").write_text(json.dumps(more, indent=2) + "\n")
        print(f"{path}: {', '.join(t.machine for t in truths) or 'nobody'} faulty", flush=True)

    @property
    def _units(self) -> dict[str, str]:
        return UNITS | (STEP_UNITS if self._asked.step_timings else {})

    def _usual(self, from_at: float, to_at: float) -> dict[str, Usual]:
        """What each rank used between two instants."""
        rates = self._recorder.rates(from_at, to_at).group_by("machine").agg(pl.col("cpu_usage", "sent_bytes").mean())
        return {name: Usual(cpu / 100, sent, self._folder) for name, cpu, sent in rates.iter_rows()}

    def _table(self, from_at: float, to_at: float) -> pl.DataFrame:
        table = self._recorder.rates(from_at, to_at)
        if not self._asked.step_timings:
            return table
        steps = [
            read_steps(self._job.log(rank))
            .with_columns(pl.col("at").ceil().alias("timestamp"), pl.lit(rank.name).alias("machine"))
            .group_by("timestamp", "machine")
            .agg(pl.col(*STEP_UNITS).mean())
            for rank in self._ranks
        ]
        # A second in which no step ended has no timing, which is missing and not 0.
        return table.join(pl.concat(steps), on=["timestamp", "machine"], how="left")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="on a disk, not on tmpfs")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--faults", default="all", metavar="NAME,...", help=f"all, or of: {', '.join(EPISODES)}")
    parser.add_argument("--minutes-per-fault", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1, help="of culprits, onsets and the training itself")
    parser.add_argument("--step-timings", action="store_true", help="also record the ranks' own timings")
    parser.add_argument(
        "--prometheus-port", type=int, metavar="PORT", help="serve the ranks' counters on 127.0.0.1; 0: a free port"
    )
    parser.add_argument("--short", action="store_true", help="3 ranks, cpu_quota and link_rate, 18 s each")
    asked = parser.parse_args()
    if asked.short:
        asked.ranks, asked.faults, asked.minutes_per_fault = 3, "cpu_quota,link_rate", 0.3
    names = asked.faults.split(",")
    asked.names = list(EPISODES) if names == ["all"] else names
    unknown = [name for name in asked.names if name not in EPISODES]
    if unknown:
        parser.error(f"--faults {','.join(unknown)}: choose of {', '.join(EPISODES)}")
    if asked.ranks < 3:
        parser.error(f"--ranks {asked.ranks}: at least 3, for of two neither stands out")
    return asked


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    asked = _arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        asked.output.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".ranks-", dir=asked.output)))
            isolation = stack.enter_context(Isolation(asked.ranks, folder, PROGRAMS))
            job = Job(isolation.ranks, folder, asked.seed)
            stack.callback(job.stop)
            print(f"starting {asked.ranks} ranks as {isolation.prefix}", flush=True)
            job.start()
            recorder = Recorder(isolation.ranks)
            recorder.start()
            stack.callback(recorder.stop)
            if asked.prometheus_port is not None:
                page = serve(recorder, asked.prometheus_port)
                stack.callback(page.shutdown)
                print(f"counters at http://127.0.0.1:{page.server_port}/metrics (label machine)", flush=True)
            episodes = Episodes(asked, isolation.ranks, job, recorder, folder)
            for place, name in enumerate(asked.names):
                episodes.record(place, name)
            trained = {rank.name: read_steps(job.log(rank)) for rank in isolation.ranks}
        for name, steps in trained.items():
            print(f"{name}: {len(steps)} steps, loss {steps['loss'][0]:.2f} -> {steps['loss'][-1]:.2f}")
        print(f"metrics to admit: {declared_flags(UNITS | (STEP_UNITS if asked.step_timings else {}))}")
    except (NotPossible, TrainminderError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
