"""For every test: no settings from outside. For the report: passes over machines that move alike, but for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from trainminder.types import (
    Coverage,
    Evidence,
    MetricSpec,
    MetricTrace,
    Panel,
    PassResult,
    Status,
    Verdict,
    View,
    WindowScores,
)

NOW = 1_772_361_000.0  # 2026-03-01 10:30:00 UTC
WINDOW = 8
THRESHOLD = 5.1

PassMaker = Callable[..., PassResult]


def make_trace(
    machines: Sequence[str],
    *,
    metric: str = "pcie_bandwidth",
    unit: str = "bytes/s",
    level: float = 12.2e9,
    seconds: int = 600,
    odd_one: int | None = 3,
    onset_second: int = 300,
    padded: Sequence[tuple[int, int, int]] = (),
    view: View = "mean",
    seed: int = 7,
) -> MetricTrace:
    """One metric of machines that move alike, 2 % apart; from ``onset_second`` the odd one falls to a third.

    Args:
        padded: (machine index, first second, last second) stretches without samples.
    """
    random = np.random.default_rng(seed)
    count, windows = len(machines), seconds - WINDOW + 1
    values = level * (1 + 0.05 * np.sin(np.arange(seconds) / 9) + 0.02 * random.standard_normal((count, seconds)))
    score = np.clip(0.6 * random.standard_normal((count, windows)), -1.5, 3.5)
    if odd_one is not None:
        values[odd_one, onset_second:] *= 1 / 3
        score[odd_one, onset_second:] += 12.0
    present = np.ones((count, seconds), dtype=bool)
    for machine, first, last in padded:
        present[machine, first : last + 1] = False
        values[machine, first : last + 1] = values[machine, max(first - 1, 0)]
    times = NOW + np.arange(seconds, dtype=np.float64)
    rows = np.repeat(np.arange(count, dtype=np.int64)[:, np.newaxis], windows, axis=1)
    panel = Panel(
        metric=metric,
        view=view,
        machines=tuple(machines),
        step_seconds=1.0,
        times=times,
        values=values,
        present=present,
        row_machine=np.arange(count, dtype=np.int64),
        row_device=(None,) * count,
        rows=rows,
        window_samples=WINDOW,
    )
    scores = WindowScores(
        metric=metric,
        view=view,
        machines=tuple(machines),
        ends_at=times[WINDOW - 1 :],
        step_seconds=1.0,
        dissimilarity=np.abs(score),
        normal_score=score,
        threshold=np.full((count, windows), THRESHOLD),
        group_of=np.zeros(count, dtype=np.int64),
    )
    spec = MetricSpec(name=metric, unit=unit, description="Traffic between host and device")
    return MetricTrace(spec=spec, panel=panel, scores=scores)


def make_pass(
    *,
    machines: int | Sequence[str] = 16,
    status: Status = "faulty",
    task: str = "llm-7",
    device: str | None = "gpu5",
    odd_one: int = 3,
    onset_second: int = 300,
    seconds: int = 600,
    reason: str | None = None,
    warnings: Sequence[str] = (),
    padded: Sequence[tuple[int, int, int]] = (),
    metric: str = "pcie_bandwidth",
    traces: bool = True,
    absent: Sequence[str] = ("cnp_packet_rate", "pfc_tx_packet_rate"),
) -> PassResult:
    """A pass over machines gpu-00, gpu-01, ...: ``odd_one`` is faulty, or nobody is."""
    names = [f"gpu-{index:02d}" for index in range(machines)] if isinstance(machines, int) else list(machines)
    onset = NOW + onset_second
    is_faulty = status == "faulty"
    evidence = Evidence(
        kind="metric",
        metric=metric,
        view="mean",
        device=device,
        since=onset,
        until=onset + 241,
        score=12.3,
        threshold=THRESHOLD,
        value=4.07e9,
        peers=12.2e9,
        unit="bytes/s",
        text=f"{metric} is a third of the peers'",
    )
    verdict = Verdict(
        machine=names[odd_one],
        device=device,
        metric=metric,
        onset=onset,
        confirmed=onset + 241,
        score=12.3,
        evidence=(evidence,),
    )
    pictures: tuple[MetricTrace, ...] = ()
    if traces:
        first = make_trace(
            names,
            metric=metric,
            seconds=seconds,
            odd_one=odd_one if is_faulty else None,
            onset_second=onset_second,
            padded=padded,
        )
        second = make_trace(
            names, metric="cpu_usage", unit="percent", level=41.0, seconds=seconds, odd_one=None, view="machine"
        )
        pictures = (first, second)
    return PassResult(
        task=task,
        method="paper",
        from_at=NOW,
        to_at=NOW + seconds,
        machines=tuple(names),
        status=status,
        reason=reason,
        verdicts=(verdict,) if is_faulty else (),
        coverage=Coverage(
            machines_seen=len(names),
            samples_missing=0.003,
            metrics_used=(metric, "cpu_usage"),
            metrics_absent=tuple(absent),
        ),
        warnings=tuple(warnings),
        traces=pictures,
    )


@pytest.fixture
def a_pass() -> PassMaker:
    """Builds a ``PassResult``: see ``make_pass``."""
    return make_pass


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TRAINMINDER_")]:
        monkeypatch.delenv(name)
