"""A field that reads 0 on a device at work is the exporter's fault, and convicts nobody."""

from __future__ import annotations

import numpy as np
import pytest

from small_tasks import pieces_of, series_of, task_of, undenoised
from trainminder.align import Cells, cells_of
from trainminder.pipeline import METHODS
from trainminder.settings import DetectSettings
from trainminder.stream import TaskStream, run_pass
from trainminder.suspect import Distrusted, distrust_lines, without_dead_fields
from trainminder.types import FloatArray, MetricSpec, PassResult, RawTask

SPECS = (
    MetricSpec("gpu_duty_cycle", "percent", 0.0, 100.0, level="device", spread=3.0),
    MetricSpec("gpu_graphics_activity", "ratio", 0.0, 1.0, level="device", spread=0.02),
    MetricSpec("nvlink_bandwidth", "bytes/s", 0.0, level="device"),
)
TENSOR = MetricSpec("gpu_tensor_activity", "ratio", 0.0, 1.0, level="device", spread=0.02)
SECONDS = 600


def noisy(level: float, seed: int, device: str = "/gpu0") -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    return {f"node-{m}{device}": level * (1 + 0.01 * rng.standard_normal(SECONDS)) for m in range(6)}


def task(duty: dict[str, FloatArray], graphics: dict[str, FloatArray], *more: dict[str, FloatArray]) -> RawTask:
    metrics = [series_of(spec.name, values) for spec, values in zip(SPECS, (duty, graphics, *more), strict=False)]
    return task_of(*metrics, specs=SPECS)


def trusted(raw: RawTask) -> tuple[dict[str, Cells], Distrusted]:
    return without_dead_fields({metric.metric: cells_of(metric) for metric in raw.metrics})[:2]


def assert_all_is_trusted(raw: RawTask) -> None:
    cells, distrusted = trusted(raw)
    assert distrusted == Distrusted()
    assert all(each.present.all() for each in cells.values())


def judged(raw: RawTask) -> PassResult:
    return run_pass(raw, DetectSettings(), undenoised)


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
    assert_all_is_trusted(raw)
    assert judged(raw).verdicts[0].machine == "node-2"


def test_a_silent_link_of_a_working_device_is_a_sign() -> None:
    links = noisy(1e11, 3)
    links["node-2/gpu0"][200:] = 0.0
    raw = task(noisy(95, 1), noisy(0.9, 2), links)
    assert_all_is_trusted(raw)
    assert judged(raw).verdicts[0].metric == "nvlink_bandwidth"


def with_tensor(graphics: dict[str, FloatArray]) -> RawTask:
    tensor = noisy(0.6, 4)
    tensor["node-2/gpu0"][200:] = 0.0
    values = (noisy(95, 1), graphics, tensor)
    specs = (*SPECS[:2], TENSOR)
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


def test_a_contradicted_zero_counts_as_missing_at_once_and_a_warning_waits_for_more_than_a_moment_of_them() -> None:
    graphics = noisy(0.9, 2)
    graphics["node-2/gpu0"][200:207] = 0.0
    cells, distrusted = trusted(task(noisy(95, 1), graphics))
    missing = ~cells["gpu_graphics_activity"].present
    assert [(row, cell) for row, cell in np.argwhere(missing).tolist()] == [(2, cell) for cell in range(200, 207)]
    assert np.isnan(cells["gpu_graphics_activity"].values[missing]).all()
    assert cells["gpu_duty_cycle"].present.all()
    assert distrusted.samples == {("gpu_graphics_activity", "node-2"): 7}
    assert distrust_lines(distrusted, 8) == []
    (line,) = distrust_lines(distrusted, 7)
    assert "gpu_graphics_activity on node-2 disagrees with gpu_duty_cycle" in line


def test_zeros_are_trusted_again_as_soon_as_the_device_rests_by_every_field() -> None:
    duty, graphics = noisy(95, 1), noisy(0.9, 2)
    graphics["node-2/gpu0"][200:300] = 0.0
    duty["node-2/gpu0"][250:300] = 0.0
    cells, _ = trusted(task(duty, graphics))
    assert np.flatnonzero(~cells["gpu_graphics_activity"].present[2]).tolist() == list(range(200, 250))


def test_a_field_that_shows_no_work_any_more_for_want_of_samples_contradicts_nobody() -> None:
    duty, graphics = noisy(95, 1), noisy(0.9, 2)
    graphics["node-2/gpu0"][200:] = 0.0
    duty["node-2/gpu0"][250:] = np.nan
    cells, _ = trusted(task(duty, graphics))
    # its last sample is of second 249, and counts for two and a half intervals
    assert np.flatnonzero(~cells["gpu_graphics_activity"].present[2]).tolist() == list(range(200, 252))


def test_what_half_of_the_machines_do_at_an_instant_is_left_at_that_instant() -> None:
    graphics = noisy(0.9, 2)
    for name in list(graphics)[:3]:
        graphics[name][:] = 0.0
    assert_all_is_trusted(task(noisy(95, 1), graphics))
    graphics = noisy(0.9, 2)
    for number, name in enumerate(list(graphics)[:3]):
        graphics[name][200 + 10 * number : 300] = 0.0
    cells, _ = trusted(task(noisy(95, 1), graphics))
    missing = [np.flatnonzero(~row).tolist() for row in cells["gpu_graphics_activity"].present]
    # from second 220 on there are three of six
    assert missing == [list(range(200, 220)), list(range(210, 220)), [], [], [], []]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("steps", [(1, 1, 1), (1, 15, 1), (1, 5, 15), (5, 1, 15)])
@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_in_pieces_the_same_zeros_are_not_trusted(steps: tuple[int, int, int], lost: float, method: str) -> None:
    rng = np.random.default_rng(0)
    specs = (*SPECS[:2], TENSOR)
    metrics = []
    for spec, step, values in zip(specs, steps, (noisy(95, 1), noisy(0.9, 2), noisy(0.6, 4)), strict=True):
        if spec.name != "gpu_duty_cycle":
            values["node-2/gpu0"][200:] = 0.0
        slower = {name: each[::step] for name, each in values.items()}
        for each in slower.values():
            each[rng.random(len(each)) < lost] = np.nan
        metrics.append(series_of(spec.name, slower, step=float(step)))
    raw = task_of(*metrics, specs=specs)
    settings = DetectSettings.model_validate({"method": method, "lag_seconds": 0.0})
    whole = run_pass(raw, settings, undenoised)
    assert (whole.status, whole.verdicts) == ("none", ())
    for every in (1.0, 7.3, 100.0):
        stream = TaskStream(settings, undenoised)
        for piece in pieces_of(raw, np.arange(every, SECONDS, every).tolist()):
            stream.take(piece)
        assert stream.result().as_json() == whole.as_json()
