from __future__ import annotations

import dataclasses
import json
from typing import get_args

import numpy as np
import pytest

from small_tasks import NOW, POWER, series_of, task_of, undenoised, wavy_machines
from trainminder.catalogue import load_catalogue
from trainminder.evidence.causes import CAUSES
from trainminder.pipeline import METHODS, ordered_metrics
from trainminder.settings import DetectSettings
from trainminder.stream import run_pass
from trainminder.types import FloatArray, MetricSpec, PassResult, RawTask

SETTINGS = DetectSettings()

by_every_method = pytest.mark.parametrize("method", METHODS)


def judged(raw: RawTask, method: str = "default") -> PassResult:
    return run_pass(raw, by(method), undenoised)


def by(method: str) -> DetectSettings:
    return DetectSettings.model_validate({"method": method})


def with_fault(machines: dict[str, FloatArray], who: str, start: int, factor: float) -> dict[str, FloatArray]:
    changed = machines[who].copy()
    changed[start:] *= factor
    return machines | {who: changed}


@by_every_method
def test_a_machine_whose_power_halves_is_named_with_onset_and_confirmation(method: str) -> None:
    raw = task_of(series_of("power", with_fault(wavy_machines(8, 900), "gpu-03", 400, 0.5)))
    result = judged(raw, method)
    assert result.status == "faulty"
    (verdict,) = result.verdicts
    assert (verdict.machine, verdict.metric, verdict.device) == ("gpu-03", "power", None)
    assert NOW + 400 <= verdict.onset <= NOW + 404
    if method == "paper":
        # four minutes of standing out, and the seven seconds that the last window looks back
        assert verdict.confirmed == verdict.onset + 247
    else:
        # one metric that halves: beyond what a burst on a healthy machine lasts, and sooner than the paper's
        assert verdict.onset + 120 <= verdict.confirmed <= verdict.onset + 230
    evidence, *remarks = verdict.evidence
    assert evidence.kind == "metric"
    assert [remark.kind for remark in remarks] == ([] if method == "paper" else ["confidence"])
    assert evidence.value == pytest.approx(300, rel=0.05)
    assert evidence.peers == pytest.approx(600, rel=0.05)
    assert "below its peers" in evidence.text


def test_the_evidence_of_default_says_where_the_peers_were_and_how_rare_that_is() -> None:
    (verdict,) = judged(task_of(series_of("power", with_fault(wavy_machines(8, 900), "gpu-03", 400, 0.5)))).verdicts
    metric, confidence = verdict.evidence
    assert (metric.threshold, metric.weight) == (1.0, 1.0)
    low, middle, high = metric.peers_low, metric.peers, metric.peers_high
    assert low is not None
    assert middle is not None
    assert high is not None
    assert 570 < low <= middle <= high < 630
    # All causes share what is allowed, whichever can be seen.
    allowed = SETTINGS.false_alarms_per_machine_day
    assert confidence.score == verdict.score >= confidence.threshold
    assert confidence.threshold == pytest.approx(np.log10((len(CAUSES) + 2) / allowed), abs=1e-3)
    assert "expected of a healthy machine once in" in confidence.text


@by_every_method
@pytest.mark.parametrize("seed", range(12))
def test_the_healthy_twin_is_quiet(seed: int, method: str) -> None:
    result = judged(task_of(series_of("power", wavy_machines(8, 900, seed=seed))), method)
    assert (result.status, result.verdicts, result.reason) == ("none", (), None)


@by_every_method
def test_a_task_that_slows_as_a_whole_names_nobody(method: str) -> None:
    machines = {
        name: np.concatenate([values[:450], 0.5 * values[450:]]) for name, values in wavy_machines(8, 900).items()
    }
    assert judged(task_of(series_of("power", machines)), method).status == "none"


@by_every_method
@pytest.mark.parametrize("changed", [4, 5, 8])
def test_what_half_of_the_machines_or_more_do_names_nobody(changed: int, method: str) -> None:
    machines = wavy_machines(8, 1800)
    for name in list(machines)[:changed]:
        machines[name][900:] *= 0.7
    assert judged(task_of(series_of("power", machines)), method).verdicts == ()


@by_every_method
@pytest.mark.parametrize("metric", ["gpu_power_draw", "pcie_bandwidth", "gpu_temperature", "cpu_usage", "disk_io"])
def test_a_machine_that_falls_to_nothing_for_ten_minutes_is_named_by_whatever_metric(metric: str, method: str) -> None:
    spec = load_catalogue()[metric]
    level = {"pcie_bandwidth": 1e10, "disk_io": 1e8}.get(metric, 60.0)
    machines = with_fault(wavy_machines(8, 900, level=level), "gpu-03", 300, 0.0)
    (verdict,) = judged(task_of(series_of(metric, machines), specs=(spec,)), method).verdicts
    assert (verdict.machine, verdict.metric) == ("gpu-03", metric)


@by_every_method
@pytest.mark.parametrize("factor", [0.4, 1.6])
def test_a_machine_grossly_unlike_its_peers_from_the_first_sample_on_is_named(factor: float, method: str) -> None:
    machines = with_fault(wavy_machines(8, 900), "gpu-03", 0, factor)
    (verdict,) = judged(task_of(series_of("power", machines)), method).verdicts
    assert verdict.machine == "gpu-03"
    # Nothing changed at any later instant: it was so from the first window on.
    assert verdict.onset <= NOW + 10


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.1, 1.2])
def test_to_default_a_machine_that_has_always_been_a_little_different_is_not_faulty(factor: float) -> None:
    machines = with_fault(wavy_machines(8, 1800), "gpu-03", 0, factor)
    assert judged(task_of(series_of("power", machines))).status == "none"


@pytest.mark.parametrize(("method", "seconds"), [("paper", 200), ("default", 100), ("default", 50), ("default", 10)])
def test_a_burst_shorter_than_a_fault_must_last_names_nobody(method: str, seconds: int) -> None:
    machines = wavy_machines(8, 900)
    machines["gpu-05"][300 : 300 + seconds] *= 0.5
    assert judged(task_of(series_of("power", machines)), method).status == "none"


@by_every_method
def test_the_verdict_does_not_change_with_what_comes_after_it(method: str) -> None:
    machines = with_fault(wavy_machines(8, 900), "gpu-03", 300, 0.5)
    (whole,) = judged(task_of(series_of("power", machines)), method).verdicts
    end = int(whole.confirmed - NOW) + 1
    short = {name: values[:end] for name, values in machines.items()}
    (cut,) = judged(task_of(series_of("power", short)), method).verdicts
    assert (cut.machine, cut.onset, cut.confirmed, cut.score) == (
        whole.machine,
        whole.onset,
        whole.confirmed,
        whole.score,
    )
    earlier = {name: values[: end - 1] for name, values in machines.items()}
    assert judged(task_of(series_of("power", earlier)), method).status == "none"


@by_every_method
def test_the_order_of_the_input_does_not_matter(method: str) -> None:
    machines = with_fault(wavy_machines(8, 900), "gpu-03", 400, 0.5)
    backwards = dict(reversed(machines.items()))
    one, two = (judged(task_of(series_of("power", given)), method) for given in (machines, backwards))
    assert json.dumps(one.as_json()) == json.dumps(two.as_json())


@by_every_method
def test_the_json_holds_what_the_contract_names(method: str) -> None:
    raw = task_of(series_of("power", with_fault(wavy_machines(8, 900), "gpu-03", 400, 0.5)))
    plain = json.loads(json.dumps(judged(raw, method).as_json(), allow_nan=False))
    assert list(plain) == [
        "task", "method", "from", "to", "machines", "status", "reason", "verdicts", "coverage", "warnings",
    ]  # fmt: skip
    assert list(plain["verdicts"][0]) == [
        "machine", "device", "metric", "onset", "confirmed", "score", "fault_type", "evidence",
    ]  # fmt: skip
    assert list(plain["coverage"]) == ["machines_seen", "samples_missing", "metrics_used", "metrics_absent"]
    assert list(plain["verdicts"][0]["evidence"][0]) == [
        "kind", "metric", "view", "device", "since", "until", "score", "threshold", "value", "peers", "unit", "text",
        "weight", "peers_low", "peers_high",
    ]  # fmt: skip
    assert (plain["machines"], plain["method"]) == (8, method)


def test_every_method_that_can_be_set_is_one_that_runs() -> None:
    assert get_args(DetectSettings.model_fields["method"].annotation) == METHODS
    assert SETTINGS.method == "default"


@by_every_method
def test_one_bad_device_of_eight_is_named(method: str) -> None:
    machines = {
        f"gpu-{m:02d}/gpu{d}": values
        for m in range(6)
        for d, values in enumerate(wavy_machines(8, 700, seed=m).values())
    }
    machines["gpu-04/gpu6"][200:] *= 0.6
    (verdict,) = judged(task_of(series_of("power", machines)), method).verdicts
    assert (verdict.machine, verdict.device) == ("gpu-04", "gpu6")


def test_a_metric_is_asked_in_the_order_of_the_settings() -> None:
    cpu = dataclasses.replace(POWER, name="cpu")
    machines = wavy_machines(4, 20)
    raw = task_of(series_of("power", machines), series_of("cpu", machines), specs=(POWER, cpu))
    assert ordered_metrics(raw.specs, DetectSettings(metrics=("cpu", "absent", "power"))) == ("cpu", "power")
    assert ordered_metrics(raw.specs, SETTINGS) == ("power", "cpu")


@pytest.mark.parametrize(
    ("method", "seconds", "machines", "reason"),
    [
        ("default", 900, 2, "2 machines, and at least 3 comparable ones are needed"),
        ("default", 900, 1, "1 machine, and at least 3"),
        ("default", 80, 8, "the data span 79 s, and a verdict takes at least 85 s at 1 s sampling: ask"),
        ("default", 5, 8, "the data span 4 s, and a verdict takes at least 85 s at 1 s sampling: ask"),
        ("default", 1, 8, "no usable metric: power"),
        ("paper", 900, 2, "2 machines, and at least 3 comparable ones are needed"),
        ("paper", 100, 8, "and a verdict takes at least 254 s at 1 s sampling with detect.continuity_seconds 240: ask"),
        ("paper", 5, 8, "no usable metric: power: 5 samples at 1 s are fewer than the window's 8"),
    ],
)
def test_what_cannot_be_judged_is_unknown_with_its_reason(
    method: str, seconds: int, machines: int, reason: str
) -> None:
    result = judged(task_of(series_of("power", wavy_machines(machines, seconds))), method)
    assert result.status == "unknown"
    assert reason in (result.reason or "")
    assert result.verdicts == ()


@pytest.mark.parametrize("seconds", range(2, 8))
def test_devices_with_fewer_samples_than_a_window_are_unknown_to_the_method_paper(seconds: int) -> None:
    machines = {f"gpu-{m:02d}/gpu{d}": np.arange(float(seconds)) + m for m in range(4) for d in range(2)}
    result = judged(task_of(series_of("power", machines)), "paper")
    assert result.status == "unknown"
    assert f"power: {seconds} samples at 1 s are fewer than the window's 8" in (result.reason or "")


def test_two_machines_are_seen_though_they_cannot_be_compared() -> None:
    result = judged(task_of(series_of("power", wavy_machines(2, 900))))
    assert result.status == "unknown"
    assert (result.coverage.machines_seen, result.coverage.samples_missing) == (2, 0.0)


def test_too_many_missing_samples_are_unknown() -> None:
    machines = wavy_machines(8, 900)
    rng = np.random.default_rng(0)
    for values in machines.values():
        values[rng.random(900) < 0.6] = np.nan
    result = judged(task_of(series_of("power", machines)))
    assert result.status == "unknown"
    assert "60% of its samples are missing" in (result.reason or "")


@by_every_method
def test_a_silent_machine_is_unknown_and_never_faulty(method: str) -> None:
    machines = wavy_machines(8, 900)
    machines["gpu-02"][500:] = np.nan
    raw = task_of(series_of("power", machines), machines=(*machines, "gpu-99"))
    result = judged(raw, method)
    assert (result.status, result.verdicts) == ("unknown", ())
    assert "gpu-02 stopped reporting 400 s before the others" in (result.reason or "")
    assert result.coverage.machines_seen == 8
    assert any("no data at all from gpu-99: unknown, not healthy" in text for text in result.warnings)
    assert any("stopped reporting" in text and "gpu-02" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("method", "seconds", "status"),
    [("default", 50, "none"), ("default", 70, "unknown"), ("paper", 200, "none"), ("paper", 260, "unknown")],
)
def test_a_silence_shorter_than_a_fault_must_last_leaves_the_verdict(method: str, seconds: int, status: str) -> None:
    machines = wavy_machines(8, 900)
    machines["gpu-02"][900 - seconds :] = np.nan
    result = judged(task_of(series_of("power", machines)), method)
    assert (result.status, result.verdicts) == (status, ())
    # Silence of up to a minute is late data.
    assert (seconds > 60) == any("stopped reporting" in text and "gpu-02" in text for text in result.warnings)


@by_every_method
def test_many_machines_that_end_early_are_late_data(method: str) -> None:
    machines = wavy_machines(8, 900)
    for name in ("gpu-02", "gpu-05"):
        machines[name][500:] = np.nan
    result = judged(task_of(series_of("power", machines)), method)
    assert result.status == "none"
    assert any("gpu-02, gpu-05" in text for text in result.warnings)


@by_every_method
def test_a_fault_is_found_although_another_machine_is_silent(method: str) -> None:
    machines = with_fault(wavy_machines(8, 900), "gpu-03", 300, 0.5)
    machines["gpu-02"][500:] = np.nan
    (verdict,) = judged(task_of(series_of("power", machines)), method).verdicts
    assert verdict.machine == "gpu-03"


def test_machines_are_seen_though_their_samples_are_too_few_to_judge() -> None:
    machines = wavy_machines(4, 6)
    machines["gpu-01"][2:4] = np.nan
    result = judged(task_of(series_of("power", machines)))
    assert result.status == "unknown"
    assert (result.coverage.machines_seen, result.coverage.samples_missing) == (4, round(2 / 24, 6))


def test_the_same_value_on_every_machine_says_nothing() -> None:
    machines = {name: np.full(900, 100.0) for name in wavy_machines(8, 900)}
    result = judged(task_of(series_of("power", machines)))
    assert result.status == "unknown"
    assert "it is 100 on every machine throughout" in (result.reason or "")


def test_a_metric_that_too_few_machines_have_is_left_out_and_the_others_are_judged() -> None:
    cpu = dataclasses.replace(POWER, name="cpu")
    machines = with_fault(wavy_machines(8, 900), "gpu-03", 400, 0.5)
    few = {name: machines[name] for name in ("gpu-00", "gpu-01")}
    raw = task_of(series_of("cpu", few), series_of("power", machines), specs=(cpu, POWER))
    result = judged(raw)
    assert result.coverage.metrics_used == ("power",)
    assert any("cpu is not judged: only 2 of 8 machines have it" in text for text in result.warnings)
    assert result.verdicts[0].machine == "gpu-03"


@by_every_method
def test_an_idle_task_is_unknown(method: str) -> None:
    spec = MetricSpec("gpu_duty_cycle", "percent", lower=0.0, upper=100.0, spread=2.0)
    rng = np.random.default_rng(0)
    machines = {f"m{number}": np.abs(rng.normal(0, 0.5, 900)) for number in range(6)}
    raw = task_of(series_of("gpu_duty_cycle", machines), specs=(spec,))
    result = judged(raw, method)
    assert result.status == "unknown"
    assert "idle or restarting throughout" in (result.reason or "")


@by_every_method
def test_a_stage_is_compared_with_itself_only(method: str) -> None:
    machines = wavy_machines(8, 900)
    for number in range(4):
        machines[f"gpu-{number:02d}"] *= 0.5
    groups = {name: "first" if number < 4 else "last" for number, name in enumerate(machines)}
    raw = task_of(series_of("power", with_fault(machines, "gpu-06", 400, 0.6)), groups=groups)
    (verdict,) = judged(raw, method).verdicts
    assert verdict.machine == "gpu-06"
    assert verdict.evidence[0].peers == pytest.approx(600, rel=0.05)


def test_groups_too_small_to_compare_are_said_and_if_all_are_it_is_unknown() -> None:
    machines = wavy_machines(6, 900)
    names = list(machines)
    some = dict(zip(names, ["a", "a", "a", "a", "b", "b"], strict=True))
    result = judged(task_of(series_of("power", machines), groups=some))
    assert result.status == "none"
    assert any('not judged: "b" (2)' in text for text in result.warnings)
    each = dict(zip(names, ["a", "a", "b", "b", "c", "c"], strict=True))
    assert judged(task_of(series_of("power", machines), groups=each)).status == "unknown"


@by_every_method
@pytest.mark.parametrize("step", [5.0, 15.0, 30.0])
def test_slower_sampling_finds_the_same_machine(step: float, method: str) -> None:
    machines = with_fault(wavy_machines(8, 100), "gpu-03", 30, 0.5)
    (verdict,) = judged(task_of(series_of("power", machines, step=step)), method).verdicts
    assert verdict.machine == "gpu-03"
    assert NOW + 30 * step <= verdict.onset <= NOW + 33 * step
    least = 240 if method == "paper" else 135
    assert least <= verdict.confirmed - verdict.onset <= least + max(60, step) + step


@pytest.mark.parametrize(("method", "seconds"), [("paper", 180), ("default", 120)])
@pytest.mark.parametrize("step", [15.0, 30.0])
def test_a_burst_does_not_look_lasting_because_samples_are_far_apart(step: float, method: str, seconds: int) -> None:
    machines = wavy_machines(8, 80)
    machines["gpu-03"][30 : 30 + int(seconds / step)] *= 0.5
    assert judged(task_of(series_of("power", machines, step=step)), method).status == "none"


@by_every_method
def test_a_quarter_of_an_hour_at_a_minute_suffices_for_a_verdict(method: str) -> None:
    machines = with_fault(wavy_machines(8, 16), "gpu-03", 7, 0.5)
    (verdict,) = judged(task_of(series_of("power", machines, step=60.0)), method).verdicts
    assert verdict.machine == "gpu-03"


@by_every_method
def test_a_machine_whose_devices_are_all_slow_is_named_without_a_device(method: str) -> None:
    machines = {
        f"gpu-{m:02d}/gpu{d}": values
        for m in range(6)
        for d, values in enumerate(wavy_machines(4, 700, seed=m, noise=0.03).values())
    }
    for d in range(4):
        machines[f"gpu-04/gpu{d}"][200:] *= 0.6
    (verdict,) = judged(task_of(series_of("power", machines)), method).verdicts
    assert (verdict.machine, verdict.device) == ("gpu-04", None)
