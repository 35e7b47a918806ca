"""What the source makes of answers as they come in the field: labels, holes, replicas, lies."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.errors import MembershipError, SettingsError, StoreError
from trainminder.membership.promql import find_task
from trainminder.settings import (
    MembershipSettings,
    MetricSettings,
    QuerySettings,
    Settings,
    StoreSettings,
    TaskSettings,
)
from trainminder.source.prometheus import PrometheusSource
from trainminder.source.prometheus.http import StoreClient
from trainminder.types import RawMetric, RawTask, Task

START = 1_760_000_000
STEP = 20
INSTANTS = [START + STEP * i for i in range(31)]
POWER, TEMP, RECEIVED = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "node_network_receive_bytes_total"
BLANK = 9223372036854775792.0


class FixedClock:
    def now(self) -> float:
        return float(INSTANTS[-1])


def samples(value: float | Callable[[int], float], instants: list[int] = INSTANTS) -> list[tuple[int, float]]:
    return [(at, value(at) if callable(value) else value) for at in instants]


def gpu(machine: str, device: str = "0", **more: str) -> dict[str, str]:
    return {"__name__": POWER, "instance": f"{machine}:9400", "gpu": device} | more


@pytest.fixture
def store_of(stand_in: Any, reply: Any, matrix: Any) -> Callable[..., Any]:
    """A store that answers range queries alone, from series by name, and nothing else."""

    def make(series: list[tuple[dict[str, str], list[tuple[int, float]]]], **more: Any) -> Any:
        def script(asked: Any) -> Any:
            if not asked.path.endswith("/query_range"):
                return reply(404, {"status": "error", "error": "no such call"})
            text, first, last = asked.form["query"], float(asked.form["start"]), float(asked.form["end"])
            flat: list[Any] = []
            for labels, values in series:
                if re.search(rf"\b{labels['__name__']}\b", text):
                    flat += [labels, [pair for pair in values if first <= pair[0] <= last]]
            return reply(body=matrix(*flat, **more))

        stand_in.script = script
        return stand_in

    return make


def fetch(stand_in: Any, task: Task | None = None, metrics: list[str] | None = None, **settings: Any) -> RawTask:
    membership = settings.pop("membership", MembershipSettings())
    catalogue = settings.pop("catalogue", load_catalogue())
    span = settings.pop("span", (INSTANTS[0], INSTANTS[-1]))
    settings.setdefault("interval_seconds", STEP)
    store = StoreSettings(url=stand_in.url, retries=0, **settings)
    with StoreClient(store) as client:
        source = PrometheusSource(
            client, catalogue, store, membership, metrics or ["gpu_power_draw"], clock=FixedClock()
        )
        return source.fetch_raw(task or Task("llm", matcher='task="llm"'), *span)


def rows(metric: RawMetric) -> dict[tuple[str, str | None], tuple[list[float], list[float]]]:
    names = zip(metric.machines, metric.devices, strict=True)
    parts = [slice(metric.offsets[i], metric.offsets[i + 1]) for i in range(len(metric.machines))]
    return {
        name: (metric.times[part].tolist(), metric.values[part].tolist())
        for name, part in zip(names, parts, strict=True)
    }


def test_a_store_without_instant_queries_is_read_and_its_interval_assumed_aloud(store_of: Any) -> None:
    raw = fetch(store_of([(gpu(m), samples(600.0)) for m in "abc"]), interval_seconds=None)
    assert raw.machines == ("a", "b", "c")
    assert raw.metrics[0].interval_seconds == STEP
    assert raw.warnings == (
        "the sampling interval of gpu_power_draw could not be measured: 15 s is assumed; set store.interval_seconds",
    )
    assert not raw.is_partial


def test_blank_markers_and_infinite_samples_are_missing_and_named(store_of: Any) -> None:
    store = store_of(
        [(gpu(m), samples(600.0)) for m in "ab"]
        + [
            (gpu("c"), samples(lambda at: float("inf") if at < START + 50 else 600.0)),
            (gpu("d"), samples(BLANK)),
            (gpu("e"), samples(lambda at: -float("inf") if at == START else float("nan") if at == START + 20 else 1.0)),
        ]
    )
    raw = fetch(store)
    got = rows(raw.metrics[0])
    assert [len(got[m, "gpu0"][0]) for m in "abce"] == [31, 31, 28, 29]
    assert ("d", "gpu0") not in got
    assert raw.machines == ("a", "b", "c", "d", "e")
    assert any("infinite count as missing: 4, on c, e" in text for text in raw.warnings)
    assert any("missing: 31, on d; no data for this metric: d" in text for text in raw.warnings)


def test_devices_are_named_alike_whatever_the_exporter(store_of: Any) -> None:
    ascend = {"__name__": "npu_chip_info_temperature", "instance": "b:8082", "id": "3"}
    store = store_of(
        [
            (gpu("a", "10"), samples(1.0)),
            (gpu("a", "0", GPU_I_ID="7"), samples(2.0)),
            (gpu("a", "nvidia1"), samples(3.0)),
            (ascend, samples(50.0)),
        ]
    )
    power, temperature = fetch(store, metrics=["gpu_power_draw", "gpu_temperature"]).metrics
    assert set(power.devices) == {"gpu10", "gpu0/7", "nvidia1"}
    assert (temperature.machines, temperature.devices) == (("b",), ("npu3",))


def test_a_marker_is_known_in_the_exporters_unit_and_values_are_scaled(store_of: Any) -> None:
    amd = {"__name__": "pcie_bandwidth", "instance": "a:5000", "gpu_id": "0"}
    store = store_of([(amd, samples(lambda at: BLANK if at == START else 8.0))])
    raw = fetch(store, metrics=["pcie_bandwidth"])
    assert rows(raw.metrics[0])["a", "gpu0"][1] == [1e6] * 30


def test_replicas_become_one_series_and_fill_each_others_holes(store_of: Any) -> None:
    hole = [at for at in INSTANTS if not START + 100 <= at <= START + 200]
    series = []
    for m in "abc":
        series.append((gpu(m, prometheus_replica="r-1"), samples(lambda at: at + 0.5)))
        series.append((gpu(m, prometheus_replica="r-0"), samples(float, hole if m == "b" else INSTANTS)))
    raw = fetch(store_of(series))
    got = rows(raw.metrics[0])
    assert len(got) == 3
    assert got["a", "gpu0"][1] == [float(at) for at in INSTANTS]
    assert got["b", "gpu0"] == ([float(at) for at in INSTANTS], [at if at in hole else at + 0.5 for at in INSTANTS])
    assert raw.warnings == ()


def test_other_doubles_are_told_by_their_label_and_averaged(store_of: Any) -> None:
    raw = fetch(store_of([(gpu("a", job=job), samples(value)) for job, value in (("x", 1.0), ("y", 3.0))]))
    assert set(rows(raw.metrics[0])["a", "gpu0"][1]) == {2.0}
    assert any('differ in the label "job" on a' in text and "store.replica_labels" in text for text in raw.warnings)


def test_series_of_one_machine_that_follow_each_other_are_joined_without_a_word(store_of: Any) -> None:
    raw = fetch(
        store_of([(gpu("a", pod="p1"), samples(1.0, INSTANTS[:10])), (gpu("a", pod="p2"), samples(2.0, INSTANTS[10:]))])
    )
    assert rows(raw.metrics[0])["a", "gpu0"][1] == [1.0] * 10 + [2.0] * 21
    assert raw.warnings == ()


def test_one_machine_name_in_two_clusters_asks_for_a_cluster(store_of: Any) -> None:
    store = store_of([(gpu("node01", cluster=c), samples(v)) for c, v in (("east", 600.0), ("west", 90.0))])
    with pytest.raises(StoreError, match=r'node01 is in more than one cluster \(east, west\): .*cluster="east"'):
        fetch(store)
    assert fetch(store, cluster_labels=[], replica_labels=["cluster"]).machines == ("node01",)


def test_two_clusters_are_noticed_where_each_metric_knows_only_one(store_of: Any) -> None:
    other = {"__name__": TEMP, "instance": "node01", "gpu": "0", "cluster": "west"}
    store = store_of([(gpu("node01", cluster="east"), samples(1.0)), (other, samples(2.0))])
    with pytest.raises(StoreError, match="more than one cluster"):
        fetch(store, metrics=["gpu_power_draw", "gpu_temperature"])


def test_a_host_label_that_changes_in_the_window_is_one_machine(store_of: Any) -> None:
    half = START + 300
    series = [(gpu("10.0.0.1", Hostname="exporter-7xk"), samples(1.0, [at for at in INSTANTS if at < half]))]
    series += [(gpu("10.0.0.1", Hostname="node-a"), samples(1.0, [at for at in INSTANTS if at >= half]))]
    series += [(gpu(f"10.0.0.{i}", Hostname=f"node-{n}"), samples(1.0)) for i, n in ((2, "b"), (3, "c"))]
    by_address = fetch(store_of(series))
    assert by_address.machines == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert by_address.warnings == ()
    by_host = fetch(store_of(series), membership=MembershipSettings(machine_label="Hostname"))
    assert by_host.machines == ("node-a", "node-b", "node-c")
    assert len(rows(by_host.metrics[0])["node-a", "gpu0"][0]) == 31
    assert any("exporter-7xk and node-a share one address" in text for text in by_host.warnings)


def test_many_machines_behind_one_address_stay_many(store_of: Any) -> None:
    raw = fetch(
        store_of([(gpu("gateway", Hostname=f"node-{n}"), samples(1.0)) for n in "abc"]),
        membership=MembershipSettings(machine_label="Hostname"),
    )
    assert raw.machines == ("node-a", "node-b", "node-c")
    assert raw.warnings == ()


def test_series_without_the_machine_label_are_counted_and_left_out(store_of: Any) -> None:
    store = store_of([(gpu("a", Hostname="node-a"), samples(1.0)), (gpu("b"), samples(1.0))])
    raw = fetch(store, membership=MembershipSettings(machine_label="Hostname"))
    assert raw.machines == ("node-a",)
    assert any('1 of 2 series carry no label "Hostname"' in text for text in raw.warnings)
    with pytest.raises(MembershipError, match=r'carry no label "node".*membership.machine_label \(they carry Hostname'):
        fetch(store, membership=MembershipSettings(machine_label="node"))


def test_values_carried_while_up_was_0_are_left_out_and_the_end_is_told(store_of: Any) -> None:
    stop = START + 300
    up = [({"__name__": "up", "instance": f"{m}:9400"}, samples(1.0)) for m in "abd"]
    up.append(({"__name__": "up", "instance": "c:9400"}, samples(lambda at: float(at <= stop))))
    wave = [(gpu(m), samples(lambda at: 600.0 + at % 7)) for m in "abd"]
    carried = [(gpu("c"), samples(lambda at: 600.0 + min(at, stop) % 7, [at for at in INSTANTS if at <= stop + 200]))]
    raw = fetch(store_of(up + wave + carried))
    assert rows(raw.metrics[0])["c", "gpu0"][0][-1] == stop
    assert len(rows(raw.metrics[0])["a", "gpu0"][0]) == 31
    assert any("10 values were carried forward while up was 0" in text for text in raw.warnings)
    assert "machine c stopped reporting gpu_power_draw at 2025-10-09T08:58:20Z" in raw.warnings


def test_many_late_machines_are_one_warning_and_a_lost_device_is_named(store_of: Any) -> None:
    late = INSTANTS[:-5]
    raw = fetch(store_of([(gpu(m), samples(1.0, INSTANTS if m in "ab" else late)) for m in "abcd"]))
    assert [text for text in raw.warnings if "stopped" in text] == []
    assert any("window ends differ: 2 of 4 machines (c, d) end up to 100 s before" in text for text in raw.warnings)
    raw = fetch(store_of([(gpu("a", d), samples(1.0, late if d == "3" else INSTANTS)) for d in "0123"]))
    assert any(text.startswith("machine a: gpu3 stopped reporting gpu_power_draw at") for text in raw.warnings)


def test_rates_beside_a_gap_are_left_out(store_of: Any) -> None:
    gap = INSTANTS[:12] + INSTANTS[18:]
    labels = {"__name__": RECEIVED, "instance": "a:9100"}
    raw = fetch(store_of([(labels, samples(5.0, gap))]), metrics=["tcp_throughput"])
    assert rows(raw.metrics[0])["a", None][0] == [float(at) for at in INSTANTS[:9] + INSTANTS[21:]]


def test_a_partial_answer_is_partial_and_a_note_is_none(store_of: Any) -> None:
    series = [(gpu(m), samples(1.0)) for m in "ab"]
    raw = fetch(store_of(series, warnings=["one store did not answer: deadline passed"]))
    assert raw.is_partial
    assert "the store says: one store did not answer: deadline passed" in raw.warnings
    raw = fetch(store_of(series, infos=["metric might not be a counter"]))
    assert not raw.is_partial
    assert raw.warnings == ("note of the store: metric might not be a counter",)


def test_a_store_that_answers_something_else_than_asked_is_not_believed(stand_in: Any, reply: Any, matrix: Any) -> None:
    body = matrix(gpu("a"), samples(1.0), {"__name__": "up", "instance": "a:9400"}, samples(1.0))
    stand_in.script = lambda asked: reply(body=body) if "query_range" in asked.path else reply(404)
    raw = fetch(stand_in, metrics=["gpu_power_draw", "gpu_temperature"])
    assert [metric.metric for metric in raw.metrics] == ["gpu_power_draw"]
    assert raw.metrics_absent == ("gpu_temperature",)
    assert len(raw.metrics[0].machines) == 1


def test_a_refused_range_is_halved_to_the_last_and_then_explained(stand_in: Any, reply: Any, matrix: Any) -> None:
    no = reply(400, {"status": "error", "errorType": "bad_data", "error": "more than 11 points per series asked for"})

    def script(asked: Any) -> Any:
        if "query_range" not in asked.path:
            return reply(404)
        first, last = float(asked.form["start"]), float(asked.form["end"])
        if last - first > most * STEP:
            return no
        return reply(body=matrix(gpu("a"), [pair for pair in samples(1.0) if first <= pair[0] <= last]))

    stand_in.script, most = script, 20
    assert rows(fetch(stand_in).metrics[0])["a", "gpu0"][0] == [float(at) for at in INSTANTS]
    most = 3
    with pytest.raises(StoreError, match=r"gpu_power_draw: .*more than 11 points per series.*interval_seconds to 40 "):
        fetch(stand_in)


def test_one_refused_query_does_not_take_the_others_down(stand_in: Any, reply: Any, matrix: Any) -> None:
    wrong = reply(400, {"status": "error", "errorType": "bad_data", "error": "parse error"})
    body = matrix(gpu("a"), samples(1.0))
    stand_in.script = lambda asked: (
        reply(404) if "query_range" not in asked.path else reply(body=body) if POWER in asked.form["query"] else wrong
    )
    raw = fetch(stand_in, metrics=["gpu_temperature", "gpu_power_draw"])
    assert raw.metrics_absent == ("gpu_temperature",)
    assert any(text.startswith("gpu_temperature (dcgm-exporter)") and "parse error" in text for text in raw.warnings)
    with pytest.raises(StoreError, match="parse error"):
        fetch(stand_in, metrics=["gpu_temperature"])


def test_a_login_page_is_an_error_and_not_an_empty_task(stand_in: Any, reply: Any) -> None:
    stand_in.play(reply(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}))
    with pytest.raises(StoreError, match=r"sign-in page\? check the token"):
        fetch(stand_in, interval_seconds=None)


def test_an_empty_store_says_what_was_asked(store_of: Any) -> None:
    with pytest.raises(
        MembershipError, match=r'no such task "llm" at http://127.*2025-10-09T08:53:20Z.*matcher task="llm"'
    ):
        fetch(store_of([]), span=(START, START + 600))


def test_the_future_and_an_empty_range_are_told(store_of: Any) -> None:
    raw = fetch(store_of([(gpu("a"), samples(1.0))]), span=(START, START + 3600))
    assert any("nothing is known of the future" in text for text in raw.warnings)
    with pytest.raises(SettingsError, match="is empty: give it a later end"):
        fetch(store_of([]), span=(START, START))
    with pytest.raises(SettingsError, match='no metric "gpu_pwr" in the catalogue'):
        fetch(store_of([]), metrics=["gpu_pwr"])


def test_groups_come_from_their_label_and_the_settings_win(store_of: Any) -> None:
    store = store_of([(gpu(m, stage=s), samples(1.0)) for m, s in (("a", "0"), ("b", "1"))])
    task = Task("llm", matcher='task="llm"', groups={"b": "last"})
    assert fetch(store, task, membership=MembershipSettings(group_label="stage")).groups == {"a": "0", "b": "last"}


def test_domains_come_from_their_labels_and_the_settings_win(store_of: Any) -> None:
    store = store_of([(gpu(m, rack=r, switch="s1"), samples(1.0)) for m, r in (("a", "1"), ("b", "1"), ("c", "2"))])
    task = Task("llm", matcher='task="llm"', domains={"rack 2": ("b:9400", "c:9400")})
    assert fetch(store, task, membership=MembershipSettings(domain_labels=("rack", "switch"))).domains == {
        "rack 1": ("a", "b"),
        "rack 2": ("b", "c"),
        "switch s1": ("a", "b", "c"),
    }


def test_a_metric_of_the_settings_is_fetched_with_its_devices(store_of: Any) -> None:
    own = MetricSettings(unit="s", queries=(QuerySettings(query='step_seconds{phase="all"}', device_label="rank"),))
    labels = {"__name__": "step_seconds", "instance": "a:1", "rank": "r3"}
    store = store_of([(labels, samples(0.5))])
    raw = fetch(store, catalogue=load_catalogue({"step": own}), metrics=["step"])
    assert raw.metrics[0].devices == ("r3",)
    assert store.asked[-2].form["query"] == 'last_over_time(step_seconds{phase="all",task="llm"}[30000ms])'


def find(stand_in: Any, name: str, **settings: Any) -> Task:
    with StoreClient(StoreSettings(url=stand_in.url, retries=0)) as client:
        return find_task(name, Settings(**settings), client, load_catalogue(), START, START + 900)


def test_a_name_that_tries_to_break_out_of_its_quotes_stays_a_name(stand_in: Any, reply: Any, matrix: Any) -> None:
    stand_in.play(reply(body=matrix({}, [(START, 1.0)])))
    task = find(stand_in, 'x"} or {a="\\')
    assert task.matcher == r'task="x\"} or {a=\"\\"'
    assert stand_in.asked[0].form["query"].endswith(',task="x\\"} or {a=\\"\\\\"})')
    with pytest.raises(MembershipError, match="printable name"):
        find(stand_in, "x\ny")


def test_the_first_label_that_knows_the_name_is_taken_and_told(stand_in: Any, reply: Any, matrix: Any) -> None:
    known = reply(body=matrix({}, [(START, 3.0)]))
    stand_in.script = lambda asked: known if 'slurm_job_id="77"' in asked.form["query"] else reply(body=matrix())
    task = find(stand_in, "77")
    assert task.matcher == 'slurm_job_id="77"'
    assert task.note == 'task 77 was found by the label slurm_job_id="77"'


def test_a_task_of_the_settings_is_not_asked_for(stand_in: Any) -> None:
    task = find(stand_in, "mine", tasks=(TaskSettings(name="mine", machines=("b", "a"), matcher='c="d"'),))
    assert task == Task("mine", ("a", "b"), 'c="d"')
    assert stand_in.asked == []


def test_an_unknown_task_lists_the_labels_and_the_names_there_are(stand_in: Any, reply: Any, matrix: Any) -> None:
    values = {"task": ["llm-7", "llm-9"], "job": [f"j{i:02d}" for i in range(14)]}

    def script(asked: Any) -> Any:
        if asked.path.endswith("/query_range"):
            return reply(body=matrix())
        label = asked.path.split("/")[-2]
        return reply(body={"status": "success", "data": values.get(label, [])})

    stand_in.script = script
    with pytest.raises(MembershipError) as caught:
        find(stand_in, "llm-8")
    text = str(caught.value)
    assert 'did you mean "llm-' in text
    assert "labels tried: task, job, training_job, job_name, slurm_job_id" in text
    assert "task: llm-7, llm-9; job: j00, j01" in text
    assert "j09 and 4 more" in text
    assert "membership.task_labels" in text


def test_order_of_series_and_slices_does_not_change_the_result(store_of: Any) -> None:
    series = [(gpu(m, d), [(at, ord(m) + int(d) + at % 11) for at in INSTANTS]) for m in "dacb" for d in "10"]
    first = fetch(store_of(series)).metrics[0]
    second = fetch(store_of(series[::-1]), max_points=7).metrics[0]
    assert first.machines == second.machines == tuple(m for m in "abcd" for _ in "01")
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.times, second.times)
