"""Grafana's outlier detectors, MAD and DBSCAN, metric by metric, with the same continuity.

They come as the npm package ``@bsull/augurs`` and run in node: one process per method, fed over its standard input.
As in a dashboard they see means of half a minute over the last five minutes, and are asked anew every minute; before
half of that interval is there, they are not. Their sensitivity is the threshold. A machine is the candidate of a look
if it was an outlier in most of the newest minute, and of those lies furthest outside the detector's band, in widths of
the band: neither detector itself says which outlier is the worst.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from trainminder.bench.methods.deciding import Found, fixed_limits
from trainminder.bench.methods.paper import verdict_in
from trainminder.bench.methods.prepared import Channel, prepare
from trainminder.bench.types import LabelledTask
from trainminder.errors import MissingProgram
from trainminder.types import FloatArray, IntArray, Verdict, WindowScores

__all__ = ["PACKAGE", "VERSION", "AugursMethod", "package_folder"]

PACKAGE, VERSION = "@bsull/augurs", "0.10.2"

SAMPLE_SECONDS, HOP_SECONDS, INTERVAL_SECONDS = 30.0, 60.0, 300.0
SENSITIVITIES = (0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


def package_folder() -> Path:
    """Where the npm package lies: in the ``node_modules`` of the Python environment."""
    return Path(sys.prefix) / "node_modules" / PACKAGE


class AugursMethod:
    """One of the two detectors.

    Raises:
        MissingProgram: node or the npm package is not installed.
    """

    thresholds = SENSITIVITIES

    def __init__(self, kind: Literal["mad", "dbscan"]) -> None:
        self.name = self._kind = kind
        node = shutil.which("node")
        if node is None:
            raise MissingProgram(f"method {kind} needs node: install Node.js 18 or newer (Debian: nodejs, npm)")
        if not (package_folder() / "outlier.js").exists():
            raise MissingProgram(
                f"method {kind} needs the npm package {PACKAGE}: "
                f"npm install --no-save --prefix {sys.prefix} {PACKAGE}@{VERSION}"
            )
        self._command = [node, str(Path(__file__).with_name("augurs.mjs")), str(package_folder())]
        self._process: subprocess.Popen[bytes] | None = None

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        """The verdicts at each sensitivity."""
        prepared = prepare(task.raw)
        found = [Found((sensitivity,), task.continuity_seconds) for sensitivity in thresholds]
        for channel in prepared.channels:
            ends_at, looks = self._looks(channel, prepared.group_of, thresholds)
            panel = channel.panel
            for place, score in enumerate(looks):
                scores = WindowScores(
                    metric=panel.metric,
                    view=panel.view,
                    machines=panel.machines,
                    ends_at=ends_at,
                    step_seconds=panel.step_seconds,
                    dissimilarity=score,
                    normal_score=score,
                    threshold=score,
                    group_of=prepared.group_of,
                )
                found[place].add(scores, fixed_limits((0.0,)), partial(verdict_in, channel))
        return [each.verdicts()[0] for each in found]

    def _looks(
        self, channel: Channel, group_of: IntArray, sensitivities: Sequence[float]
    ) -> tuple[FloatArray, FloatArray]:
        """(look,) when each look was taken, and (sensitivity, machine, look) what it said of each machine."""
        step = channel.panel.step_seconds
        each = max(round(SAMPLE_SECONDS / step), 1)
        hop = max(round(HOP_SECONDS / (each * step)), 1)
        interval = max(round(INTERVAL_SECONDS / (each * step)), 2 * hop)
        samples = _samples(channel, each)
        ends_at = channel.ends_at[: samples.shape[1] * each].reshape(-1, each)[:, -1]
        ends_at = ends_at[: len(ends_at) // hop * hop].reshape(-1, hop)[:, -1]
        said = np.full((len(sensitivities), len(group_of), len(ends_at)), np.nan)
        for group in np.unique(group_of[group_of >= 0]):
            members = np.flatnonzero(group_of == group)
            said[:, members] = self._ask(samples[members], sensitivities, interval, hop)
        return ends_at, said

    def _ask(self, samples: FloatArray, sensitivities: Sequence[float], interval: int, hop: int) -> FloatArray:
        """(sensitivity, series, look): see ``augurs.mjs``."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        request = {
            "kind": self._kind,
            "sensitivities": list(sensitivities),
            "series": samples.shape[0],
            "samples": samples.shape[1],
            "interval": interval,
            "hop": hop,
        }
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n" + samples.astype("<f8").tobytes())
            process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words follow
        answer = json.loads(process.stdout.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise RuntimeError(f"{' '.join(self._command)}: {answer['error']}")
        shape = len(sensitivities), samples.shape[0], answer["looks"]
        data = process.stdout.read(8 * int(np.prod(shape)))
        return np.frombuffer(data, "<f8").reshape(shape)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            weakref.finalize(self, _end, self._process)
        return self._process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Closing its input ends it."""
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        process.stdout.close()
    process.wait(timeout=10)


def _samples(channel: Channel, each: int) -> FloatArray:
    """(machine, sample): means over so many windows' newest samples; NaN where none of them is there."""
    panel = channel.panel
    windows = panel.rows.shape[1] // each * each
    newest = np.arange(windows) + panel.window_samples - 1
    rows = panel.rows[:, :windows]
    present = (rows >= 0) & panel.present[np.maximum(rows, 0), newest]
    values = np.where(present, panel.values[np.maximum(rows, 0), newest], 0.0)
    counts = present.reshape(len(rows), -1, each).sum(axis=2)
    sums = values.reshape(len(rows), -1, each).sum(axis=2)
    means: FloatArray = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means
