"""Follow a task of a real VictoriaMetrics: what a cycle costs the store and us, beside asking for all of it each time.

    python benchmarks/fetch.py [--machines 1500] [--metrics 7] [--cycles 30]

A store is started on this machine and given a simulated task at one sample a second. Every ten seconds of data a
watcher asks it for what is new, judges it, and looks at the verdict. The other watcher asks for the last quarter of an
hour each time and judges that. Times are medians of a cycle; the store and the watcher share the processor, and while
the store is waited for, what has come is read: seconds of processor time say what the watcher itself takes.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import NoReturn

from trainminder.allocator import keep_freed_memory
from trainminder.bench.speed import METRICS, Size, compile_first, speed_task
from trainminder.catalogue import load_catalogue
from trainminder.settings import DetectSettings, MembershipSettings, StoreSettings
from trainminder.source.prometheus import Followed, PrometheusSource, StoreClient
from trainminder.stream import TaskStream, run_pass
from trainminder.types import MetricQuery, MetricSpec, PassResult, RawTask, Task

EVERY, WINDOW = 10.0, 900.0


@dataclass(frozen=True)
class Cycle:
    """Seconds: ``fetched`` in all, ``waited`` for the store (requests overlap), ``ours`` of processor time in fetching
    and ``judging``."""

    fetched: float
    waited: float
    ours: float
    judging: float
    mib: float


@contextmanager
def victoria_metrics(raw: RawTask) -> Iterator[str]:
    """A store with this task, until it is left."""
    binary = shutil.which("victoria-metrics")
    if binary is None:
        raise SystemExit("victoria-metrics is not there: tools/install_servers.sh installs it")
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        free.close()
        arguments = [f"-storageDataPath={folder}", f"-httpListenAddr={url.removeprefix('http://')}"]
        # It drops what is older than it keeps, and hides the newest 30 s otherwise.
        arguments += ["-retentionPeriod=600", "-search.latencyOffset=0s", "-search.disableCache", "-loggerLevel=ERROR"]
        with (Path(folder) / "log").open("w") as log, subprocess.Popen([binary, *arguments], stderr=log) as store:
            try:
                _until_ready(url, store)
                for metric in raw.metrics:
                    _post(f"{url}/api/v1/import", "".join(_lines(raw, metric.metric)).encode())
                _post(f"{url}/internal/force_flush", b"")
                yield url
            finally:
                store.terminate()


def _until_ready(url: str, store: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1).close()  # noqa: S310 - http to this host
        except OSError:
            if store.poll() is not None:
                raise SystemExit("victoria-metrics ended before it was ready") from None
            time.sleep(0.1)
        else:
            return
    raise SystemExit("victoria-metrics is not ready after 30 s")


def _post(url: str, body: bytes) -> None:
    urllib.request.urlopen(url, data=body, timeout=300).close()  # noqa: S310 - http to this host


def _lines(raw: RawTask, name: str) -> Iterator[str]:
    metric = next(each for each in raw.metrics if each.metric == name)
    for row, machine in enumerate(metric.machines):
        part = slice(int(metric.offsets[row]), int(metric.offsets[row + 1]))
        labels = {"__name__": f"bench_{name}", "instance": machine, "task": raw.task}
        times = [round(at * 1000) for at in metric.times[part].tolist()]
        yield json.dumps({"metric": labels, "values": metric.values[part].tolist(), "timestamps": times}) + "\n"


def specs_of(metrics: Sequence[str]) -> dict[str, MetricSpec]:
    """The catalogue's metrics, asked for by the names that they have in the store."""
    catalogue = load_catalogue()
    return {
        name: replace(catalogue[name], queries=(MetricQuery("bench", f"bench_{name}{{$matcher}}", "gauge"),))
        for name in metrics
    }


def timed(client: StoreClient, fetch: Callable[[], RawTask | None], judge: Callable[[RawTask], PassResult]) -> Cycle:
    """One cycle."""
    before, began, used = client.spent, time.perf_counter(), _used()
    raw = fetch()
    fetched, ours = time.perf_counter() - began, _used() - used
    if raw is None:
        raise SystemExit("the store gave nothing new")
    used = _used()
    judge(raw)
    spent = client.spent
    return Cycle(fetched, spent.seconds - before.seconds, ours, _used() - used, (spent.size - before.size) / 2**20)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=1500)
    parser.add_argument("--metrics", type=int, default=7)
    parser.add_argument("--cycles", type=int, default=30)
    asked = parser.parse_args()
    keep_freed_memory()
    raw = speed_task(Size(asked.machines, asked.metrics, int(WINDOW + EVERY * asked.cycles)))
    compile_first()
    specs, settings = specs_of(METRICS[: asked.metrics]), DetectSettings()
    task, begin = Task(raw.task, matcher=f'task="{raw.task}"'), math.ceil(raw.from_at)
    with victoria_metrics(raw) as url, StoreClient(StoreSettings(url=url)) as client:
        source = PrometheusSource(client, specs, StoreSettings(url=url), MembershipSettings())
        followed = Followed(source, task, begin, settings.lag_seconds)
        stream = TaskStream(settings, _no_model)

        def take(piece: RawTask) -> PassResult:
            stream.take(piece)
            return stream.result()

        first = timed(client, lambda: followed.new(begin + WINDOW), take)
        ends = [begin + WINDOW + EVERY * number for number in range(1, asked.cycles + 1)]
        new = [timed(client, lambda at=end: followed.new(at), take) for end in ends]  # type: ignore[misc]
        few = ends[:: max(len(ends) // 5, 1)]
        whole = [
            timed(
                client,
                lambda at=end: source.fetch_raw(task, at - WINDOW, at),  # type: ignore[misc]
                lambda piece: run_pass(piece, settings, _no_model),
            )
            for end in few
        ]
        print(f"{asked.machines} machines x {asked.metrics} metrics at 1 s, simulated, from VictoriaMetrics")
        print(f"{'':<34}{'only what is new':>18}{'all of 900 s':>14}{'ratio':>8}")
        for title, part in (
            ("a cycle's fetch, s", "fetched"),
            ("  the store's answers, s", "waited"),
            ("  our processor time, s", "ours"),
            ("judging, processor time, s", "judging"),
            ("answers, MiB", "mib"),
        ):
            mine, other = (median(getattr(cycle, part) for cycle in cycles) for cycles in (new, whole))
            print(f"{title:<34}{mine:>18.3f}{other:>14.3f}{other / mine:>8.1f}")
        print(f"the first cycle, which asks for all: {first.fetched:.2f} s, judged in {first.judging:.2f} s")
        print(f"verdict: {', '.join(verdict.machine for verdict in stream.result().verdicts) or 'none'}")


def _no_model(name: str) -> NoReturn:
    raise AssertionError(name)


if __name__ == "__main__":
    main()
