"""Names from labels, PromQL from templates, ranges in slices: all without a store."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainminder.catalogue import load_catalogue
from trainminder.settings import MachineRewrite, MembershipSettings
from trainminder.source.prometheus.matrix import MatrixAnswer
from trainminder.source.prometheus.names import machine_name, matching_label, quote, strip_port
from trainminder.source.prometheus.queries import (
    Grid,
    measured_interval,
    metric_names,
    probe,
    queries_of,
    range_expression,
    render,
    task_matchers,
)
from trainminder.types import MetricQuery, MetricSpec, Task


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("node-a:9100", "node-a"),
        ("10.0.0.1:9400", "10.0.0.1"),
        ("[fd00::1]:9100", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("fd00:10:2::56:1", "fd00:10:2::56:1"),
        ("fd00:10:2::56:2", "fd00:10:2::56:2"),
        ("::1", "::1"),
        ("node-a", "node-a"),
        ("node-a:http", "node-a:http"),
    ],
)
def test_only_a_port_is_cut_from_an_address(value: str, host: str) -> None:
    assert strip_port(value) == host


def test_rewritings_follow_the_port_and_apply_in_order() -> None:
    rewrites = (
        MachineRewrite(match=r"ip-(\d+)\.cluster", replace=r"node-\1"),
        MachineRewrite(match=r"node-0*(\d+)", replace=r"n\1"),
    )
    settings = MembershipSettings(machine_rewrites=rewrites)
    assert machine_name("ip-007.cluster:9100", settings) == "n7"
    assert machine_name("other:9100", settings) == "other"
    assert machine_name("node-1:9", MembershipSettings(strip_port=False)) == "node-1:9"


@given(st.text())
def test_no_text_can_leave_a_quoted_string(text: str) -> None:
    quoted = quote(text)
    inside = quoted[1:-1].replace("\\\\", "").replace('\\"', "")
    assert quoted[0] == quoted[-1] == '"'
    assert '"' not in inside
    assert "\n" not in quoted


def test_machines_are_matched_with_and_without_port_and_nothing_else() -> None:
    settings = MembershipSettings(machine_label="node")
    assert matching_label(["a.b", "fd00::1"], settings) == r'node=~"(a\\.b|\\[?fd00\\:\\:1\\]?)(:[0-9]+)?"'
    assert matching_label(["a"], MembershipSettings(strip_port=False)) == 'instance=~"(a)"'


@pytest.mark.parametrize(
    ("template", "with_one", "with_none"),
    [
        ("X{$matcher}", 'X{task="t"}', "X{}"),
        ('X{a="b",$matcher}', 'X{a="b",task="t"}', 'X{a="b"}'),
        ('X{a="b" , $matcher}', 'X{a="b" , task="t"}', 'X{a="b"}'),
        ('X{$matcher,a="b"}', 'X{task="t",a="b"}', 'X{a="b"}'),
        ("rate(X{$matcher}[$rate])", 'rate(X{task="t"}[60000ms])', "rate(X{}[60000ms])"),
        ('X{a=~"b$"} / $machine_label', 'X{a=~"b$"} / instance', 'X{a=~"b$"} / instance'),
    ],
)
def test_an_empty_matcher_takes_its_comma_with_it(template: str, with_one: str, with_none: str) -> None:
    assert render(template, matcher='task="t"') == with_one
    assert render(template) == with_none


def test_what_a_matcher_holds_is_not_filled_in_again() -> None:
    assert render("X{$matcher}", matcher='a="$rate"') == 'X{a="$rate"}'


def test_gauges_look_back_one_and_a_half_intervals_and_rates_four() -> None:
    gauge = MetricQuery("e", "X{$matcher}")
    counter = MetricQuery("e", "X", kind="counter")
    assert range_expression(gauge, 'a="b"', 1.0, "instance") == 'last_over_time(X{a="b"}[1500ms])'
    assert range_expression(counter, 'a="b"', 15.0, "instance") == 'rate(X{a="b"}[60000ms])'
    assert range_expression(MetricQuery("e", 'X{c="d"}'), 'a="b"', 1.0, "i") == 'last_over_time(X{c="d",a="b"}[1500ms])'
    assert probe(counter, "", 900) == "resets(X{}[900000ms])"
    assert probe(MetricQuery("e", "sum(X)", kind="expression"), "", 900) is None


def test_a_declared_metric_without_query_is_a_series_name_or_an_expression() -> None:
    (name,) = queries_of(MetricSpec("step_seconds", "s", declared=True))
    (expression,) = queries_of(MetricSpec("avg by (rank) (x)", "s", declared=True))
    assert range_expression(name, 'a="b"', 1.0, "instance") == 'last_over_time(step_seconds{a="b"}[1500ms])'
    assert expression.kind == "expression"


def test_every_catalogue_query_is_limited_to_the_task_and_keeps_nothing_stale() -> None:
    for spec in load_catalogue().values():
        assert metric_names(spec) or "pfc" in spec.name
        for query in spec.queries:
            text = range_expression(query, 'task="t"', 1.0, "instance")
            assert 'task="t"' in text
            assert "$" not in text
            # Each selector stands inside a range of our own; a bare one would look back five minutes.
            assert text.count('task="t"}[') == text.count('task="t"') == query.query.count("$matcher")
            if query.kind == "expression":
                assert query.selector


def test_many_machines_are_asked_for_in_pieces_that_no_store_refuses() -> None:
    names = tuple(f"gpu-node-{i:04d}.cluster.example" for i in range(2000))
    template = "sum(rate(X{$matcher}[$rate])) + sum(rate(Y{$matcher}[$rate]))"
    pieces = task_matchers(Task("t", machines=names), MembershipSettings(), template)
    assert all(len(render(template, matcher=piece)) < 16_000 for piece in pieces)
    assert sum(piece.count("gpu\\\\-node") for piece in pieces) == 2000
    rewritten = MembershipSettings(machine_rewrites=(MachineRewrite(match="a", replace="b"),))
    assert task_matchers(Task("t", machines=names), rewritten, template) == [""]
    assert task_matchers(Task("t", machines=names, matcher='{a="b",}'), MembershipSettings(), template) == ['a="b"']


@given(
    st.floats(1.0e9, 2.0e9), st.floats(0.0, 5000.0), st.sampled_from([0.1, 0.25, 1.0, 15.0, 29.97]), st.integers(2, 700)
)
def test_slices_cover_the_grid_once(from_at: float, seconds: float, step: float, most: int) -> None:
    grid = Grid.between(from_at, from_at + seconds, step)
    whole = list(range(grid.first_ms, grid.last_ms + 1, grid.step_ms))
    pieces = [list(range(piece.first_ms, piece.last_ms + 1, piece.step_ms)) for piece in grid.slices(most)]
    assert [at for piece in pieces for at in piece] == whole
    assert len(whole) == grid.points
    assert all(len(piece) <= most for piece in pieces)
    assert all(at % grid.step_ms == 0 for at in whole)
    assert not whole or (whole[0] >= from_at * 1000 - 1 and whole[-1] <= (from_at + seconds) * 1000 + 1)


def raw(*series: list[float]) -> MatrixAnswer:
    offsets = np.concatenate([[0], np.cumsum([len(times) for times in series])]).astype(np.int64)
    times = np.concatenate([np.array(times, dtype=np.float64) for times in series])
    return MatrixAnswer([{}] * len(series), offsets, times, times * 0)


@pytest.mark.parametrize(
    ("times", "interval"),
    [
        ([0.013, 1.012, 2.014, 4.013, 5.013], 1.0),
        ([0, 14.9, 30.1, 45, 60], 15.0),
        ([0, 0.1, 0.2, 0.31, 0.4], 0.1),
        ([0, 2.5, 5.0, 7.5], 2.5),
    ],
)
def test_jitter_and_lost_scrapes_do_not_change_the_measured_interval(times: list[float], interval: float) -> None:
    assert measured_interval(raw(times)) == (interval, interval)


def test_different_intervals_are_both_told_and_too_few_samples_tell_nothing() -> None:
    assert measured_interval(raw([0, 1, 2, 3], [0, 15, 30], [7])) == (1.0, 15.0)
    assert measured_interval(raw([0, 1], [5])) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("node_load1", "gauge"), ("node_network_receive_bytes_total", "counter"), ("a + b", "expression")],
)
def test_a_declared_name_that_is_a_counters_is_asked_as_a_rate(name: str, kind: str) -> None:
    (query,) = queries_of(MetricSpec(name, "", declared=True))
    assert query.kind == kind
