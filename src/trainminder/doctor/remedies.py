"""Who gives a metric, and what to do there: words only. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainminder.types import FoundAs, MetricSpec, RawTask

__all__ = ["exporter_of", "exporters_of", "family_of", "to_get", "to_restart", "to_speed_up"]


def exporter_of(raw: RawTask, metric: str) -> str | None:
    """The exporter a metric came from; None where the source does not know, as with recordings."""
    source = raw.sources.get(metric)
    return source.exporter if source else None


def exporters_of(raw: RawTask, metrics: Iterable[str]) -> str:
    """The exporters of these metrics in words."""
    names = sorted({name for metric in metrics if (name := exporter_of(raw, metric))})
    return " and ".join(names) or "the exporter"


def to_restart(raw: RawTask, metrics: Iterable[str], machines: str) -> str:
    return f"restart {exporters_of(raw, metrics)} on {machines}"


def to_speed_up(exporter: str, seconds: float) -> str:
    """How to have an exporter's values more often than each ``seconds``."""
    if exporter.startswith("dcgm"):
        return (
            f"dcgm-exporter samples every {seconds:g} s: set its collect interval (--collect-interval, milliseconds) "
            "and the store's scrape interval lower for faster detection"
        )
    return f"set the scrape interval of {exporter} lower for faster detection"


def family_of(spec: MetricSpec | None) -> str:
    """Which part of which exporter gives a metric; metrics of one family share a remedy."""
    if spec is None or not spec.queries:
        return "unknown"
    first = spec.queries[0]
    text = f"{first.query} {first.selector or ''}"
    for mark, family in (
        ("_PROF_", "profiling"),
        ("DCGM_", "dcgm"),
        ("node_ethtool", "ethtool"),
        ("infiniband", "rdma"),
        ("rdma_", "rdma"),
        ("node_", "node"),
    ):
        if mark in text:
            return family
    return first.exporter


_TO_GET: Mapping[str, str] = {
    "profiling": "load dcgm-exporter's profiling module and list the DCGM_FI_PROF fields in its counters file",
    "dcgm": "see that dcgm-exporter runs, is scraped with the task's labels, and lists the fields in its counters file",
    "ethtool": "turn on node_exporter's ethtool collector (--collector.ethtool) on the machines' RDMA network devices",
    "rdma": "turn on node_exporter's infiniband collector, or run an exporter of RDMA hardware counters",
    "node": "see that node_exporter runs and is scraped with the task's labels",
    "unknown": "name its query in the settings under metrics.NAME.queries",
}


def to_get(family: str, sources: Mapping[str, FoundAs]) -> str:
    """How to have the metrics of a family."""
    if sources and all(source.exporter is None for source in sources.values()):
        return "record it, or rename its column with --column FROM=TO, if the recording has it under another name"
    return _TO_GET.get(family, f"see that {family} runs and is scraped with the task's labels")
