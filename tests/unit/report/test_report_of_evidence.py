"""What a person sees of the method default: how rare, which signs, how it grew, and who else was considered."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console
from rich.text import Text

from trainminder.report import digest, figures, print_result, render_report, verdict_sentence
from trainminder.report.evidence import days_of, rarity_and_limit
from trainminder.types import Evidence, PassResult, Trail, Verdict

PassMaker = Callable[..., PassResult]
LIMIT = 2.602


def a_sign(result: PassResult, metric: str, weight: float, device: str | None = None) -> Evidence:
    onset = result.from_at + 300
    return Evidence(
        kind="metric",
        metric=metric,
        view="device" if device else "mean",
        device=device,
        since=onset,
        until=onset + 86,
        score=28.8,
        threshold=1.0,
        value=4.07e9,
        peers=12.2e9,
        unit="bytes/s",
        text=f"{metric} was below its peers",
        weight=weight,
        peers_low=11.9e9,
        peers_high=12.5e9,
    )


def a_remark(result: PassResult, kind: str, text: str, score: float = 2.677) -> Evidence:
    onset = result.from_at + 300
    return Evidence(kind, "pcie_bandwidth", "machine", None, onset, onset + 24, score, LIMIT, None, None, "", text)


def weighed(
    result: PassResult,
    *,
    machine: str | None = None,
    signs: Sequence[Evidence] = (),
    is_silent: bool = False,
    considered: Sequence[str] = (),
) -> Verdict:
    """A verdict of the method default, against the odd one of ``a_pass`` unless another is named."""
    onset = result.from_at + 300
    evidence = list(signs)
    if is_silent:
        evidence.insert(0, a_remark(result, "silence", "gpu-03 ceased to report while its peers went on"))
    evidence.append(a_remark(result, "confidence", "what gpu-03 did by then is rare"))
    evidence += [a_remark(result, "considered", text, 1.3) for text in considered]
    first = evidence[0]
    return Verdict(machine or "gpu-03", first.device, first.metric, onset, onset + 24, 2.677, None, tuple(evidence))


def by_default(
    a_pass: PassMaker, *verdicts: Callable[[PassResult], Verdict], trailed: Sequence[str] = (), **given: Any
) -> PassResult:
    """A pass of the method default: without verdicts, one with three signs is made.

    Args:
        trailed: machines beside the odd one whose evidence was kept.
    """
    result = dataclasses.replace(a_pass(**given), method="default")
    for trace in result.traces:
        trace.scores.normal_score[:] /= 5.1
        trace.scores.threshold[:] = 1.0
    if result.status == "faulty":
        makers = verdicts or (three_signs,)
        result = dataclasses.replace(result, verdicts=tuple(make(result) for make in makers))
    times = result.from_at + np.arange(600.0)
    names = ("gpu-03", *trailed) if result.status == "faulty" else tuple(trailed)
    decades = np.zeros((len(names), 600), dtype=np.float32)
    for row, _ in enumerate(names):
        decades[row, 300:] = np.linspace(0, 2.677, 25).tolist() + [2.677 + 2] * 275 if row == 0 else [1.3 / row] * 300
    return dataclasses.replace(result, trail=Trail(names, times, decades, LIMIT))


def three_signs(result: PassResult) -> Verdict:
    signs = [
        a_sign(result, "pcie_bandwidth", 0.45, "gpu5"),
        a_sign(result, "rdma_throughput", 0.51),
        a_sign(result, "disk_io", 0.01),
    ]
    return weighed(result, signs=signs)


def silent(result: PassResult) -> Verdict:
    return weighed(result, is_silent=True)


def figure_in(page: str, plot: str) -> dict[str, Any]:
    found = re.search(rf'id="{plot}-data">(.*?)</script>', page, re.DOTALL)
    assert found, f"no plot {plot}"
    figure: dict[str, Any] = json.loads(found[1])
    return figure


def printed(result: PassResult, *, width: int = 10_000, is_terminal: bool = False) -> str:
    out = io.StringIO()
    print_result(result, Console(file=out, width=width, force_terminal=is_terminal or None))
    return out.getvalue()


def words_of(page: str) -> str:
    """The page as read: without scripts and tags."""
    bare = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).replace("&#39;", "'").split())


# ---------------------------------------------------------------- in words


def test_the_sentence_says_how_rare_it_is_on_a_healthy_machine(a_pass: PassMaker) -> None:
    assert verdict_sentence(by_default(a_pass)) == (
        "task llm-7: machine gpu-03 (gpu5) is faulty: pcie_bandwidth has departed from its peers since 10:35:00 UTC "
        "(for 86 s); a healthy machine does so once in 475 machine-days (limit once in 400)"
    )


def test_a_machine_that_ceased_to_report_is_said_to_have(a_pass: PassMaker) -> None:
    assert "gpu-03 is faulty: it ceased to report at 10:35:00 UTC while its peers went on; a healthy" in (
        verdict_sentence(by_default(a_pass, silent))
    )


def test_a_machine_that_still_reports_something_is_not_said_to_be_silent_altogether(a_pass: PassMaker) -> None:
    def partly(result: PassResult) -> Verdict:
        return weighed(result, is_silent=True, signs=[a_sign(result, "gpu_duty_cycle", 1.0)])

    assert "it ceased to report at 10:35:00 UTC, at least in part, while" in verdict_sentence(
        by_default(a_pass, partly)
    )


def test_of_several_verdicts_the_limit_is_said_once(a_pass: PassMaker) -> None:
    makers = [
        lambda result, name=f"gpu-{index:02d}": weighed(result, machine=name, signs=[a_sign(result, "disk_io", 1.0)])
        for index in range(4)
    ]
    assert verdict_sentence(by_default(a_pass, *makers)) == (
        "task llm-7: 4 machines are faulty: "
        "gpu-00: disk_io since 10:35:00 UTC, once in 475 machine-days; "
        "gpu-01: disk_io since 10:35:00 UTC, once in 475 machine-days; "
        "gpu-02: disk_io since 10:35:00 UTC, once in 475 machine-days; and 1 more "
        "(expected of a healthy machine; limit once in 400 machine-days)"
    )


def test_rarity_is_said_in_days_then_in_years_and_no_further_than_a_million() -> None:
    assert days_of(0.0) == "1 machine-day"
    assert days_of(0.5) == "3.2 machine-days"
    assert days_of(2.602) == "400 machine-days"
    assert days_of(6.043) == "3,023 machine-years"
    assert days_of(400.0) == "over 1,000,000 machine-years"


def test_the_limit_repeats_the_unit_only_where_it_differs() -> None:
    assert rarity_and_limit(2.677, LIMIT) == "once in 475 machine-days (limit once in 400)"
    assert rarity_and_limit(6.043, LIMIT) == "once in 3,023 machine-years (limit once in 400 machine-days)"
    assert rarity_and_limit(2.677, None) == "once in 475 machine-days"


def test_off_a_terminal_each_sign_is_one_line_with_weight_value_and_peers(a_pass: PassMaker) -> None:
    lines = printed(by_default(a_pass)).splitlines()
    first = next(line for line in lines if line.startswith("gpu-03"))
    assert re.split(r" {2,}", first.strip()) == [
        "gpu-03 (gpu5)",
        "10:35:00",
        "10:35:24",
        "45 %",
        "pcie_bandwidth (gpu5)",
        "4.07 GB/s, peers 12.2 GB/s",
    ]
    assert any(re.fullmatch(r" +51 % +rdma_throughput +4.07 GB/s, peers 12.2 GB/s *", line) for line in lines)
    assert any(line.strip() == "and 1 more metric" for line in lines)


def test_the_table_of_signs_fits_eighty_columns_and_loses_nothing(a_pass: PassMaker) -> None:
    names = [f"ip-10-120-33-{index}.eu-central-1.compute.internal" for index in range(4)]

    def long_names(result: PassResult) -> Verdict:
        signs = [a_sign(result, "gpu_memory_bandwidth_of_the_device", 1.0, "gpu5")]
        return weighed(result, machine=names[3], signs=signs)

    plain = Text.from_ansi(printed(by_default(a_pass, long_names, machines=names), width=80, is_terminal=True)).plain
    lines = plain.splitlines()
    assert max(map(len, lines)) <= 80
    table = "".join(lines[next(index for index, line in enumerate(lines) if "─" in line) :])
    assert "4.07 GB/s" in table
    assert "peers 12.2 GB/s" in table


def test_the_table_says_who_is_silent(a_pass: PassMaker) -> None:
    assert re.search(r"gpu-03 .* silence +ceased to report, peers report", printed(by_default(a_pass, silent)))


def test_who_else_was_considered_is_listed_once_and_never_who_has_a_verdict(a_pass: PassMaker) -> None:
    def accused(result: PassResult, name: str) -> Verdict:
        texts = [f"{other} departed as well, 5 s later: not enough beside {name}" for other in ("gpu-04", "gpu-05")]
        return weighed(result, machine=name, signs=[a_sign(result, "disk_io", 1.0)], considered=texts)

    result = by_default(a_pass, lambda result: accused(result, "gpu-03"), lambda result: accused(result, "gpu-04"))
    considered = [line for line in printed(result).splitlines() if line.startswith("considered")]
    assert considered == ["considered at 10:35:24: gpu-05 departed as well, 5 s later: not enough beside gpu-03"]


def test_a_sign_without_a_sample_is_said_to_have_none(a_pass: PassMaker) -> None:
    def unsampled(result: PassResult) -> Verdict:
        return weighed(result, signs=[dataclasses.replace(a_sign(result, "disk_io", 1.0), value=float("nan"))])

    result = by_default(a_pass, unsampled)
    assert "no sample, peers 12.2 GB/s" in printed(result)
    assert "nan" not in words_of(render_report(result)).split()


# ---------------------------------------------------------------- on the page


def test_the_page_gives_the_facts_and_the_signs_by_weight(a_pass: PassMaker) -> None:
    words = words_of(render_report(by_default(a_pass)))
    assert "since 10:35:00 UTC for 86 s confirmed 10:35:24 UTC 24 s after the onset" in words
    assert "expected once in 475 machine-days of a healthy machine; limit: 400 machine-days" in words
    assert "pcie_bandwidth gpu5 45 % 4.07 GB/s 12.2 GB/s nine in ten 11.9 to 12.5 GB/s 28.8 10:36:26" in words
    assert "Departed for a moment as well: disk_io." in words
    assert "Together: what gpu-03 did by then is rare." in words


def test_the_page_of_the_method_default_knows_no_normal_score(a_pass: PassMaker) -> None:
    page = render_report(by_default(a_pass))
    assert "normal score" not in page.replace(get_plotlyjs(), "").lower()
    assert "Departure of pcie_bandwidth, every machine over time" in page
    assert figure_in(page, "case-0")["layout"]["yaxis2"]["title"]["text"] == "departure"
    assert "departure %{z}" in figure_in(page, "heat-0")["data"][0]["hovertemplate"]


def test_the_page_of_the_method_paper_has_neither_departures_nor_a_trail(a_pass: PassMaker) -> None:
    page = render_report(a_pass()).replace(get_plotlyjs(), "")
    assert "machine-day" not in page
    assert "departure" not in page.lower()
    assert "Evidence over time" not in page


def test_remarks_are_sentences_and_no_table_cell_is_left_for_them(a_pass: PassMaker) -> None:
    page = render_report(by_default(a_pass, silent))
    assert '<h2 id="verdict-0">gpu-03: ceased to report</h2>' in page
    assert "<p>gpu-03 ceased to report while its peers went on.</p>" in page
    assert 'data-label="weight"' not in page


def test_the_page_says_who_was_considered_or_that_nobody_was(a_pass: PassMaker) -> None:
    def beside(result: PassResult) -> Verdict:
        return weighed(
            result, signs=[a_sign(result, "disk_io", 1.0)], considered=["gpu-04 departed as well: not enough"]
        )

    assert "What else was considered gpu-04 departed as well: not enough." in words_of(
        render_report(by_default(a_pass, beside))
    )
    assert "Nobody: at 10:35:24 UTC there was no evidence against any other machine." in words_of(
        render_report(by_default(a_pass))
    )


def test_a_considered_machine_that_was_convicted_later_is_said_to_have_been(a_pass: PassMaker) -> None:
    def first(result: PassResult) -> Verdict:
        return weighed(result, signs=[a_sign(result, "disk_io", 1.0)], considered=["gpu-04 departed as well"])

    def second(result: PassResult) -> Verdict:
        return weighed(result, machine="gpu-04", signs=[a_sign(result, "disk_io", 1.0)])

    assert "gpu-04 departed as well at that time; its own verdict came later." in words_of(
        render_report(by_default(a_pass, first, second))
    )


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a&b"])
def test_a_foreign_name_reaches_the_page_only_escaped(a_pass: PassMaker, name: str) -> None:
    def hostile(result: PassResult) -> Verdict:
        signs = [a_sign(result, name, 0.9, name), a_sign(result, f"{name}2", 0.01)]
        return weighed(result, machine=name, signs=signs, considered=[f"{name} departed as well"])

    result = by_default(a_pass, hostile, machines=["x", "y", "z", name], trailed=["x"])
    assert result.trail is not None
    result = dataclasses.replace(result, trail=dataclasses.replace(result.trail, machines=(name, "x")))
    assert name not in render_report(result).replace(get_plotlyjs(), "")


def test_what_to_look_at_covers_the_other_heavy_signs_too(a_pass: PassMaker) -> None:
    def effect_first(result: PassResult) -> Verdict:
        return weighed(
            result, signs=[a_sign(result, "pfc_tx_packet_rate", 0.6), a_sign(result, "pcie_bandwidth", 0.4, "gpu1")]
        )

    words = words_of(render_report(by_default(a_pass, effect_first)))
    assert words.index("Is the NIC sending pause frames?") < words.index("Has the PCIe link fallen")


def test_each_metric_has_one_row_among_all_metrics(a_pass: PassMaker) -> None:
    result = by_default(a_pass)
    twice = dataclasses.replace(result, traces=(*result.traces, *result.traces))
    assert render_report(twice).count('<td data-label="strangest machine">') == 2


# ---------------------------------------------------------------- evidence over time


def test_the_evidence_is_drawn_in_machine_days_up_to_the_limit_and_beyond(a_pass: PassMaker) -> None:
    result = by_default(a_pass, trailed=["gpu-07"])
    figure = figure_in(render_report(result), "trail")
    peer, suspect, limit, confirmed = figure["data"]
    assert (peer["name"], suspect["name"]) == ("gpu-07", "gpu-03")
    assert peer["line"]["width"] < suspect["line"]["width"]
    assert max(peer["y"]) == pytest.approx(10**1.3, rel=0.01)
    assert limit["y"] == pytest.approx([400, 400], rel=0.001)
    assert limit["line"]["dash"] == "dash"
    assert confirmed["x"] == [result.verdicts[0].confirmed * 1000]
    assert confirmed["y"] == [475]
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert figure["layout"]["yaxis"]["title"]["text"] == "once in … machine-days"
    assert figure["layout"]["yaxis"]["ticktext"][:4] == ["1", "10", "100", "1,000"]
    assert [note["text"] for note in figure["layout"]["annotations"]] == [
        "confirmed 10:35:24",
        "limit: 400 machine-days",
    ]


def test_small_evidence_keeps_its_size_beside_great(a_pass: PassMaker) -> None:
    result = by_default(a_pass, trailed=["gpu-07"])
    assert result.trail is not None
    result.trail.decades[0, 400:] = 9.0
    peer = figure_in(render_report(result), "trail")["data"][0]
    assert set(peer["y"]) == {1.0, 20.0}


def test_the_highest_evidence_of_a_bin_is_drawn() -> None:
    trail = Trail(("a",), np.arange(900.0), np.zeros((1, 900), dtype=np.float32), LIMIT)
    trail.decades[0, 400] = 3.0
    growth = digest.growth_of(trail)
    assert growth.decades.shape == (1, 300)
    assert growth.decades.max() == 3.0


def test_who_does_not_see_the_plot_is_told_what_it_shows(a_pass: PassMaker) -> None:
    page = render_report(by_default(a_pass, trailed=["gpu-07"]))
    assert (
        "The limit is once in 400 machine-days: gpu-03 passes it at 10:35:24 UTC; gpu-07 comes as far as once in "
        "20 machine-days."
    ) in page


def test_without_a_verdict_the_most_suspicious_machine_is_shown_with_how_far_it_came(a_pass: PassMaker) -> None:
    result = by_default(a_pass, status="none", trailed=["gpu-09"])
    assert result.trail is not None
    result.trail.decades[0] = 1.3
    result.traces[1].scores.normal_score[9, 100:130] = 1.5
    page = render_report(result)
    words = words_of(page)
    assert "most suspicious machine gpu-09 not a verdict metric cpu_usage" in words
    assert "expected once in 20 machine-days of a healthy machine; limit: 400 machine-days" in words
    assert "longest departure 30 s without a break" in words
    assert figure_in(page, "trail")["layout"]["shapes"] == []


def test_where_nobody_was_suspicious_no_empty_plot_is_drawn(a_pass: PassMaker) -> None:
    page = render_report(by_default(a_pass, status="none"))
    assert "Evidence over time" not in page
    assert "evidence none against any machine at any time; limit: 400 machine-days" in words_of(page)


def test_a_silent_machine_without_a_row_in_its_metric_is_drawn_up_to_its_last_sample(a_pass: PassMaker) -> None:
    result = by_default(a_pass, silent)
    trace = result.traces[0]
    trace.panel.rows[3, 300:] = -1
    trace.scores.normal_score[3, 300:] = np.nan
    figure = figure_in(render_report(result), "case-0")
    suspect = next(line for line in figure["data"] if line.get("name") == "gpu-03")
    assert suspect["y"][100] is not None
    assert set(suspect["y"][155:]) == {None}


def test_every_figure_is_one_that_plotly_accepts(a_pass: PassMaker) -> None:
    page = render_report(by_default(a_pass, trailed=["gpu-07", "gpu-08"]))
    for plot in ("case-0", "heat-0", "trail"):
        text = json.dumps(figure_in(page, plot))
        for token, color in figures.THEMES["dark"].items():
            text = text.replace(f'"{token}"', f'"{color}"')
        assert '"@' not in text
        assert go.Figure(json.loads(text)).data


def test_the_same_result_gives_the_same_bytes(a_pass: PassMaker) -> None:
    assert render_report(by_default(a_pass)) == render_report(by_default(a_pass))


def test_many_verdicts_of_a_large_task_keep_the_page_small(a_pass: PassMaker) -> None:
    names = [f"gpu-{index:04d}" for index in range(1500)]
    makers = [lambda result, name=name: dataclasses.replace(three_signs(result), machine=name) for name in names[:20]]
    result = by_default(a_pass, *makers, machines=names, seconds=900, trailed=names[1:6])
    page = render_report(result)
    assert len(page.encode()) - len(get_plotlyjs().encode()) < 300_000
    assert all(f">{name} (gpu5): pcie_bandwidth</h2>" in page for name in names[:20])
