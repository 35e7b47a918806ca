"""A field that reads 0 on a device at work is the exporter's fault, and convicts nobody."""

from __future__ import annotations

import numpy as np
import pytest

from small_tasks import series_of, task_of, undenoised
from trainminder.pipeline import run_pass
from trainminder.settings import DetectSettings
from trainminder.suspect import without_dead_fields
from trainminder.types import FloatArray, MetricSpec, PassResult, RawTask

SPECS = (
    MetricSpec("gpu_duty_cycle", "percent", 0.0, 100.0, level="device", spread=3.0),
    MetricSpec("gpu_graphics_activity", "ratio", 0.0, 1.0, level="device", spread=0.02),
    MetricSpec("nvlink_bandwidth", "bytes/s", 0.0, level="device"),
)
SECONDS = 600


def noisy(level: float, seed: int, device: str = "/gpu0") -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    return {f"node-{m}{device}": level * (1 + 0.01 * rng.standard_normal(SECONDS)) for m in range(6)}


def task(duty: dict[str, FloatArray], graphics: dict[str, FloatArray], *more: dict[str, FloatArray]) -> RawTask:
    metrics = [series_of(spec.name, values) for spec, values in zip(SPECS, (duty, graphics, *more), strict=False)]
    return task_of(*metrics, specs=SPECS)


def judged(raw: RawTask) -> PassResult:
    return run_pass(raw, DetectSettings(), undenoised)[0]


@pytest.mark.parametrize("device", ["/gpu0", ""])
@pytest.mark.parametrize("since", [0, 200])
def test_a_dead_field_is_not_trusted_and_the_machine_is_judged_by_the_rest(since: int, device: str) -> None:
    duty, graphics = noisy(95, 1, device), noisy(0.9, 2, device)
    graphics[f"node-2{device}"][since:] = 0.0
    result = judged(task(duty, graphics))
    assert (result.status, result.verdicts) == ("none", ())
    (said,) = [line for line in result.warnings if "disagrees" in line]
    assert "gpu_graphics_activity on node-2 disagrees with gpu_duty_cycle" in said
    assert f"({SECONDS - since} samples)" in said
    duty[f"node-2{device}"][100:] = 40.0
    (verdict,) = judged(task(duty, graphics)).verdicts
    assert (verdict.machine, verdict.metric) == ("node-2", "gpu_duty_cycle")


def test_a_device_that_does_nothing_by_every_field_is_judged() -> None:
    duty, graphics = noisy(95, 1), noisy(0.9, 2)
    duty["node-2/gpu0"][200:] = 0.0
    graphics["node-2/gpu0"][200:] = 0.0
    raw = task(duty, graphics)
    assert without_dead_fields(raw, 8) == (raw, ())
    assert judged(raw).verdicts[0].machine == "node-2"


def test_a_silent_link_of_a_working_device_is_a_sign() -> None:
    links = noisy(1e11, 3)
    links["node-2/gpu0"][200:] = 0.0
    raw = task(noisy(95, 1), noisy(0.9, 2), links)
    assert without_dead_fields(raw, 8) == (raw, ())
    assert judged(raw).verdicts[0].metric == "nvlink_bandwidth"


def with_tensor(graphics: dict[str, FloatArray]) -> RawTask:
    tensor = noisy(0.6, 4)
    tensor["node-2/gpu0"][200:] = 0.0
    spec = MetricSpec("gpu_tensor_activity", "ratio", 0.0, 1.0, level="device", spread=0.02)
    values = (noisy(95, 1), graphics, tensor)
    specs = (*SPECS[:2], spec)
    return task_of(*(series_of(s.name, v) for s, v in zip(specs, values, strict=True)), specs=specs)


def test_a_busy_device_that_does_no_work_is_a_sign_and_no_dead_field() -> None:
    (verdict,) = judged(with_tensor(noisy(0.9, 2))).verdicts
    assert (verdict.machine, verdict.metric) == ("node-2", "gpu_tensor_activity")


def test_where_the_profiling_module_is_dead_none_of_its_fields_is_trusted() -> None:
    graphics = noisy(0.9, 2)
    graphics["node-2/gpu0"][200:] = 0.0
    result = judged(with_tensor(graphics))
    assert (result.status, result.verdicts) == ("none", ())
    assert sum("disagrees with gpu_duty_cycle" in line for line in result.warnings) == 2


def test_a_moment_of_rest_and_what_most_machines_do_are_left() -> None:
    graphics = noisy(0.9, 2)
    graphics["node-2/gpu0"][200:207] = 0.0
    raw = task(noisy(95, 1), graphics)
    assert without_dead_fields(raw, 8) == (raw, ())
    for name in list(graphics)[:3]:
        graphics[name][:] = 0.0
    raw = task(noisy(95, 1), graphics)
    assert without_dead_fields(raw, 8) == (raw, ())
