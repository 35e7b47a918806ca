"""Real servers for tests: each on a free port of this host, in its own folder, ended by its process id.

    def test_x(prometheus_with, make_series):
        url = prometheus_with([make_series("up", {"instance": "a"}, times, values)]).url

A missing server fails the test and says what to install.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainminder.types import FloatArray, RawTask

LONGEST_START_SECONDS = 30.0


@dataclass(frozen=True)
class Series:
    """One series to be stored: its name, labels, instants (Unix seconds) and values."""

    name: str
    labels: Mapping[str, str]
    times: FloatArray
    values: FloatArray


@dataclass(frozen=True)
class Server:
    """A server that is up."""

    url: str
    pid: int
    folder: Path


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Servers:
    """Starts servers and ends those it started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, binary: str, package: str, arguments: Callable[[int, Path], list[str]], ready: str) -> Server:
        """Start a server and wait until it answers.

        Args:
            binary, package: the program, and the Debian package that holds it.
            arguments: (port, folder) -> command line arguments.
            ready: path that answers 200 once it is up.
        """
        program = needed(binary, package)
        port = free_port()
        folder = self._folder / f"{binary}-{port}"
        folder.mkdir(parents=True)
        log = folder / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen([program, *arguments(port, folder)], stdout=stream, stderr=stream, cwd=folder)
        self._running.append(process)
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(url + ready), f"{binary} to start ({log})", process)
        return Server(url, process.pid, folder)

    def stop(self) -> None:
        """End every server that was started here."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def needed(binary: str, package: str) -> str:
    """The path of a program; its absence fails the test."""
    found = shutil.which(binary)
    if found is None:
        raise RuntimeError(f"{binary} is not installed: apt-get install {package}")
    return found


def answers(url: str) -> bool:
    """Whether an address answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - always http to this host
            return bool(response.status == 200)
    except OSError:
        return False


def until(is_so: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for something, at most half a minute."""
    deadline = time.monotonic() + LONGEST_START_SECONDS
    while not is_so():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"waited for {what}, but the process ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {LONGEST_START_SECONDS:g} s for {what}")
        time.sleep(0.05)


def exposition(series: Iterable[Series], scale: int) -> Iterator[str]:
    """Lines of exposition text; instants times ``scale`` (1: OpenMetrics seconds, 1000: milliseconds)."""
    for one in series:
        labels = ",".join(f'{name}="{value}"' for name, value in one.labels.items())
        head = f"{one.name}{{{labels}}} "
        for at, value in zip(one.times.tolist(), one.values.tolist(), strict=True):
            instant = f"{at:.3f}" if scale == 1 else str(round(at * scale))
            yield f"{head}{value!r} {instant}\n"


def prometheus_with(servers: Servers, series: Iterable[Series]) -> Server:
    """Start a Prometheus that holds these series (backfilled before it starts, so they are there at once)."""

    tool = needed("promtool", "prometheus")

    def arguments(port: int, folder: Path) -> list[str]:
        text, data = folder / "samples.om", folder / "data"
        # promtool drops samples that go back in time, and families may interleave: sorted by series is enough.
        with text.open("w") as stream:
            stream.writelines(exposition(series, 1))
            stream.write("# EOF\n")
        subprocess.run(
            [tool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
            check=True,
            capture_output=True,
        )
        (folder / "prometheus.yml").write_text("global: {scrape_interval: 1s}\n")
        return [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address=127.0.0.1:{port}",
            # Blocks older than the retention are deleted at the start.
            "--storage.tsdb.retention.time=50y",
        ]

    return servers.start("prometheus", "prometheus", arguments, "/-/ready")


def victoria_metrics_with(servers: Servers, series: Iterable[Series]) -> Server:
    """Start a VictoriaMetrics that holds these series."""

    server = servers.start(
        "victoria-metrics",
        "victoria-metrics",
        lambda port, folder: [
            f"-storageDataPath={folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=600",
            # The newest 30 s are hidden and backfilled data may come from a stale cache otherwise.
            "-search.latencyOffset=0s",
            "-search.disableCache",
        ],
        "/health",
    )
    body = "".join(exposition(series, 1000)).encode()
    request = urllib.request.Request(f"{server.url}/api/v1/import/prometheus", data=body)  # noqa: S310
    urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - http to this host
    urllib.request.urlopen(f"{server.url}/internal/force_flush", timeout=60).close()  # noqa: S310
    return server


def prometheus_scraping(servers: Servers, targets: Mapping[str, str]) -> Server:
    """Start a Prometheus that scrapes these targets each second: address -> value of the label ``instance``."""
    entries = "".join(
        f"  - targets: ['{address}']\n    labels: {{instance: '{name}', task: 'llm'}}\n"
        for address, name in targets.items()
    )
    return _prometheus_of(servers, f"- job_name: node\n  static_configs:\n{entries}")


def prometheus_discovering(servers: Servers, url: str) -> Server:
    """Start a Prometheus that scrapes each second what an HTTP service discovery lists."""
    return _prometheus_of(servers, f"- job_name: discovered\n  http_sd_configs: [{{url: '{url}'}}]\n")


def _prometheus_of(servers: Servers, jobs: str) -> Server:
    def arguments(port: int, folder: Path) -> list[str]:
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 1s, scrape_timeout: 900ms}}\nscrape_configs:\n{jobs}"
        )
        return [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]

    return servers.start("prometheus", "prometheus", arguments, "/-/ready")


def series_of(raw: RawTask, names: Mapping[str, str]) -> list[Series]:
    """A task as series to store: names maps each canonical metric to the exporter's series name.

    Every series carries ``instance`` (the machine with the exporter's port), ``task``, and ``gpu`` where it has a
    device. Metrics without a name are left out.
    """
    made = []
    for metric in raw.metrics:
        if metric.metric not in names:
            continue
        for i, (machine, device) in enumerate(zip(metric.machines, metric.devices, strict=True)):
            part = slice(int(metric.offsets[i]), int(metric.offsets[i + 1]))
            labels = {"instance": f"{machine}:9400", "job": "gpu", "task": raw.task}
            if device is not None:
                labels["gpu"] = device.removeprefix("gpu")
            made.append(Series(names[metric.metric], labels, metric.times[part], metric.values[part]))
    return made
