"""The order in which metrics are asked: one per environment, learned from simulated faults and shipped as data.

``orders.toml`` is written by ``tools/learn_orders.py``; ``docs/metric-order.md`` shows the trees and the evidence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

__all__ = ["LearnedOrder", "ordered", "shipped_orders"]


@dataclass(frozen=True, slots=True)
class LearnedOrder:
    """The metrics of an environment, most fault-sensitive first.

    ``is_better``: whether its first metrics told held-out faults better than those of the catalogue's order.
    """

    metrics: tuple[str, ...]
    is_better: bool


@cache
def shipped_orders() -> Mapping[str, LearnedOrder]:
    """Environment -> its order."""
    text = files("trainminder").joinpath("orders.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)
    orders = {name: LearnedOrder(tuple(entry["metrics"]), entry["is_better"]) for name, entry in entries.items()}
    return MappingProxyType(orders)


def ordered(metrics: Iterable[str], environment: str) -> tuple[str, ...]:
    """Put metrics in the order of an environment; those that it does not know come last, as they were given.

    Args:
        environment: one of ``shipped_orders``; ``auto`` takes the one whose metrics are most like these (the largest
            share in common of all in either), if its order is better; ``catalogue`` leaves them as they are.
    Raises:
        KeyError: an environment that has no order; settings offer none.
    """
    given = tuple(metrics)
    if environment == "catalogue":
        return given
    orders = shipped_orders()
    if environment == "auto":
        environment = max(orders, key=lambda name: _likeness(orders[name].metrics, given))
        if not orders[environment].is_better:
            return given
    place = {name: place for place, name in enumerate(orders[environment].metrics)}
    return tuple(sorted(given, key=lambda name: place.get(name, len(place))))


def _likeness(some: Collection[str], others: Collection[str]) -> float:
    return len(set(some).intersection(others)) / max(len(set(some).union(others)), 1)
