"""Where a command gets its task from: a recording, or a live store."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainminder.cli.instants import parse_instant
from trainminder.errors import RecordingError, SettingsError, StoreError
from trainminder.wording import some_names

if TYPE_CHECKING:
    from trainminder.catalogue import Catalogue
    from trainminder.settings import Settings
    from trainminder.types import RawTask

__all__ = ["Fetched", "Wanted", "catalogue_of", "check_one_source", "fetch", "fetch_live"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which task, and which part of it. ``at`` is as the user wrote it; None: the end of a recording, or now."""

    recording: Path | None
    task: str | None
    at: str | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A task as its source gave it, and how long that took."""

    raw: RawTask
    seconds: float
    is_live: bool


def catalogue_of(settings: Settings, declared: Iterable[str] | None) -> Catalogue:
    """The catalogue with the settings' overrides and what ``--metric`` admits."""
    from trainminder.catalogue import load_catalogue

    return load_catalogue(settings.metrics).with_declared(declared or ())


def check_one_source(recording: object, prometheus: str | None) -> None:
    """Refuse a recording and a store on one command line: one of them would be passed over.

    Raises:
        SettingsError: both are given.
    """
    if recording and prometheus is not None:
        raise SettingsError("RECORDING and --prometheus are both given: give one or the other")


def fetch(wanted: Wanted, settings: Settings, catalogue: Catalogue) -> Fetched:
    """Read the task from the recording, if one is given, else from the store.

    Raises:
        SettingsError: neither is given, or the store lacks a task's name.
        SourceError: it could not be read.
    """
    if wanted.recording is None:
        began = time.perf_counter()
        to_at = parse_instant(wanted.at or "now")
        minutes = wanted.minutes if wanted.minutes is not None else settings.detect.minutes
        raw = fetch_live(wanted.task, to_at - minutes * 60.0, to_at, settings, catalogue)
        return Fetched(raw, time.perf_counter() - began, is_live=True)
    if not wanted.recording.exists():
        # Said before anything heavy is loaded.
        raise RecordingError(f"{wanted.recording} does not exist: give a Parquet or CSV file, or a folder of them")
    from trainminder.source.cutting import with_members
    from trainminder.source.recordings import read_recording

    began = time.perf_counter()
    raw = read_recording(
        wanted.recording, catalogue, settings.recording, task=wanted.task, metrics=settings.detect.metrics
    )
    for stated in settings.tasks:
        if stated.name == raw.task:
            raw = with_members(raw, stated.machines, stated.groups, stated.domains)
    return Fetched(_cut(raw, wanted), time.perf_counter() - began, is_live=False)


def fetch_live(task: str | None, from_at: float, to_at: float, settings: Settings, catalogue: Catalogue) -> RawTask:
    """Find a task in the store and fetch its series between two instants (Unix seconds).

    Raises:
        SettingsError: no store or no task is named.
        SourceError: it could not be read.
    """
    if not from_at < to_at:
        raise SettingsError(f"the range from {from_at:.15g} to {to_at:.15g} (Unix seconds) is empty: give a later end")
    if settings.store.url is None:
        raise SettingsError("nothing to read: give a RECORDING, or a store with --prometheus URL (or store.url)")
    if task is None:
        raise SettingsError("--task is missing: name the task to look at in the store")
    from trainminder.membership.promql import find_task
    from trainminder.source.prometheus import PrometheusSource
    from trainminder.source.prometheus.http import StoreClient

    client = StoreClient(settings.store)
    try:
        found = find_task(task, settings, client, catalogue, from_at, to_at)
        source = PrometheusSource(
            client,
            catalogue,
            settings.store,
            settings.membership,
            metrics=settings.detect.metrics,
            extra_sentinels=settings.recording.sentinels,
        )
        raw = source.fetch_raw(found, from_at, to_at)
    finally:
        client.close()
    unfound = [name for name in raw.metrics_absent if catalogue[name].declared]
    if unfound:
        raise StoreError(
            f"{client.address}: no series of task {task} for the metric {some_names(unfound)}: it is asked as the "
            f"name of a series or an expression; give its query under metrics.{unfound[0]}.queries in the settings"
        )
    return dataclasses.replace(raw, note=found.note)


def _cut(raw: RawTask, wanted: Wanted) -> RawTask:
    """The part of a recording that ``--at`` and ``--minutes`` ask for; all of it without them."""
    if wanted.at is None and wanted.minutes is None:
        return raw
    from trainminder.source.cutting import cut_raw

    to_at = raw.to_at if wanted.at is None else parse_instant(wanted.at, now=raw.to_at)
    from_at = raw.from_at if wanted.minutes is None else to_at - wanted.minutes * 60.0
    return cut_raw(raw, from_at, to_at)
