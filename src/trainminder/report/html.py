"""One self-contained page about one pass: it opens offline, prints, and reads well on a phone.

The plots are drawn by plotly's script, inlined from the installed package: the page fetches nothing, and its
content security policy allows only the scripts it carries, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from trainminder import wording
from trainminder.errors import SettingsError
from trainminder.report import digest, figures
from trainminder.report.advice import next_steps
from trainminder.report.cases import cases_and_heats, evidence_over_time, standing_rows
from trainminder.report.terms import terms_of
from trainminder.report.text import coverage_sentence, verdict_sentence
from trainminder.types import PassResult

__all__ = ["render_report", "write_report"]

#: Names listed before "and n more".
MOST_LISTED = 12


def write_report(result: PassResult, path: Path) -> None:
    """Write the page about one pass.

    Raises:
        SettingsError: the file cannot be written; the message names it.
    """
    try:
        path.write_text(render_report(result), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"report {path}: {error.strerror}: give a path that can be written") from error


def render_report(result: PassResult, generated_at: float | None = None) -> str:
    """The page about one pass as HTML; the same result gives the same text.

    Args:
        generated_at: shown at the foot; None leaves it out.
    """
    # Here, because it costs a tenth of a second that a pass printed as text need not pay.
    from plotly.offline import get_plotlyjs

    script = _asset("report.js")
    plotly = f"\n{get_plotlyjs()}\n"
    standings = digest.rank_traces(result)
    cases, heats = cases_and_heats(result, standings)
    trail = evidence_over_time(result)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            sentence=verdict_sentence(result),
            steps=next_steps(result),
            cases=cases,
            trail=trail,
            heats=heats,
            terms=terms_of(result.method),
            has_plots=bool(heats) or trail is not None or any(case["plot"] for case in cases),
            standings=standing_rows(result, standings),
            coverage=coverage_sentence(result),
            unseen=wording.plain(wording.some_names(digest.unseen_machines(result), MOST_LISTED)),
            from_at=wording.date_time(result.from_at),
            to_at=wording.date_time(result.to_at),
            span=wording.span(result.to_at - result.from_at),
            generated=wording.date_time(generated_at) if generated_at is not None else None,
            themes=figures.THEMES,
            style=Markup(_asset("report.css")),  # noqa: S704 ours, not a reader's
            script=Markup(script),  # noqa: S704 ours
            plotly=Markup(plotly),  # noqa: S704 the installed package's
            policy=_policy(script, plotly),
            plain=wording.plain,
        )
    )
    return page if page.endswith("\n") else f"{page}\n"


def _policy(*scripts: str) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    # Plotly writes style rules and draws heatmaps as data: images.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["plain"] = wording.plain
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_function"] = json.dumps
    return environment
