"""Fixtures that start real servers (``servers.py``) for one test and end them after it.

def test_x(prometheus_with, make_series): store = prometheus_with([make_series(...)]); store.url
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import servers as support
from servers import Series, Server, Servers, exposition
from trainminder.types import RawTask


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Starts servers for one test; all are ended after it."""
    started = Servers(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def prometheus_with(servers: Servers) -> Callable[[Iterable[Series]], Server]:
    """Start a Prometheus that holds these series (backfilled before it starts, so they are there at once)."""
    return lambda series: support.prometheus_with(servers, series)


@pytest.fixture
def victoria_metrics_with(servers: Servers) -> Callable[[Iterable[Series]], Server]:
    """Start a VictoriaMetrics that holds these series."""
    return lambda series: support.victoria_metrics_with(servers, series)


@pytest.fixture
def prometheus_scraping(servers: Servers) -> Callable[[Mapping[str, str]], Server]:
    """Start a Prometheus that scrapes these targets each second: address -> value of the label ``instance``."""
    return lambda targets: support.prometheus_scraping(servers, targets)


@pytest.fixture
def prometheus_discovering(servers: Servers) -> Callable[[str], Server]:
    """Start a Prometheus that scrapes each second what an HTTP service discovery lists."""
    return lambda url: support.prometheus_discovering(servers, url)


@pytest.fixture
def node_exporter(servers: Servers) -> Callable[[], Server]:
    """Start node_exporter with its usual collectors."""
    return lambda: servers.start(
        "prometheus-node-exporter",
        "prometheus-node-exporter",
        lambda port, _: [f"--web.listen-address=127.0.0.1:{port}"],
        "/metrics",
    )


@pytest.fixture
def series_of() -> Callable[[RawTask, Mapping[str, str]], list[Series]]:
    """A task as series to store."""
    return support.series_of


@pytest.fixture
def make_series() -> Callable[..., Series]:
    """Build one series: ``make_series(name, labels, times, values)``."""
    return lambda name, labels, times, values: Series(
        name, labels, np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    )


@pytest.fixture
def openmetrics_text() -> Callable[[Iterable[Series]], str]:
    """Series as OpenMetrics text, the input of ``promtool tsdb create-blocks-from openmetrics``."""
    return lambda series: "".join(exposition(series, 1)) + "# EOF\n"
