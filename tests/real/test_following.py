"""A task followed in a real store: only what is new is asked for, and the verdict is that of asking for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from servers import series_of
from trainminder.catalogue import load_catalogue
from trainminder.errors import MembershipError
from trainminder.settings import DetectSettings, MembershipSettings, StoreSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.prometheus import Followed, PrometheusSource, StoreClient
from trainminder.stream import TaskStream, run_pass
from trainminder.types import RawTask, Task

NAMES = {
    "gpu_power_draw": "DCGM_FI_DEV_POWER_USAGE",
    "gpu_tensor_activity": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "gpu_temperature": "DCGM_FI_DEV_GPU_TEMP",
}
START, SECONDS = 1_764_580_000.0, 600
TASK = Task("llm-7", matcher='task="llm-7"')
Build = Callable[..., Any]


@pytest.fixture(params=["prometheus_with", "victoria_metrics_with"])
def store_with(request: pytest.FixtureRequest) -> Build:
    start: Build = request.getfixturevalue(request.param)
    return start


def simulated() -> RawTask:
    spec = ClusterSpec(
        machines=8,
        seed=5,
        duration_seconds=SECONDS,
        start_at=START,
        task="llm-7",
        metrics=tuple(NAMES),
        phase_ratio=0.0,
        jitter_ratio=0.0,
    )
    return simulate_task(spec, [Fault(5, "thermal_throttling", onset_seconds=200.0)], specs=load_catalogue())[0]


def no_model(name: str) -> Any:
    raise AssertionError(name)


@contextmanager
def source_of(url: str) -> Iterator[tuple[StoreClient, PrometheusSource]]:
    store = StoreSettings(url=url, retries=1)
    with StoreClient(store) as client:
        yield client, PrometheusSource(client, load_catalogue(), store, MembershipSettings(), tuple(NAMES))


def test_what_is_new_is_asked_for_and_judged_as_all_of_it_would_be(store_with: Build) -> None:
    url, settings = store_with(series_of(simulated(), NAMES)).url, DetectSettings()
    with source_of(url) as (client, source):
        followed = Followed(source, TASK, START, settings.lag_seconds)
        stream, sizes = TaskStream(settings, no_model), []
        for end in np.arange(START + 10.0, START + SECONDS + 1.0, 10.0).tolist():
            before = client.spent
            raw = followed.new(end)
            assert raw is not None
            sizes.append(client.spent.size - before.size)
            assert min(float(metric.times.min()) for metric in raw.metrics) >= max(START, end - 25.0)
            stream.take(raw)
        whole = source.fetch_raw(TASK, START, START + SECONDS)
    result, passed = stream.result(), run_pass(whole, settings, no_model)
    assert [verdict.machine for verdict in passed.verdicts] == ["machine-0005"]
    assert result.verdicts == passed.verdicts
    assert result.coverage == passed.coverage
    # What a cycle asks for does not grow with what came before, but for a look at the sampling now and then.
    assert np.median(sizes[-20:]) < 1.05 * np.median(sizes[:20])


def test_nothing_new_is_no_error_but_no_task_is(store_with: Build) -> None:
    url = store_with(series_of(simulated(), NAMES)).url
    with source_of(url) as (_, source):
        unknown = Followed(source, Task("llm-8", matcher='task="llm-8"'), START, 10.0)
        with pytest.raises(MembershipError, match='no such task "llm-8"'):
            unknown.new(START + 60.0)
        followed = Followed(source, TASK, START + SECONDS - 30.0, 10.0)
        first = followed.new(START + SECONDS - 1.0)
        assert first is not None
        # What lies in the overlap may be given again, and nothing else.
        again = followed.new(START + SECONDS + 5000.0)
        assert again is None or min(float(each.times.min()) for each in again.metrics) >= START + SECONDS - 15.0


def test_samples_that_come_late_are_asked_for_until_they_are_there(store_with: Build) -> None:
    """A store that hides its newest samples answers nothing for a while: they are not lost."""
    url = store_with(series_of(simulated(), NAMES)).url
    with source_of(url) as (_, source):
        followed = Followed(source, TASK, START, 10.0)
        taken = [followed.new(START + 60.0), followed.new(START + 60.5), followed.new(START + 200.0)]
    times = np.concatenate([metric.times for raw in taken if raw for metric in raw.metrics])
    assert set(np.unique(times)) >= set(START + np.arange(1.0, 200.0))
