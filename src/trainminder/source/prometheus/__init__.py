"""Prometheus-compatible stores over HTTP: Prometheus, VictoriaMetrics, Mimir, Thanos.

``http`` talks to the store and ``matrix`` parses its answers; ``queries`` and ``ranges`` decide what is asked;
``names``, ``series`` and ``stale`` make machines' series of the answers; ``source`` brings it together, and
``following`` asks it again and again for what is new.
"""

from __future__ import annotations

from trainminder.source.prometheus.following import Followed
from trainminder.source.prometheus.http import StoreClient
from trainminder.source.prometheus.source import PrometheusSource

__all__ = ["Followed", "PrometheusSource", "StoreClient"]
