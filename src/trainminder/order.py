"""The order in which metrics are asked: one per environment, learned from simulated faults and shipped as data.

``orders.toml`` is written by ``tools/learn_orders.py``; ``docs/metric-order.md`` shows the trees and the evidence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

__all__ = ["ordered", "shipped_orders"]


@cache
def shipped_orders() -> Mapping[str, tuple[str, ...]]:
    """Environment -> its metrics, most fault-sensitive first."""
    text = files("trainminder").joinpath("orders.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: tuple(entry["metrics"]) for name, entry in tomllib.loads(text).items()})


def ordered(metrics: Iterable[str], environment: str) -> tuple[str, ...]:
    """Put metrics in the order of an environment; those that it does not know come last, as they were given.

    Args:
        environment: one of ``shipped_orders``; ``auto`` takes the one whose metrics are most like these (the largest
            share in common of all in either), ``catalogue`` leaves them as they are.
    Raises:
        KeyError: an environment that has no order; settings offer none.
    """
    given = tuple(metrics)
    if environment == "catalogue":
        return given
    orders = shipped_orders()
    if environment == "auto":
        environment = max(orders, key=lambda name: _likeness(orders[name], given))
    place = {name: place for place, name in enumerate(orders[environment])}
    return tuple(sorted(given, key=lambda name: place.get(name, len(place))))


def _likeness(some: Collection[str], others: Collection[str]) -> float:
    return len(set(some).intersection(others)) / max(len(set(some).union(others)), 1)
