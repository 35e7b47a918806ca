"""Counters and log lines of simulated faults: on the culprit, after the onset, at the stated rate, among noise."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cache

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.errors import SettingsError
from trainminder.simulate import FAULT_MODELS, ClusterSpec, Fault, simulate_task
from trainminder.simulate.sign_table import COUNTERS, SIGNS
from trainminder.simulate.signs import LOGS_NOTHING, MOVES_NO_COUNTER, LogLine, Signs, simulate_signs
from trainminder.types import FloatArray

#: No sample is lost, so that series can be compared sample by sample.
SPEC = ClusterSpec(
    machines=4, devices_per_machine=2, duration_seconds=700, interval_seconds=10, missing_ratio=0, gaps_per_hour=0
)
CULPRIT, ONSET = 2, 100.0
NAME = "machine-0002"
SEEDS = range(70)


@cache
def signs_of(fault_type: str | None, seed: int = 0, **changes: float) -> Signs:
    faults = [] if fault_type is None else [Fault(CULPRIT, fault_type, ONSET, **changes)]  # type: ignore[arg-type]
    return simulate_signs(dataclasses.replace(SPEC, seed=seed), faults)


def series(signs: Signs, name: str) -> dict[tuple[str, str | None], tuple[FloatArray, FloatArray]]:
    """Instants (seconds from the start) and values of every series of a counter."""
    counter = next(counter for counter in signs.counters if counter.metric == name)
    parts = [slice(start, end) for start, end in zip(counter.offsets[:-1], counter.offsets[1:], strict=True)]
    keys = zip(counter.machines, counter.devices, strict=True)
    return {
        key: (counter.times[part] - SPEC.start_at, counter.values[part]) for key, part in zip(keys, parts, strict=True)
    }


def code_of(line: LogLine) -> int:
    """The code in a line with an Xid."""
    return int(line.text.split("): ")[1].split(",")[0])


def added(faulty: Signs, healthy: Signs) -> list[LogLine]:
    """The lines that are there because of the fault."""
    rest = Counter(faulty.log) - Counter(healthy.log)
    return sorted(rest.elements(), key=lambda line: line.at)


def is_echo(line: LogLine) -> bool:
    return "Watchdog caught" in line.text or ": 45, pid=" in line.text


def share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def test_every_fault_has_its_row_in_the_table_and_every_row_names_counters_that_exist() -> None:
    assert FAULT_MODELS.keys() <= SIGNS.keys()
    named = {change.counter for sets in SIGNS.values() for one in sets for change in one.changes}
    assert named <= COUNTERS.keys()


def test_the_same_values_give_the_same_bytes() -> None:
    first, second = (simulate_signs(SPEC, [Fault(CULPRIT, "ecc_error", ONSET)]) for _ in range(2))
    assert first.log == second.log
    for one, other in zip(first.counters, second.counters, strict=True):
        assert one.times.tobytes() == other.times.tobytes()
        assert one.values.tobytes() == other.values.tobytes()


def test_signs_move_no_draw_of_the_metrics() -> None:
    spec = dataclasses.replace(SPEC, metrics=("cpu_usage", "gpu_power_draw"))
    faults = [Fault(CULPRIT, "thermal_throttling", ONSET)]
    before, _ = simulate_task(spec, faults, specs=load_catalogue())
    simulate_signs(spec, faults)
    after, _ = simulate_task(spec, faults, specs=load_catalogue())
    assert [one.values.tobytes() for one in before.metrics] == [one.values.tobytes() for one in after.metrics]


OF_ONE_MACHINE = [name for name, model in FAULT_MODELS.items() if model.group is None]


@pytest.mark.parametrize("fault_type", OF_ONE_MACHINE)
def test_nothing_shows_before_the_onset_and_only_the_echo_shows_elsewhere(fault_type: str) -> None:
    for seed in range(8):
        faulty, healthy = signs_of(fault_type, seed), signs_of(None, seed)
        for line in added(faulty, healthy):
            assert line.at >= SPEC.start_at + ONSET
            assert line.machine == NAME or is_echo(line)
        echoes = any(is_echo(line) for line in added(faulty, healthy))
        for name in COUNTERS:
            ordinary = series(healthy, name)
            for (machine, device), (times, values) in series(faulty, name).items():
                usual_times, usual = ordinary[machine, device]
                if machine != NAME:
                    assert (name == "xid_code" and echoes) or values.tolist() == usual.tolist()
                assert values[times < ONSET].tolist() == usual[usual_times < ONSET].tolist()


@pytest.mark.parametrize(
    ("fault_type", "words", "chance"),
    [
        ("ecc_error", ("NVRM: Xid",), 1.0),
        ("ecc_error", (": 48, ",), 0.45),
        ("gpu_card_drop", (": 79, ",), 1.0),
        ("nvlink_error", (": 74, ",), 0.7),
        ("cuda_execution_error", (": 31, ", ": 13, ", ": 43, "), 1.0),
        ("gpu_execution_error", (": 109, ", ": 62, ", ": 119, "), 0.85),
        ("nic_dropout", ("Link down",), 1.0),
        ("pcie_downgrading", ("AER: Corrected error",), 0.6 * 0.8),
        ("thermal_throttling", ("thermal violations",), 0.6),
    ],
)
def test_a_fault_is_logged_on_its_machine_as_often_as_stated(
    fault_type: str, words: tuple[str, ...], chance: float
) -> None:
    logged = []
    for seed in SEEDS:
        lines = added(signs_of(fault_type, seed), signs_of(None, seed))
        mine = [line for line in lines if line.machine == NAME and not is_echo(line)]
        logged.append(any(word in line.text for line in mine for word in words))
    assert share(logged) == pytest.approx((1 - LOGS_NOTHING) * chance, abs=0.14)


@pytest.mark.parametrize(
    ("fault_type", "counter", "chance"),
    [
        ("ecc_error", "ecc_uncorrectable", 1.0),
        ("pcie_downgrading", "pcie_replay", 0.6 + 0.4 * 0.5),
        ("pcie_downgrading", "pcie_link_gen", 0.4),
        ("nvlink_error", "nvlink_crc_errors", 1.0),
        ("thermal_throttling", "clock_throttle_reasons", 1.0),
        ("nic_dropout", "ib_link_downed", 1.0),
    ],
)
def test_a_fault_moves_its_counter_as_often_as_stated_and_only_on_the_culprit(
    fault_type: str, counter: str, chance: float
) -> None:
    moved = []
    for seed in SEEDS:
        faulty, healthy = series(signs_of(fault_type, seed), counter), series(signs_of(None, seed), counter)
        differs = [key for key in faulty if faulty[key][1].tolist() != healthy[key][1].tolist()]
        assert {machine for machine, _ in differs} <= {NAME}
        assert len(differs) <= 1
        if NAME in {machine for machine, _ in faulty}:
            moved.append(bool(differs))
    assert share(moved) == pytest.approx((1 - MOVES_NO_COUNTER) * chance, abs=0.14)


def test_the_culprit_device_shows_the_code_that_the_kernel_logged() -> None:
    agreed = 0
    for seed in range(30):
        signs = signs_of("gpu_execution_error", seed)
        logged = {code_of(line) for line in added(signs, signs_of(None, seed)) if "Xid" in line.text}
        shown = {values[-1] for (machine, _), (_, values) in series(signs, "xid_code").items() if machine == NAME}
        agreed += bool(logged & shown)
    assert agreed > 15


@pytest.mark.parametrize("fault_type", [None, "ecc_error", "nvlink_error", "thermal_throttling"])
def test_a_counter_never_falls_but_to_begin_again_from_zero(fault_type: str | None) -> None:
    falls = 0
    for seed in range(10):
        signs = signs_of(fault_type, seed)
        for name in (name for name, model in COUNTERS.items() if not model.is_gauge):
            for _, values in series(signs, name).values():
                assert values[0] >= 0
                for place in np.flatnonzero(np.diff(values) < 0):
                    falls += 1
                    assert name.startswith("ib_")
                    assert values[place + 1] <= 5
    assert falls <= 3


def test_healthy_noise_is_there_and_is_rare() -> None:
    spec = ClusterSpec(machines=200, duration_seconds=3600, interval_seconds=30, missing_ratio=0, gaps_per_hour=0)
    signs = simulate_signs(spec)
    xids = [line for line in signs.log if "NVRM: Xid" in line.text]
    assert {code_of(line) for line in xids} <= {31, 13}
    assert 0 < len(xids) < 20
    assert 0 < sum("AER: Corrected" in line.text for line in signs.log) < 30
    assert sum(line.source == "cron" for line in signs.log) == pytest.approx(200 * 7, rel=0.1)
    rose = {
        name: share([values[-1] > values[0] for _, values in series(signs, name).values()])
        for name, model in COUNTERS.items()
        if not model.is_gauge
    }
    assert rose["ecc_uncorrectable"] == rose["ib_link_downed"] == 0
    assert 0.02 < rose["ecc_correctable"] < 0.09
    assert 0.1 < rose["pcie_replay"] < 0.4
    assert 0.1 < rose["ib_symbol_errors"] < 0.4
    sticky = share([values[0] != 0 for _, values in series(signs, "xid_code").values()])
    assert 0.01 < sticky < 0.035


def test_some_machines_export_no_counters() -> None:
    spec = ClusterSpec(machines=400, devices_per_machine=1, duration_seconds=60, interval_seconds=30, missing_ratio=0)
    signs = simulate_signs(spec)
    assert 0.92 < len(series(signs, "xid_code")) / 400 < 0.99
    assert 0.87 < len(series(signs, "ib_link_downed")) / 400 < 0.96


def test_a_stall_echoes_on_every_rank_and_blames_nobody() -> None:
    for seed in range(40):
        lines = added(signs_of("ecc_error", seed), signs_of(None, seed))
        echo = [line for line in lines if "Watchdog caught" in line.text]
        if echo:
            break
    ranks = {int(line.text.split("[Rank ")[1].split("]")[0]) for line in echo}
    assert ranks == set(range(8))
    assert {line.machine for line in echo} == {f"machine-000{index}" for index in range(4)}
    texts = {line.text.split("WorkNCCL")[1].split(" ran for")[0] for line in echo}
    assert len(texts) == 1
    assert min(line.at for line in echo) >= SPEC.start_at + ONSET + 60


def test_a_task_that_is_only_slow_has_no_echo() -> None:
    for seed in range(20):
        assert not any(is_echo(line) for line in signs_of("thermal_throttling", seed).log)


def test_a_machine_out_of_reach_logs_and_counts_nothing_and_begins_again_when_it_is_back() -> None:
    signs = signs_of("machine_unreachable", duration_seconds=200.0)
    gone = [line for line in signs.log if line.machine == NAME and ONSET <= line.at - SPEC.start_at < ONSET + 200]
    assert gone == []
    times, values = series(signs, "power_violation")[NAME, "gpu0"]
    assert not ((times >= ONSET) & (times < ONSET + 200)).any()
    assert values[times >= ONSET + 200][0] < values[0]


def test_an_impossible_fault_is_refused() -> None:
    with pytest.raises(SettingsError, match='did you mean "ecc_error"'):
        signs_of("ecc_eror")


def test_a_line_reads_as_a_collector_writes_it() -> None:
    line = LogLine(1_760_000_060.120455, "node-a", "kernel", "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, y")
    assert (
        str(line) == "2025-10-09T08:54:20.120455+00:00 node-a kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, y"
    )
