"""The methods that the bench compares, by name. Building one imports what it needs, and nothing before that does.

Here belong the product's own methods, the publication's ablations and baseline, detectors of other projects, and the
oracle; all but the oracle see nothing but ``task.raw``. What decides in production is ``trainminder.pipeline``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from trainminder.bench.types import Method

__all__ = ["METHODS", "standard_methods"]


def _paper(name: str, **changes: Any) -> Method:
    from trainminder.bench.methods.paper import PaperMethod

    return PaperMethod(name, **changes)


def _default(name: str) -> Method:
    from trainminder.bench.methods.default import DefaultMethod

    del name
    return DefaultMethod()


def _of_metrics(name: str, which: str) -> Method:
    from trainminder.bench.methods import paper

    return paper.PaperMethod(name, metrics=getattr(paper, which))


def _without_continuity(name: str) -> Method:
    from trainminder.bench.methods.paper import UNSURE_PROBABILITIES, PaperMethod

    return PaperMethod(name, thresholds=UNSURE_PROBABILITIES, lasting_seconds=0.0)


def _concatenated(name: str) -> Method:
    from trainminder.bench.methods.concatenated import concatenated
    from trainminder.bench.methods.joint import JointMethod

    return JointMethod(name, concatenated)


def _integrated(name: str) -> Method:
    from trainminder.bench.methods.concatenated import integrated
    from trainminder.bench.methods.joint import JointMethod

    return JointMethod(name, integrated)


def _mahalanobis(name: str) -> Method:
    from trainminder.bench.methods.joint import JointMethod
    from trainminder.bench.methods.mahalanobis import mahalanobis

    return JointMethod(name, mahalanobis)


def _augurs(name: str) -> Method:
    from trainminder.bench.methods.augurs import AugursMethod

    return AugursMethod("mad" if name == "mad" else "dbscan")


def _learned(name: str) -> Method:
    from trainminder.bench.methods import learned

    return learned.knn() if name == "knn" else learned.iforest()


def _oracle(name: str) -> Method:
    from trainminder.bench.methods.oracle import Oracle

    del name
    return Oracle()


_MAKERS: Mapping[str, Callable[[str], Method]] = {
    "default": _default,
    "paper": _paper,
    "paper-raw": partial(_paper, is_denoised=False),
    "paper-con": _concatenated,
    "paper-int": _integrated,
    "paper-no-continuity": _without_continuity,
    "paper-manhattan": partial(_paper, distance="manhattan"),
    "paper-chebyshev": partial(_paper, distance="chebyshev"),
    "paper-three-metrics": partial(_of_metrics, which="THREE_METRICS"),
    "paper-fewer-metrics": partial(_of_metrics, which="SEVEN_METRICS"),
    "paper-more-metrics": _paper,
    "mahalanobis": _mahalanobis,
    "mad": _augurs,
    "dbscan": _augurs,
    "knn": _learned,
    "iforest": _learned,
    "oracle": _oracle,
}

#: Name -> builds the method. Building raises ``MissingExtra`` or ``MissingProgram`` where a part is not installed.
METHODS: Mapping[str, Callable[[], Method]] = MappingProxyType(
    {name: partial(maker, name) for name, maker in _MAKERS.items()}
)


def standard_methods() -> tuple[str, ...]:
    """The names in the standard comparison: each method once."""
    # ``paper`` asks all metrics already.
    return tuple(name for name in METHODS if name != "paper-more-metrics")
