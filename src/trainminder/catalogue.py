"""The metric catalogue: canonical names, units, bounds and the queries that give them.

The data live in ``catalogue.toml``; settings (``metrics:``) override any field of any metric, add
queries, or admit new metrics. Nothing here touches a store.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from trainminder.errors import SettingsError
from trainminder.settings import MetricSettings
from trainminder.types import MetricQuery, MetricSpec

__all__ = ["Catalogue", "load_catalogue"]

#: Units whose physical bounds are known, for metrics admitted with ``NAME=UNIT``.
UNIT_BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "percent": (0.0, 100.0),
    "ratio": (0.0, 1.0),
    "C": (0.0, 120.0),
}


class Catalogue(Mapping[str, MetricSpec]):
    """Canonical name -> specification, in the catalogue's order (the order metrics are asked in)."""

    def __init__(self, specs: Iterable[MetricSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}

    def __getitem__(self, name: str) -> MetricSpec:
        return self._specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def nearest(self, name: str) -> str | None:
        """The canonical name most like ``name``, or None when nothing is like it."""
        close = difflib.get_close_matches(name.lower(), self._specs, n=1, cutoff=0.6)
        return close[0] if close else None

    def with_declared(self, declarations: Iterable[str]) -> Catalogue:
        """A catalogue that also admits each ``NAME`` or ``NAME=UNIT``.

        Raises:
            SettingsError: a declaration without a name, or a unit that contradicts the catalogue.
        """
        specs = dict(self._specs)
        for text in declarations:
            spec = _parse_declaration(text)
            known = specs.get(spec.name)
            if known is None:
                specs[spec.name] = spec
            elif spec.unit and spec.unit != known.unit:
                raise SettingsError(
                    f'--metric {text}: the catalogue gives "{spec.name}" in {known.unit}: leave the unit out, '
                    f"or convert the values, or admit it under another name"
                )
        return Catalogue(specs.values())


def _parse_declaration(text: str) -> MetricSpec:
    """The metric that ``NAME`` or ``NAME=UNIT`` admits; bounds follow from a known unit.

    Raises:
        SettingsError: the name is empty.
    """
    name, _, unit = (part.strip() for part in text.partition("="))
    if not name:
        raise SettingsError(f'--metric "{text}": a name is missing: write NAME or NAME=UNIT')
    lower, upper = UNIT_BOUNDS.get(unit, (None, None))
    # A bounded unit states its own scale; anything else is judged relative to the task's level.
    spread = 0.02 * (upper - lower) if lower is not None and upper is not None else 0.0
    return MetricSpec(name=name, unit=unit, lower=lower, upper=upper, spread=spread, declared=True)


def load_catalogue(overrides: Mapping[str, MetricSettings] | None = None) -> Catalogue:
    """The shipped catalogue with the overrides of the settings applied.

    Raises:
        SettingsError: an override leaves a metric impossible (bounds reversed); all problems at once.
    """
    specs = dict(_shipped())
    problems: list[str] = []
    for name, override in (overrides or {}).items():
        # Settings serve many tasks: a metric they admit may be absent from one, unlike one asked for with --metric.
        base = specs.get(name) or dataclasses.replace(_parse_declaration(f"{name}={override.unit}"), declared=False)
        spec = _overridden(base, override)
        if spec.lower is not None and spec.upper is not None and spec.lower >= spec.upper:
            problems.append(f"metrics.{name}: lower is {spec.lower:g} but upper is {spec.upper:g}: lower must be less")
        specs[name] = spec
    if problems:
        raise SettingsError(*problems)
    return Catalogue(specs.values())


def _overridden(base: MetricSpec, override: MetricSettings) -> MetricSpec:
    changed: dict[str, Any] = override.model_dump(exclude_unset=True, exclude={"queries"})
    if override.queries is not None:
        changed["queries"] = tuple(MetricQuery(**query.model_dump()) for query in override.queries)
    return dataclasses.replace(base, **changed)


@cache
def _shipped() -> dict[str, MetricSpec]:
    text = files("trainminder").joinpath("catalogue.toml").read_text(encoding="utf-8")
    specs: dict[str, MetricSpec] = {}
    for name, entry in tomllib.loads(text).items():
        queries = tuple(MetricQuery(**query) for query in entry.pop("queries", []))
        specs[name] = MetricSpec(name=name, queries=queries, **entry)
    return specs
