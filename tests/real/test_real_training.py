"""A minute of real training with real faults: what is recorded, and that nothing is left behind.

Making machines of one needs root: for anybody else these tests are skipped. As root they need cgroup v1, and fail
without.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from servers import Servers, free_port, prometheus_scraping, until
from trainminder.source.recordings import read_truth

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and cgroups need root: run as root")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "real_training" / "run.py"


def leftovers(name: str) -> list[str]:
    """Network namespaces, cgroups and processes on them that bear a run's name."""
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    groups = [folder for folder in Path("/sys/fs/cgroup").glob("*/**") if folder.name.startswith(f"{name}-")]
    return [*re.findall(rf"^{name}-\S+", spaces, re.MULTILINE), *map(str, groups)]


def is_at_work(pid: str, name: str) -> bool:
    """Whether a process on a machine of the run of that name still runs; one that nobody has reaped does not."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return bool(command) and name in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


@dataclass(frozen=True)
class Trained:
    folder: Path
    printed: str
    scraped: pl.DataFrame

    def episode(self, fault: str) -> tuple[str, pl.DataFrame, pl.DataFrame]:
        """The culprit, and the rows before the fault and from two seconds after its onset."""
        (path,) = self.folder.glob(f"real-*-{fault}.parquet")
        (truth,) = read_truth(path)
        rows = pl.read_parquet(path)
        return (
            truth.machine,
            rows.filter(pl.col("timestamp") < truth.start),
            rows.filter(pl.col("timestamp") > truth.start + 2),
        )

    def steps(self) -> list[tuple[int, float, float]]:
        """Steps, first and last loss of each rank."""
        found = re.findall(r"^rank\d: (\d+) steps, loss ([\d.]+) -> ([\d.]+)$", self.printed, re.MULTILINE)
        return [(int(steps), float(first), float(last)) for steps, first, last in found]


def means(rows: pl.DataFrame, metric: str) -> dict[str, float]:
    return dict(rows.group_by("machine").agg(pl.col(metric).mean()).iter_rows())


def recorded_from(url: str, path: Path) -> pl.DataFrame:
    """What ``trainminder record`` reads of the job from the Prometheus that scraped it."""
    span = ["--from", "-30s", "--to", "now", "--task", "llm", "--machine-label", "machine"]
    command = [sys.executable, "-m", "trainminder", "record", "--prometheus", url, *span, "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pl.read_parquet(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("trained")
    servers, port = Servers(folder), free_port()
    try:
        store = prometheus_scraping(servers, {f"127.0.0.1:{port}": "job"})
        done = subprocess.run(
            [sys.executable, SCRIPT, "-o", folder, "--short", "--prometheus-port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield Trained(folder, done.stdout, recorded_from(store.url, folder / "scraped.parquet"))
    finally:
        servers.stop()


def test_all_ranks_train_in_lock_step_and_learn(trained: Trained) -> None:
    steps = trained.steps()
    assert len(steps) == 3
    counts = [count for count, _, _ in steps]
    assert min(counts) > 100
    assert max(counts) - min(counts) <= 1
    assert all(last < 0.8 * first for _, first, last in steps)


def test_a_cpu_quota_shows_as_throttling_of_the_culprit_alone(trained: Trained) -> None:
    culprit, before, after = trained.episode("cpu_quota")
    throttled = means(after, "throttled_periods")
    assert throttled.pop(culprit) > 5
    assert max(throttled.values()) < 1
    assert max(means(before, "throttled_periods").values()) < 1


def test_a_slow_link_of_one_rank_slows_what_all_of_them_send(trained: Trained) -> None:
    culprit, before, after = trained.episode("link_rate")
    usual, sent = means(before, "sent_bytes"), means(after, "sent_bytes")
    assert sent[culprit] < 0.5 * usual[culprit]
    assert all(sent[machine] < 0.7 * usual[machine] for machine in usual)


def test_every_rank_is_recorded_each_second_with_nothing_made_up(trained: Trained) -> None:
    for path in trained.folder.glob("real-*.parquet"):
        rows = pl.read_parquet(path)
        assert rows["machine"].unique().sort().to_list() == ["rank0", "rank1", "rank2"]
        assert rows["timestamp"].n_unique() >= 12
        assert (rows["timestamp"] % 1 == 0).all()
        assert rows["cpu_usage"].is_between(0.5, 100).all()


def test_a_prometheus_that_scrapes_the_job_gives_its_machines_to_the_product(trained: Trained) -> None:
    rows = trained.scraped.drop_nulls("cpu_usage")
    assert rows["machine"].unique().sort().to_list() == ["rank0", "rank1", "rank2"]
    assert {"memory_usage", "tcp_throughput"} <= set(rows.columns)
    assert all(0.5 < cpu < 100 for cpu in means(rows, "cpu_usage").values())


def test_nothing_is_left_of_a_run(trained: Trained) -> None:
    (name,) = re.findall(r"as (tmreal\d+)$", trained.printed, re.MULTILINE)
    assert leftovers(name) == []
    assert list(trained.folder.glob(".ranks-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_run_that_is_ended_early_takes_its_machines_and_processes_along(tmp_path: Path, number: int) -> None:
    with subprocess.Popen([sys.executable, SCRIPT, "-o", tmp_path, "--short"], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        name = run.stdout.readline().decode().split()[-1]
        groups = [Path(place) for place in leftovers(name) if place.startswith("/") and place.endswith("-0")]
        until(lambda: any((group / "cgroup.procs").read_text() for group in groups), "the first rank")
        pids = [pid for group in groups for pid in (group / "cgroup.procs").read_text().split()]
        run.send_signal(number)
    until(lambda: leftovers(name) == [], "the machines to be gone")
    assert pids
    until(lambda: not any(is_at_work(pid, name) for pid in pids), "the ranks to be gone")
