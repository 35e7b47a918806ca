"""``trainminder catalogue``."""

from __future__ import annotations

import json
from typing import Any

from trainminder.catalogue import load_catalogue


def test_the_table_has_one_row_per_metric_in_the_order_they_are_asked(run: Any) -> None:
    ran = run("catalogue")
    assert ran.code == 0
    firsts = [line.split()[0] for line in ran.out.splitlines() if line.split()]
    assert [word for word in firsts if word in load_catalogue()] == list(load_catalogue())
    row = next(line for line in ran.out.splitlines() if "cpu_usage" in line)
    assert row.split()[:5] == ["cpu_usage", "percent", "0..100", "machine", "both"]


def test_off_a_terminal_no_query_is_folded_or_read_as_markup(run: Any) -> None:
    out = run("catalogue").out
    for spec in load_catalogue().values():
        for query in spec.queries:
            assert f"{query.exporter}: {query.query}" in out


def test_json_is_one_document_with_every_field(run: Any) -> None:
    ran = run("catalogue", "--format", "json")
    listed = json.loads(ran.out)
    assert [entry["name"] for entry in listed] == list(load_catalogue())
    duty = next(entry for entry in listed if entry["name"] == "gpu_duty_cycle")
    assert (duty["unit"], duty["lower"], duty["upper"], duty["level"]) == ("percent", 0.0, 100.0, "device")
    assert duty["queries"][0]["query"] == "DCGM_FI_DEV_GPU_UTIL{$matcher}"


def test_an_exporter_keeps_only_its_metrics_and_its_queries(run: Any) -> None:
    listed = json.loads(run("catalogue", "--exporter", "node_exporter", "--format", "json").out)
    names = {entry["name"] for entry in listed}
    assert "cpu_usage" in names
    assert "gpu_duty_cycle" not in names
    assert {query["exporter"] for entry in listed for query in entry["queries"]} == {"node_exporter"}


def test_an_unknown_exporter_is_an_error_that_names_the_known_ones(run: Any) -> None:
    ran = run("catalogue", "--exporter", "dcgm")
    assert (ran.code, ran.out) == (1, "")
    assert "--exporter dcgm: no metric has a query for it" in ran.err
    assert "dcgm-exporter" in ran.err


def test_metrics_of_the_settings_are_listed_too(run: Any) -> None:
    ran = run("catalogue", "--set", "metrics.step_time={unit: s, lower: 0}")
    assert ran.code == 0
    row = next(line for line in ran.out.splitlines() if "step_time" in line)
    assert row.split()[:3] == ["step_time", "s", "0.."]
