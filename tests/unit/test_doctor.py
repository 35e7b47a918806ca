"""The doctor names what stands in the way of judging, and is quiet where nothing does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_tasks import NOW, POWER, series_of, task_of, undenoised, wavy_machines
from trainminder.catalogue import load_catalogue
from trainminder.doctor import Diagnosis, Finding, diagnose
from trainminder.pipeline import METHODS
from trainminder.settings import DetectSettings, RecordingSettings
from trainminder.simulate import ClusterSpec, simulate_task
from trainminder.source.cutting import cut_raw
from trainminder.source.recordings import read_recording
from trainminder.stream import run_pass
from trainminder.types import FloatArray, FoundAs, RawMetric, RawTask

CATALOGUE = load_catalogue()
SECONDS = 600
NAMES = [f"gpu-{number:02d}" for number in range(6)]
SPECS = (POWER, *CATALOGUE.values())


def examined(raw: RawTask, now: float | None = None, **settings: Any) -> Diagnosis:
    return diagnose(
        raw,
        DetectSettings(**({"method": "paper"} | settings)),
        now=raw.to_at if now is None else now,
        catalogue=CATALOGUE,
    )


def found(diagnosis: Diagnosis, kind: str) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.kind == kind]


def one(diagnosis: Diagnosis, kind: str) -> Finding:
    (finding,) = found(diagnosis, kind)
    return finding


def uneven_wave(seed: int = 1, level: float = 600.0) -> FloatArray:
    """A common wave that never repeats itself."""
    rng = np.random.default_rng(seed)
    return level * (1 + 0.3 * np.convolve(rng.standard_normal(SECONDS + 60), np.ones(9) / 3, "same"))


def on_wave(wave: FloatArray, later: dict[str, int] | None = None, seed: int = 0) -> dict[str, FloatArray]:
    """Six machines that follow a wave, some so many seconds later."""
    rng = np.random.default_rng(seed)
    start = {name: 30 - (later or {}).get(name, 0) for name in NAMES}
    return {
        name: wave[start[name] : start[name] + SECONDS] * (1 + 0.01 * rng.standard_normal(SECONDS)) for name in NAMES
    }


def on_devices(metric: str, level: float, *, devices: int = 2, seed: int = 3) -> dict[str, FloatArray]:
    rng = np.random.default_rng([seed, len(metric)])
    return {
        f"{name}/gpu{device}": level * (1 + 0.05 * rng.standard_normal(SECONDS))
        for name in NAMES
        for device in range(devices)
    }


def from_dcgm(raw: RawTask, **changes: Any) -> RawTask:
    sources = {metric.metric: FoundAs(metric.metric.upper(), "dcgm-exporter") for metric in raw.metrics}
    return dataclasses.replace(raw, **({"sources": sources} | changes))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "cluster",
    [
        {"machines": 12, "devices_per_machine": 4},
        {"machines": 4, "interval_seconds": 5.0},
        {"machines": 8, "interval_seconds": 5.0, "phase_ratio": 1.0, "missing_ratio": 0.03},
    ],
)
def test_a_healthy_task_is_judged_without_a_word(seed: int, cluster: dict[str, Any]) -> None:
    raw, _ = simulate_task(ClusterSpec(seed=seed, **cluster), specs=CATALOGUE)
    diagnosis = examined(raw)
    assert diagnosis.findings == ()
    assert diagnosis.can_be_judged
    assert all(metric.reason is None for metric in diagnosis.metrics)


@pytest.mark.parametrize(
    ("method", "words", "seconds"),
    [
        (
            "default",
            "a fault is confirmed after at least 30 s, the longer the subtler it is "
            "(a verdict takes at least 150 s of data)",
            (None, 30.0, 150.0),
        ),
        (
            "paper",
            "a fault is confirmed after at least 285 s of standing out "
            "(continuity 240 s, and as long as a window looks back)",
            (240.0, 285.0, 390.0),
        ),
    ],
)
def test_the_verdict_line_counts_metrics_machines_and_seconds(
    method: str, words: str, seconds: tuple[float | None, float, float]
) -> None:
    raw, _ = simulate_task(ClusterSpec(machines=8, interval_seconds=15.0, metrics=("cpu_usage",)), specs=CATALOGUE)
    diagnosis = examined(dataclasses.replace(raw, metrics_absent=("gpu_temperature",)), method=method)
    assert diagnosis.sentence == (
        f"doctor: simulated can be judged: 1 of 2 metrics on 8 of 8 machines every 15 s; {words}"
    )
    plain = diagnosis.as_json()
    assert plain["method"] == method
    assert (plain["continuity_seconds"], plain["confirmed_after_seconds"], plain["verdict_seconds"]) == seconds


@pytest.mark.parametrize("method", METHODS)
def test_data_as_long_as_the_doctor_says_can_be_judged_and_a_second_less_cannot(method: str) -> None:
    least = examined(task_of(series_of("power", wavy_machines(6, SECONDS))), method=method).verdict_seconds
    assert least is not None
    for seconds in (least, least - 1):
        # From the first sample to the last.
        raw = task_of(series_of("power", wavy_machines(6, int(seconds) + 1)))
        assert examined(raw, method=method).can_be_judged == (seconds == least)


@pytest.mark.parametrize(
    ("method", "machines", "seconds", "level", "kind"),
    [
        ("default", 6, SECONDS, 600.0, None),
        ("default", 6, 120, 600.0, None),
        ("default", 2, SECONDS, 600.0, "too_few_machines"),
        ("default", 6, 80, 600.0, "short_range"),
        ("default", 6, 5, 600.0, "short_range"),
        ("default", 6, SECONDS, 0.0, "nothing_usable"),
        ("paper", 6, SECONDS, 600.0, None),
        ("paper", 2, SECONDS, 600.0, "too_few_machines"),
        ("paper", 6, 120, 600.0, "short_range"),
        ("paper", 6, SECONDS, 0.0, "nothing_usable"),
        ("paper", 6, 5, 600.0, "nothing_usable"),
    ],
)
def test_the_doctor_and_a_pass_agree_on_what_can_be_judged(
    method: str, machines: int, seconds: int, level: float, kind: str | None
) -> None:
    raw = task_of(series_of("power", wavy_machines(machines, seconds, level=level)))
    diagnosis = examined(raw, method=method)
    result = run_pass(raw, DetectSettings.model_validate({"method": method}), undenoised)
    assert diagnosis.can_be_judged == (result.status != "unknown")
    assert [finding.kind for finding in diagnosis.findings if finding.text == diagnosis.reason] == (
        [kind] if kind else []
    )


def test_a_task_in_groups_that_are_all_too_small_cannot_be_judged() -> None:
    raw = task_of(series_of("power", wavy_machines(6, SECONDS)))
    pairs = dataclasses.replace(raw, groups={name: str(index // 2) for index, name in enumerate(raw.machines)})
    assert one(examined(pairs), "too_few_machines").text.startswith("it has 6 machines, none of its 3 groups")
    uneven = dataclasses.replace(raw, groups={name: "a" if index < 4 else "b" for index, name in enumerate(NAMES)})
    diagnosis = examined(uneven)
    assert diagnosis.can_be_judged
    assert one(diagnosis, "small_groups").severity == "note"


@pytest.mark.parametrize(("method", "is_said"), [("default", False), ("paper", True)])
def test_a_range_too_short_is_remedied_by_what_its_method_knows(method: str, is_said: bool) -> None:
    finding = one(examined(task_of(series_of("power", wavy_machines(6, 60))), method=method), "short_range")
    assert "--minutes" in finding.remedy
    assert ("continuity_seconds" in finding.remedy) == is_said


def test_an_idle_task_cannot_be_judged() -> None:
    idle = {name: 0.5 * np.random.default_rng(1).random(SECONDS) for name in NAMES}
    diagnosis = examined(task_of(series_of("gpu_duty_cycle", idle), specs=SPECS))
    assert not diagnosis.can_be_judged
    assert "--at" in one(diagnosis, "idle").remedy


def test_where_a_metric_was_found_and_what_is_missing_of_it_is_shown() -> None:
    values = on_devices("gpu_power_draw", 600.0)
    values["gpu-04/gpu1"][100:130] = np.nan
    raw = from_dcgm(task_of(series_of("gpu_power_draw", values), specs=SPECS))
    (metric,) = examined(raw).metrics
    assert (metric.found_as, metric.exporter) == ("GPU_POWER_DRAW", "dcgm-exporter")
    assert (metric.machines, metric.devices, metric.interval_seconds) == (6, 12, 1.0)
    assert metric.samples_missing == pytest.approx(30 / (12 * SECONDS), abs=1e-6)
    assert (metric.longest_gap_seconds, metric.longest_gap_machine) == (30.0, "gpu-04")


def test_an_event_driven_metric_is_said_to_be_one() -> None:
    rng = np.random.default_rng(5)
    steps = {name: np.where(np.arange(SECONDS) % 7 < 2, 600 + rng.standard_normal(SECONDS), np.nan) for name in NAMES}
    (metric,) = examined(task_of(series_of("power", steps))).metrics
    assert metric.is_event_driven


def test_a_machine_without_any_data_is_unknown_not_healthy() -> None:
    raw = task_of(series_of("power", on_wave(uneven_wave())), machines=(*NAMES, "gpu-99"))
    finding = one(examined(raw), "silent")
    assert (finding.severity, finding.machines) == ("problem", ("gpu-99",))
    assert "unknown, not healthy" in finding.text


def test_metrics_lacking_on_the_same_machines_are_one_finding() -> None:
    fields = ("gpu_sm_activity", "gpu_tensor_activity")
    part = {name: {k: v for k, v in on_devices(name, 0.8).items() if "gpu-02" not in k} for name in fields}
    whole = series_of("gpu_power_draw", on_devices("gpu_power_draw", 600.0))
    raw = from_dcgm(task_of(whole, *(series_of(name, part[name]) for name in fields), specs=SPECS))
    finding = one(examined(raw), "part_of_fleet")
    assert (finding.severity, finding.metrics, finding.machines) == ("note", fields, ("gpu-02",))
    assert "load dcgm-exporter's profiling module" in finding.remedy


def test_a_machine_without_any_device_metric_is_a_problem() -> None:
    part = {key: values for key, values in on_devices("gpu_power_draw", 600.0).items() if "gpu-02" not in key}
    raw = task_of(
        series_of("gpu_power_draw", part), series_of("cpu_usage", on_wave(uneven_wave(level=40))), specs=SPECS
    )
    assert one(examined(raw), "part_of_fleet").severity == "problem"


def test_one_machine_under_two_names_is_seen() -> None:
    nodes = {f"10.0.0.{i}": values for i, values in enumerate(on_wave(uneven_wave(level=40)).values())}
    gpus = series_of("gpu_power_draw", on_devices("gpu_power_draw", 600.0))
    diagnosis = examined(task_of(gpus, series_of("cpu_usage", nodes), specs=SPECS))
    assert "membership.machine_rewrites" in one(diagnosis, "two_names").remedy
    assert not found(diagnosis, "part_of_fleet")


def test_a_machine_with_a_device_less_than_its_peers_is_named() -> None:
    values = on_devices("gpu_power_draw", 600.0)
    del values["gpu-03/gpu1"]
    finding = one(examined(task_of(series_of("gpu_power_draw", values), specs=SPECS)), "fewer_devices")
    assert finding.text == "fewer devices than the 2 of most machines: gpu-03 (1)"


@pytest.mark.parametrize(
    ("hole", "kind", "severity"),
    [(slice(200, 320), "gap", "note"), (slice(0, 90), "gap", "note"), (slice(450, None), "stopped", "problem")],
)
def test_a_machine_that_is_gone_for_a_while_is_named(hole: slice, kind: str, severity: str) -> None:
    values = on_wave(uneven_wave())
    values["gpu-01"][hole] = np.nan
    finding = one(examined(task_of(series_of("power", values))), kind)
    assert (finding.machines, finding.metrics, finding.severity) == (("gpu-01",), ("power",), severity)


def test_many_machines_that_end_early_are_late_data() -> None:
    values = on_wave(uneven_wave())
    for name in NAMES[:3]:
        values[name][500:] = np.nan
    diagnosis = examined(task_of(series_of("power", values)))
    assert one(diagnosis, "late_data").machines == tuple(NAMES[:3])
    assert not found(diagnosis, "stopped")


def test_a_metric_that_ends_before_the_range_is_named() -> None:
    raw = task_of(series_of("power", on_wave(uneven_wave())))
    finding = one(examined(dataclasses.replace(raw, to_at=raw.to_at + 300)), "ended")
    assert "for the last 300 s" in finding.text


def test_samples_in_the_future_are_a_problem() -> None:
    raw = task_of(series_of("power", on_wave(uneven_wave())))
    finding = one(examined(raw, now=raw.to_at - 40), "future")
    assert finding.text.startswith("samples up to 40 s in the future: gpu-00, gpu-01")
    assert not found(examined(raw, now=raw.to_at), "future")


def shifted(raw: RawTask, machine: str, seconds: float) -> RawTask:
    """The same task, one machine's clock wrong, cut to where all machines have data."""

    def moved(metric: RawMetric) -> RawMetric:
        of = np.repeat(np.array(metric.machines) == machine, np.diff(metric.offsets))
        return dataclasses.replace(metric, times=metric.times + seconds * of)

    wrong = dataclasses.replace(raw, metrics=tuple(moved(metric) for metric in raw.metrics))
    return cut_raw(wrong, raw.from_at + abs(seconds), raw.to_at - abs(seconds))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("seconds", "words"), [(-60.0, "60 s behind its"), (20.0, "20 s ahead of its")])
def test_a_wrong_clock_is_found_by_the_common_wave(seed: int, seconds: float, words: str) -> None:
    spec = ClusterSpec(machines=8, seed=seed, interval_seconds=5.0, duration_seconds=1020)
    raw, _ = simulate_task(spec, specs=CATALOGUE)
    finding = one(examined(shifted(raw, "machine-0003", seconds)), "clock")
    assert finding.text == f"clock of machine-0003 looks {words} peers'"


def test_a_shift_within_scrape_offsets_is_no_clock_finding() -> None:
    wave = uneven_wave()
    assert not found(examined(task_of(series_of("power", on_wave(wave, {"gpu-02": 2})))), "clock")
    assert one(examined(task_of(series_of("power", on_wave(wave, {"gpu-02": 12})))), "clock").machines == ("gpu-02",)


def test_a_periodic_wave_says_nothing_about_clocks() -> None:
    wave = 600 * (1 + 0.3 * np.sin(np.arange(SECONDS + 60) / 4.0))
    assert not found(examined(task_of(series_of("power", on_wave(wave, {"gpu-02": 12})))), "clock")


def test_a_metric_that_follows_its_peers_clears_the_clock() -> None:
    late = series_of("power", on_wave(uneven_wave(1), {"gpu-02": 12}))
    other = series_of("cpu_usage", on_wave(uneven_wave(2, level=30.0)))
    both = series_of("cpu_usage", on_wave(uneven_wave(2, level=30.0), {"gpu-02": 12}))
    assert not found(examined(task_of(late, other, specs=SPECS)), "clock")
    assert one(examined(task_of(late, both, specs=SPECS)), "clock").machines == ("gpu-02",)


def test_a_machine_whose_values_never_change_while_its_peers_do_is_stuck() -> None:
    values = on_wave(uneven_wave())
    values["gpu-05"][:] = 612.0
    finding = one(examined(task_of(series_of("power", values))), "frozen")
    assert finding.machines == ("gpu-05",)
    assert finding.text.endswith("stuck?")


def test_an_exporter_that_freezes_holds_several_metrics() -> None:
    power, clock = on_wave(uneven_wave()), on_wave(uneven_wave(4, level=1900.0))
    for values in (power, clock):
        values["gpu-05"][300:] = values["gpu-05"][299]
    raw = task_of(series_of("gpu_power_draw", power), series_of("gpu_sm_clock", clock), specs=SPECS)
    finding = one(examined(from_dcgm(raw)), "frozen")
    assert finding.metrics == ("gpu_power_draw", "gpu_sm_clock")
    assert finding.remedy == "restart dcgm-exporter on gpu-05"
    # One coarse metric may rest because the machine is at fault.
    assert not found(examined(task_of(series_of("gpu_power_draw", power), specs=SPECS)), "frozen")


def test_values_at_rest_at_zero_or_full_are_not_frozen() -> None:
    values = on_wave(uneven_wave(level=50.0))
    values["gpu-01"][:], values["gpu-02"][:] = 0.0, 100.0
    values = {name: np.clip(series, 0, 100) for name, series in values.items()}
    assert not found(examined(task_of(series_of("cpu_usage", values), specs=SPECS)), "frozen")


def test_a_profiling_field_that_is_dead_while_the_device_works_is_suspect() -> None:
    engine, duty = on_devices("gpu_graphics_activity", 0.9), on_devices("gpu_duty_cycle", 95.0)
    for device in ("gpu-03/gpu0", "gpu-03/gpu1"):
        engine[device][:] = 0.0
    raw = task_of(series_of("gpu_graphics_activity", engine), series_of("gpu_duty_cycle", duty), specs=SPECS)
    finding = one(examined(from_dcgm(raw)), "dead_field")
    assert (finding.severity, finding.machines, finding.metrics) == ("problem", ("gpu-03",), ("gpu_graphics_activity",))
    assert "gpu_duty_cycle shows work" in finding.text
    assert "restart dcgm-exporter on gpu-03" in finding.remedy


def test_a_device_that_is_idle_in_everything_is_no_dead_field() -> None:
    engine, duty = on_devices("gpu_graphics_activity", 0.9), on_devices("gpu_duty_cycle", 95.0)
    engine["gpu-03/gpu0"][:], duty["gpu-03/gpu0"][:] = 0.0, 0.0
    raw = task_of(series_of("gpu_graphics_activity", engine), series_of("gpu_duty_cycle", duty), specs=SPECS)
    assert not found(examined(raw), "dead_field")


def test_a_metric_that_is_the_same_everywhere_is_only_noted() -> None:
    zeros = {name: np.zeros(SECONDS) for name in NAMES}
    raw = task_of(series_of("pfc_tx_packet_rate", zeros), series_of("power", on_wave(uneven_wave())), specs=SPECS)
    diagnosis = examined(raw)
    assert diagnosis.can_be_judged
    assert (one(diagnosis, "constant").severity, found(diagnosis, "frozen")) == ("note", [])


def test_a_metric_that_cannot_be_judged_says_why() -> None:
    holes = on_wave(uneven_wave())
    rng = np.random.default_rng(1)
    holes = {name: np.where(rng.random(SECONDS) < 0.7, np.nan, values) for name, values in holes.items()}
    few = {name: values for name, values in on_wave(uneven_wave(2, 30.0)).items() if name < "gpu-02"}
    raw = task_of(series_of("power", holes), series_of("cpu_usage", few), specs=SPECS)
    diagnosis = examined(raw)
    texts = {finding.metrics: finding for finding in found(diagnosis, "not_judged")}
    assert "detect.max_missing_ratio" in texts["power",].remedy
    assert "only 2 of 6 machines have it" in texts["cpu_usage",].text
    assert not diagnosis.can_be_judged


@pytest.mark.parametrize(
    ("method", "words"),
    [("default", "a verdict takes at least 300 s of data"), ("paper", "a window of 8 samples spans 240 s")],
)
def test_slow_sampling_is_noted_with_the_exporter_to_change(method: str, words: str) -> None:
    values = {key: series[:40] for key, series in on_devices("gpu_power_draw", 600.0).items()}
    raw = from_dcgm(task_of(series_of("gpu_power_draw", values, step=30.0), specs=SPECS))
    finding = one(examined(raw, method=method), "slow_sampling")
    assert finding.severity == "note"
    assert finding.remedy.startswith("dcgm-exporter samples every 30 s: set its collect interval")
    assert words in finding.text


def test_an_exporter_slower_than_its_scrapes_is_seen_by_its_repeats() -> None:
    values = {key: np.repeat(series[:20], 30) for key, series in on_devices("gpu_power_draw", 600.0).items()}
    finding = one(examined(from_dcgm(task_of(series_of("gpu_power_draw", values), specs=SPECS))), "slow_refresh")
    assert "values change every 30 s only, although stored every 1 s" in finding.text


def test_absent_metrics_say_how_to_have_them() -> None:
    raw = from_dcgm(task_of(series_of("power", on_wave(uneven_wave())), specs=SPECS))
    raw = dataclasses.replace(raw, metrics_absent=("gpu_tensor_activity", "cpu_usage", "rdma_throughput"))
    remedies = {finding.metrics: finding.remedy for finding in found(examined(raw), "absent")}
    assert "profiling module" in remedies["gpu_tensor_activity",]
    assert "node_exporter runs" in remedies["cpu_usage",]
    assert "infiniband collector" in remedies["rdma_throughput",]
    recorded = dataclasses.replace(raw, sources={"power": FoundAs("power")})
    assert [finding.remedy[:9] for finding in found(examined(recorded), "absent")] == ["record it"]


def test_a_partial_answer_of_the_store_is_a_problem() -> None:
    raw = task_of(series_of("power", on_wave(uneven_wave())), is_partial=True, warnings=("the store says: a is down",))
    diagnosis = examined(raw)
    assert [finding.severity for finding in diagnosis.findings] == ["problem", "problem"]
    assert one(diagnosis, "store_warning").text == "the store says: a is down"


def test_markers_and_impossible_values_in_a_file_are_found_with_their_remedies(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    rows = ["timestamp,machine,power,busy"]
    for name in NAMES:
        for second in range(300):
            power = 9.2e18 if (name, second) == ("gpu-01", 50) else 600 + (second * 7 + len(name)) % 11
            busy = 640.0 if name == "gpu-02" else 60 + second % 5
            rows.append(f"{NOW + second},{name},{power},{busy}")
    path.write_text("\n".join(rows) + "\n")
    catalogue = CATALOGUE
    columns = {"power": "gpu_power_draw", "busy": "cpu_usage"}
    raw = read_recording(path, catalogue, RecordingSettings(columns=columns))
    diagnosis = examined(raw)
    assert "gpu-01" in one(diagnosis, "no_value").text
    assert "correct the unit" in one(diagnosis, "impossible").remedy
    assert {metric.metric: metric.found_as for metric in diagnosis.metrics if not metric.is_absent} == {
        "gpu_power_draw": "power",
        "cpu_usage": "busy",
    }


def test_problems_come_before_notes() -> None:
    values = on_wave(uneven_wave())
    values["gpu-01"][200:300] = np.nan
    values["gpu-05"][:] = 612.0
    severities = [finding.severity for finding in examined(task_of(series_of("power", values))).findings]
    assert severities == ["problem", "note"]
