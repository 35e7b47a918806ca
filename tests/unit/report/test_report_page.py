"""What the page shows, as data: the browser's side is in tests/real."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from trainminder.errors import SettingsError
from trainminder.report import digest, figures, render_report, write_report
from trainminder.types import PassResult

PassMaker = Callable[..., PassResult]


def figure_in(page: str, plot: str) -> dict[str, Any]:
    found = re.search(rf'id="{plot}-data">(.*?)</script>', page, re.DOTALL)
    assert found, f"no plot {plot}"
    figure: dict[str, Any] = json.loads(found[1])
    return figure


def line_named(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(trace for trace in figure["data"] if trace.get("name") == name)


def test_the_same_result_gives_the_same_bytes(a_pass: PassMaker) -> None:
    assert render_report(a_pass()) == render_report(a_pass())


def test_the_instant_of_writing_is_shown_only_when_given(a_pass: PassMaker) -> None:
    result = a_pass(status="unknown", reason="x", traces=False)
    assert "written" not in render_report(result)
    assert "written 2026-03-01 10:30:00 UTC" in render_report(result, generated_at=result.from_at)


def test_a_page_about_1500_machines_stays_small_without_the_plot_library(a_pass: PassMaker) -> None:
    names = [f"node-{index:04d}" for index in range(1500)]
    page = render_report(a_pass(machines=names, seconds=900))
    assert len(page.encode()) - len(get_plotlyjs().encode()) < 300_000


def test_many_verdicts_keep_the_page_small_and_are_all_listed(a_pass: PassMaker) -> None:
    result = a_pass(machines=32, seconds=1800)
    verdicts = tuple(dataclasses.replace(result.verdicts[0], machine=f"gpu-{index:02d}") for index in range(20))
    page = render_report(dataclasses.replace(result, verdicts=verdicts))
    assert len(page.encode()) - len(get_plotlyjs().encode()) < 300_000
    assert all(f'<h2 id="verdict-{index}">gpu-{index:02d} (gpu5): pcie_bandwidth</h2>' in page for index in range(20))


def test_onset_and_confirmation_are_marked_and_labelled(a_pass: PassMaker) -> None:
    result = a_pass()
    layout = figure_in(render_report(result), "case-0")["layout"]
    lines = [shape["x0"] for shape in layout["shapes"] if shape["type"] == "line"]
    assert lines == [result.verdicts[0].onset * 1000, result.verdicts[0].confirmed * 1000]
    assert [note["text"] for note in layout["annotations"]] == ["onset 10:35:00", "confirmed 10:39:01"]


def test_the_suspect_is_drawn_in_the_unit_people_read(a_pass: PassMaker) -> None:
    figure = figure_in(render_report(a_pass()), "case-0")
    suspect, peers = line_named(figure, "gpu-03")["y"], line_named(figure, "peers' median")["y"]
    assert figure["layout"]["yaxis"]["title"]["text"] == "GB/s"
    assert suspect[-1] == pytest.approx(4.1, abs=0.5)
    assert peers[-1] == pytest.approx(12.2, abs=0.7)


def test_a_padded_stretch_is_a_gap_in_the_line_and_in_the_heatmap(a_pass: PassMaker) -> None:
    page = render_report(a_pass(padded=[(3, 400, 459)], seconds=600))
    suspect = line_named(figure_in(page, "case-0"), "gpu-03")
    # 600 samples in 300 bins: samples 400..459 are bins 200..229.
    assert [value is None for value in suspect["y"][198:232]] == [False] * 2 + [True] * 30 + [False] * 2
    assert suspect["connectgaps"] is False
    row = figure_in(page, "heat-0")["data"][0]["z"][0]
    # Windows that hold no sample: those which start at 400 and end at 459, 400 - 459 - 7.
    assert row.count(None) == (459 - 7 - 400 + 1) // 2


def test_a_one_second_drop_survives_the_reduction(a_pass: PassMaker) -> None:
    result = a_pass(status="none", seconds=1800)
    trace = result.traces[0]
    trace.panel.values[3, 1001] = 0.0
    band = digest.band_of(trace, 3)
    assert band.samples_per_bin == 6
    assert band.suspect.min() == 0.0


def test_a_sample_between_two_gaps_is_drawn_as_a_point(a_pass: PassMaker) -> None:
    page = render_report(a_pass(seconds=200, onset_second=60, padded=[(3, 100, 109), (3, 111, 120)]))
    assert line_named(figure_in(page, "case-0"), "gpu-03")["mode"] == "lines+markers"


def test_the_band_is_broken_where_no_peer_was_sampled(a_pass: PassMaker) -> None:
    padded = [(machine, 50, 59) for machine in range(4) if machine != 1]
    page = render_report(a_pass(machines=4, odd_one=1, seconds=200, onset_second=100, padded=padded))
    outline = figure_in(page, "case-0")["data"][0]
    assert outline["fill"] == "toself"
    assert outline["x"].count(None) == outline["y"].count(None) == 1


def test_peers_are_only_those_of_the_same_group(a_pass: PassMaker) -> None:
    trace = a_pass().traces[0]
    groups = np.array([0] * 8 + [1] * 8, dtype=np.int64)
    trace.panel.values[8:] *= 100
    grouped = dataclasses.replace(trace, scores=dataclasses.replace(trace.scores, group_of=groups))
    band = digest.band_of(grouped, 3)
    assert band.peers == 7
    assert np.nanmax(band.high) < 20e9


def test_the_device_of_the_verdict_is_drawn_where_the_panel_has_it(a_pass: PassMaker) -> None:
    trace = a_pass().traces[0]
    devices = tuple("gpu5" if row == 4 else "gpu0" for row in range(16))
    owners = trace.panel.row_machine.copy()
    owners[4] = 3
    panel = dataclasses.replace(trace.panel, row_device=devices, row_machine=owners)
    own = digest.band_of(dataclasses.replace(trace, panel=panel), 3, "gpu5")
    judged = digest.band_of(dataclasses.replace(trace, panel=panel), 3)
    assert own.suspect[-1] == pytest.approx(12.2e9, rel=0.15)
    assert judged.suspect[-1] == pytest.approx(4.1e9, rel=0.15)


def test_a_large_task_shows_its_forty_strangest_machines_and_says_so(a_pass: PassMaker) -> None:
    result = a_pass(machines=[f"node-{index:03d}" for index in range(200)], odd_one=177, seconds=900)
    page = render_report(result)
    heat = figure_in(page, "heat-0")
    assert len(heat["data"][0]["z"]) == 40
    assert len(heat["data"][0]["z"][0]) <= 300
    assert heat["layout"]["yaxis"]["ticktext"][0] == "<b>▶ node-177</b>"
    assert "The 40 strangest of 200 machines are shown." in page


def test_the_onset_lies_over_the_bin_that_holds_it(a_pass: PassMaker) -> None:
    result = a_pass(seconds=900)
    cells = figure_in(render_report(result), "heat-0")["data"][0]
    index = (result.verdicts[0].onset * 1000 - cells["x0"]) / cells["dx"]
    # The score passes the threshold in the window that starts at the onset, 7 s later.
    first = next(place for place, value in enumerate(cells["z"][0]) if value and value > 5.1)
    assert first == pytest.approx(index + 7 / 3, abs=1)


def test_without_a_verdict_the_metric_with_the_strangest_machine_is_shown(a_pass: PassMaker) -> None:
    result = a_pass(status="none")
    second = result.traces[1]
    second.scores.normal_score[9, 100:130] = 6.0
    page = render_report(result)
    assert "Normal score of cpu_usage" in page
    assert "gpu-09 against its 15 peers" in page
    assert "<strong>30 s</strong>" in page
    assert "annotations" not in figure_in(page, "case-0")["layout"]


def test_an_unknown_verdict_without_traces_still_says_what_to_do(a_pass: PassMaker) -> None:
    page = render_report(a_pass(status="unknown", reason="the store did not answer", traces=False))
    assert "<h1>task llm-7: unknown: the store did not answer</h1>" in page
    assert "Unknown is not healthy" in page
    assert "plotly" not in page.lower()


def test_machines_without_a_row_are_listed_as_not_seen(a_pass: PassMaker) -> None:
    result = a_pass(status="none")
    for trace in result.traces:
        trace.panel.rows[5] = -1
        trace.scores.normal_score[5] = np.nan
    page = render_report(result)
    assert "<dt>machines not seen</dt><dd>gpu-05</dd>" in page


def test_a_metric_that_could_not_be_judged_is_listed_as_such(a_pass: PassMaker) -> None:
    result = a_pass(status="none")
    result.traces[1].scores.normal_score[:] = np.nan
    result.traces[1].scores.threshold[:] = np.nan
    page = render_report(result)
    assert '<td data-label="strangest machine">not judged</td>' in page
    assert ">nan" not in page


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a&b"])
def test_a_foreign_name_reaches_the_page_only_escaped(a_pass: PassMaker, name: str) -> None:
    page = render_report(a_pass(machines=["x", "y", "z", name], task=name, device=name, warnings=[name], absent=[name]))
    assert name not in page.replace(get_plotlyjs(), "")


def test_every_figure_is_one_that_plotly_accepts(a_pass: PassMaker) -> None:
    page = render_report(a_pass(padded=[(3, 400, 430)]))
    for plot in ("case-0", "heat-0"):
        text = json.dumps(figure_in(page, plot))
        for token, color in figures.THEMES["dark"].items():
            text = text.replace(f'"{token}"', f'"{color}"')
        assert '"@' not in text
        assert go.Figure(json.loads(text)).data


def test_both_themes_colour_the_same_tokens() -> None:
    assert figures.THEMES["light"].keys() == figures.THEMES["dark"].keys()


def test_a_path_that_cannot_be_written_is_named(a_pass: PassMaker, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.html"
    with pytest.raises(SettingsError, match=rf"report {re.escape(str(path))}: No such file or directory: give a path"):
        write_report(a_pass(status="unknown", reason="x", traces=False), path)
