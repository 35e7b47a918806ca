"""The page as a browser shows it: offline, in light and dark, on a phone, on paper, with hostile names."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from servers import until
from trainminder.report import figures, verdict_sentence, write_report
from trainminder.types import Evidence, PassResult, Trail, Verdict

PassMaker = Callable[..., PassResult]
#: Gives the page open in a new context; whatever the browser complains about or asks for fails the test.
Opener = Callable[..., Page]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

NASTY = [
    "</script><script>window.hurt=1</script>",
    "<img src=x onerror='window.hurt=1'>",
    '"><svg onload=window.hurt=1>',
    "{{ 7*7 }}${window.hurt=1}",
    "<a href='javascript:window.hurt=1'>click</a>",
    "<b>bold</b> &lt;i&gt; %{x}",
    "@suspect",
    "\u202eevil\x00\x1b[31m\n",
    "ein sehr langer Name " * 12,
    "x" * 300,
    "日本-gpu-🔥",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    complaints: list[str] = []
    contexts = []

    def opened(result: PassResult, **context: Any) -> Page:
        path = tmp_path / "report.html"
        write_report(result, path)
        contexts.append(browser.new_context(**context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "request", lambda request: complaints.append(f"request: {request.url}") if is_foreign(request.url) else None
        )
        page.goto(path.as_uri())
        return page

    def is_foreign(url: str) -> bool:
        return not url.startswith("data:") and not url.endswith("/report.html")

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def plot_boxes(page: Page) -> list[dict[str, float]]:
    page.wait_for_selector("#heat-0 .main-svg")
    found: list[dict[str, float]] = page.evaluate(
        "[...document.querySelectorAll('.plot .main-svg:first-of-type')].map(e => e.getBoundingClientRect().toJSON())"
    )
    return found


def luminance(page: Page, selector: str, css: str) -> float:
    """Relative luminance of a computed colour, 0 black to 1 white."""
    text = page.eval_on_selector(selector, f"e => getComputedStyle(e).{css}")
    channels = [int(float(part)) / 255 for part in text.split("(")[1].rstrip(")").split(",")[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def wait_for_ground(page: Page, selector: str, color: str) -> None:
    """Until the plot has been redrawn on that colour: the browser tells pages of a change only later."""
    channels = ", ".join(str(int(color[place : place + 2], 16)) for place in (1, 3, 5))
    ground = "selector => getComputedStyle(document.querySelector(selector)).backgroundColor"
    # Asked from here: the page's policy lets nothing be evaluated in it.
    until(lambda: page.evaluate(ground, selector) == f"rgb({channels})", "the plot to be redrawn")


def contrast(page: Page, selector: str, background: str) -> float:
    ink, ground = luminance(page, selector, "color"), luminance(page, background, "backgroundColor")
    return (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05)


def test_the_sentence_stands_on_top_and_the_plots_are_drawn(a_pass: PassMaker, open_report: Opener) -> None:
    result = a_pass(padded=[(3, 400, 430)])
    page = open_report(result, viewport={"width": 1280, "height": 800})
    heading = page.locator("h1")
    assert heading.inner_text() == verdict_sentence(result)
    box = heading.bounding_box()
    assert box is not None
    assert box["y"] < 100
    assert len(plot_boxes(page)) == 2
    assert page.locator("#case-0 .scatterlayer .trace").count() == 7
    assert page.locator("#heat-0 .heatmaplayer image").count() == 1
    assert page.locator("#case-0 .annotation-text").all_text_contents() == ["onset 10:35:00", "confirmed 10:39:01"]


def test_the_suspect_the_onset_and_the_plot_are_seen_without_scrolling(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(a_pass(), viewport={"width": 1280, "height": 900})
    assert plot_boxes(page)[0]["bottom"] <= 900


def test_hovering_a_cell_names_the_machine_the_instant_and_the_score(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(a_pass(), viewport={"width": 1280, "height": 2600})
    plot_boxes(page)
    drag = page.locator("#heat-0 .nsewdrag").bounding_box()
    assert drag is not None
    page.mouse.move(drag["x"] + drag["width"] * 0.75, drag["y"] + 8)
    hover = page.locator("#heat-0 .hoverlayer text").first
    hover.wait_for()
    text = hover.text_content() or ""
    assert "gpu-03" in text
    assert "10:37" in text
    assert "normal score 1" in text


def test_every_plot_and_region_has_a_name_for_those_who_do_not_see_it(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(a_pass())
    assert page.get_attribute("html", "lang") == "en"
    names = [plot.get_attribute("aria-label") or "" for plot in page.locator('[role="img"]').all()]
    assert len(names) == 2
    assert "Onset 10:35:00 UTC, confirmed 10:39:01 UTC" in names[0]
    assert "16 of 16 machines" in names[1]
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("status", ["faulty", "none", "unknown"])
def test_page_and_plots_follow_the_scheme_and_stay_readable(
    a_pass: PassMaker, open_report: Opener, scheme: str, status: str
) -> None:
    page = open_report(a_pass(status=status, reason="a reason", warnings=["one"]), color_scheme=scheme)
    plot_boxes(page)
    grounds = [luminance(page, selector, "backgroundColor") for selector in ("body", "section", "#case-0 .main-svg")]
    assert max(grounds) < 0.02 if scheme == "dark" else min(grounds) > 0.85
    for selector in ("h1", ".status", ".context", "a", "figcaption", "th", "code"):
        if page.locator(selector).count():
            assert contrast(page, selector, "body" if selector == "code" else "header") >= 4.5, selector
    ink = page.eval_on_selector("#case-0 .xtick text", "e => getComputedStyle(e).fill")
    assert ink == ("rgb(230, 233, 237)" if scheme == "dark" else "rgb(27, 31, 36)")


def test_the_plots_change_with_the_scheme_while_the_page_is_open(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(a_pass(), color_scheme="light")
    plot_boxes(page)
    page.emulate_media(color_scheme="dark")
    wait_for_ground(page, "#case-0 .main-svg", figures.THEMES["dark"]["@plot"])


def test_a_phone_scrolls_only_down_and_its_plots_keep_readable_text(a_pass: PassMaker, open_report: Opener) -> None:
    names = [f"ip-10-120-33-{index}.eu-central-1.compute.internal" for index in range(60)]
    page = open_report(
        a_pass(machines=names, warnings=["w" * 200]),
        viewport={"width": 360, "height": 740},
        is_mobile=True,
        has_touch=True,
    )
    boxes = plot_boxes(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert all(box["left"] >= 0 and box["right"] <= 360 for box in boxes)
    sizes = page.evaluate(
        "[...document.querySelectorAll('.plot text')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    plotted = page.eval_on_selector("#heat-0 .nsewdrag", "e => e.getBoundingClientRect().width")
    assert plotted > 170, "machine names leave too little room for the cells"


def test_a_narrowed_window_redraws_its_plots(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(a_pass(), viewport={"width": 1280, "height": 800})
    plot_boxes(page)
    page.set_viewport_size({"width": 500, "height": 800})
    right = "document.querySelector('#case-0 .main-svg').getBoundingClientRect().right"
    until(lambda: page.evaluate(right) <= 500, "the plot to fit")
    assert page.evaluate("document.documentElement.scrollWidth") == 500


def test_paper_is_light_and_its_plots_fit_even_from_a_dark_screen(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(a_pass(machines=64), color_scheme="dark", viewport={"width": 1280, "height": 800})
    plot_boxes(page)
    page.emulate_media(media="print", color_scheme="dark")
    assert luminance(page, "body", "backgroundColor") > 0.99
    wait_for_ground(page, "#heat-0 .main-svg", "#ffffff")
    # A4 at 96 pixels per inch less the margins of 12 mm is 703 wide and 1032 high.
    assert all(box["width"] <= 703 and box["height"] <= 1032 for box in plot_boxes(page))
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


@pytest.mark.parametrize("status", ["faulty", "none", "unknown"])
def test_hostile_names_are_shown_and_do_nothing(a_pass: PassMaker, open_report: Opener, status: str) -> None:
    together = " ".join(NASTY)
    result = a_pass(
        machines=[*NASTY, together],
        odd_one=len(NASTY),
        status=status,
        task=together,
        device=together,
        metric=together,
        reason=together,
        warnings=NASTY,
        absent=NASTY,
        seconds=60,
        onset_second=30,
    )
    page = open_report(result, viewport={"width": 360, "height": 740})
    plot_boxes(page)
    assert page.evaluate("window.hurt") is None
    assert page.locator("img, b, main svg:not(.main-svg), a[href^='javascript']").count() == 0
    assert page.locator(".plot a").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator("h1").text_content() == verdict_sentence(result)
    rows = page.locator("#heat-0 .ytick text").all_text_contents()
    assert len(rows) == len(NASTY) + 1
    assert "@suspect" in rows
    assert any(row.startswith("<b>") for row in rows)
    page.locator("#heat-0").scroll_into_view_if_needed()
    drag = page.locator("#heat-0 .nsewdrag").bounding_box()
    assert drag is not None
    for row in range(len(rows)):
        page.mouse.move(drag["x"] + 20, drag["y"] + (row + 0.5) * drag["height"] / len(rows))
        page.locator("#heat-0 .hoverlayer text").first.wait_for()
    assert page.evaluate("window.hurt") is None


def by_default(result: PassResult) -> PassResult:
    """The same pass as the method default would give it: one weighed sign, a remark, and evidence over time."""
    given = result.verdicts[0]
    machine, onset = given.machine, given.onset
    others = [name for name in result.machines if name != machine][:5]
    sign = dataclasses.replace(given.evidence[0], weight=1.0, peers_low=11.9e9, peers_high=12.5e9, threshold=1.0)
    remarks = [
        Evidence(kind, given.metric, "machine", None, onset, onset + 24, score, 2.602, None, None, "", text)
        for kind, score, text in (
            ("confidence", 2.677, f"what {machine} did by then is rare"),
            ("considered", 1.3, f"{others[0]} departed as well: not enough beside {machine}"),
        )
    ]
    verdict = Verdict(machine, given.device, given.metric, onset, onset + 24, 2.677, None, (sign, *remarks))
    for trace in result.traces:
        trace.scores.normal_score[:] /= 5.1
        trace.scores.threshold[:] = 1.0
    times = result.traces[0].panel.times
    decades = np.zeros((1 + len(others), len(times)), dtype=np.float32)
    decades[0] = np.where(times < onset, 0, np.minimum((times - onset) / 9, 6.0))
    decades[1:, len(times) // 2 :] = 1.3
    trail = Trail((machine, *others), times, decades, 2.602)
    return dataclasses.replace(result, method="default", verdicts=(verdict,), trail=trail)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_evidence_over_time_is_drawn_with_its_limit_and_its_confirmation(
    a_pass: PassMaker, open_report: Opener, scheme: str
) -> None:
    page = open_report(by_default(a_pass()), viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    assert plot_boxes(page)[0]["bottom"] <= 900, "the suspect is not seen without scrolling"
    # Six machines, the limit, the confirmation.
    assert page.locator("#trail .scatterlayer .trace").count() == 8
    assert page.locator("#trail .annotation-text").all_text_contents() == [
        "confirmed 10:35:24",
        "limit: 400 machine-days",
    ]
    assert page.locator("#trail .ytick text").all_text_contents()[:3] == ["1", "10", "100"]
    stroke = page.locator("#trail .scatterlayer .trace .js-line").nth(5)
    drawn = stroke.evaluate("e => getComputedStyle(e).stroke")
    color = figures.THEMES[scheme]["@suspect"]
    assert drawn == f"rgb({', '.join(str(int(color[place : place + 2], 16)) for place in (1, 3, 5))})"
    limit, words = (
        page.locator("#trail .scatterlayer .trace .js-line").nth(6),
        page.locator("#trail .annotation").nth(1),
    )
    height = limit.evaluate("e => e.getBoundingClientRect().y")
    assert 0 <= words.evaluate("e => e.getBoundingClientRect().y") - height < 12, "the limit's words lie elsewhere"


def test_hovering_the_evidence_says_how_rare_in_machine_days(a_pass: PassMaker, open_report: Opener) -> None:
    page = open_report(by_default(a_pass()), viewport={"width": 1280, "height": 3000})
    plot_boxes(page)
    drag = page.locator("#trail .nsewdrag").bounding_box()
    assert drag is not None
    page.mouse.move(drag["x"] + drag["width"] * 0.9, drag["y"] + drag["height"] / 2)
    page.locator("#trail .hoverlayer text").first.wait_for()
    said = " ".join(page.locator("#trail .hoverlayer text").all_text_contents())
    assert "gpu-03 : once in 1M machine-days" in said
    assert "gpu-00 : once in 20 machine-days" in said


def test_evidence_on_a_phone_scrolls_only_down(a_pass: PassMaker, open_report: Opener) -> None:
    names = [f"ip-10-120-33-{index}.eu-central-1.compute.internal" for index in range(60)]
    page = open_report(
        by_default(a_pass(machines=names)), viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    )
    boxes = plot_boxes(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert all(box["left"] >= 0 and box["right"] <= 360 for box in boxes)
    words = page.locator("#trail .annotation").evaluate_all("all => all.map(e => e.getBoundingClientRect().toJSON())")
    assert all(box["left"] >= 0 and box["right"] <= 360 for box in words)


def test_hostile_names_in_the_evidence_are_shown_and_do_nothing(a_pass: PassMaker, open_report: Opener) -> None:
    together = " ".join(NASTY)
    names = [*NASTY, together]
    result = a_pass(
        machines=names, odd_one=len(NASTY), task=together, device=together, metric=together, seconds=60, onset_second=30
    )
    page = open_report(by_default(result), viewport={"width": 360, "height": 740})
    plot_boxes(page)
    page.locator("#trail").scroll_into_view_if_needed()
    drag = page.locator("#trail .nsewdrag").bounding_box()
    assert drag is not None
    page.mouse.move(drag["x"] + drag["width"] * 0.8, drag["y"] + drag["height"] / 2)
    page.locator("#trail .hoverlayer text").first.wait_for()
    assert page.evaluate("window.hurt") is None
    assert page.locator("img, b, main svg:not(.main-svg), a[href^='javascript']").count() == 0
    assert page.locator(".plot a").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator("h1").text_content() == verdict_sentence(by_default(result))
