"""The stream of one task: samples come in as they come, and the verdict so far is there at any time.

What was judged is remembered in little and never looked at again. The verdict after some samples is that of one pass
over all of them, in whatever pieces and order they came, as long as none is later than the lag that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainminder.align import layout_of, looks_back
from trainminder.coverage import SILENT_SECONDS, Sight, forgotten_seconds
from trainminder.errors import StateError, TooFewMachines, Unobservable
from trainminder.feed import Feed
from trainminder.pipeline import groups_of, judge_block, ordered_metrics
from trainminder.settings import DetectSettings
from trainminder.stream.memory import SAVED, Memory
from trainminder.stream.saving import pack, unpack
from trainminder.suspect import distrust_lines
from trainminder.types import Denoiser, IntArray, PassResult, RawTask, Status, Verdict
from trainminder.wording import counted, some_names

__all__ = ["TaskStream", "run_pass"]

#: Cells of a metric that are judged at a time, about: few enough to stay near the processor. The method *paper* looks
#: at few windows, and at the fewer the more there are to choose from.
AT_ONCE = {"default": 200_000, "paper": 4_500_000}
#: Settled cells that are looked back upon by a method that knows no windows.
LOOK_BACK = 4


class TaskStream:
    """One task, judged as its samples come in.

    Args:
        settings: ``lag_seconds`` among them: samples this much older than the newest are still taken in wherever they
            belong; older ones are left out, and a warning counts them.
        denoiser_for: gives the denoising model of a metric; asked by the method *paper* only.
    """

    def __init__(
        self,
        settings: DetectSettings,
        denoiser_for: Callable[[str], Denoiser],
    ) -> None:
        self.settings = settings
        self._denoiser_for = denoiser_for
        self._memory = Memory(Feed(_look_back(settings), settings.lag_seconds))

    def take(self, raw: RawTask) -> None:
        """Take in more samples, and judge what is complete by now.

        Whatever interrupts it, the stream stays as it was before: the same samples can be given again.

        Args:
            raw: samples of the task, in any order; those taken in before are passed over. Its machines are the
                members where it says so, and else some of them. Nothing is judged beyond its end.
        Raises:
            ModelError: a model is missing or does not fit.
        """
        memory = _settled(self._memory.with_samples(raw), self.settings, self._denoiser_for)
        self._memory = replace(memory, feed=memory.feed.without_what_is_settled())

    def result(self, *, keep_traces: bool = False) -> PassResult:
        """The verdict so far, which is *unknown* where nothing could be observed.

        Args:
            keep_traces: keep panels and scores of what is not settled yet, for the report.
        Raises:
            Unobservable: nothing was taken in.
            ModelError: a model is missing or does not fit.
        """
        return _told(self._memory, self.settings, self._denoiser_for, keep_traces=keep_traces)

    @property
    def settled_until(self) -> float:
        """Up to this instant everything is judged for good; -inf: nothing is."""
        return self._memory.feed.settled_until

    @property
    def has_begun(self) -> bool:
        """Whether anything was taken in."""
        return self._memory.task is not None

    @property
    def taken_until(self) -> float:
        """The end of what was taken in, Unix seconds; -inf: nothing was."""
        return -np.inf if self._memory.task is None else self._memory.task.to_at

    def saved(self) -> bytes:
        """All that is remembered, from which ``restored`` goes on."""
        return pack((self.settings.method, self.settings.window_samples, self._memory), SAVED)

    @classmethod
    def restored(cls, saved: bytes, settings: DetectSettings, denoiser_for: Callable[[str], Denoiser]) -> TaskStream:
        """A stream that goes on where the saved one was.

        Raises:
            StateError: it is damaged, of another version, or was judged by other settings.
        """
        method, window_samples, memory = unpack(saved, SAVED)
        if (method, window_samples) != (settings.method, settings.window_samples):
            raise StateError(
                f"the stream was saved with detect.method {method} and detect.window_samples {window_samples}, and "
                f"cannot go on with {settings.method} and {settings.window_samples}: set them as they were, or begin "
                "anew"
            )
        stream = cls(settings, denoiser_for)
        stream._memory = replace(memory, feed=replace(memory.feed, lag_seconds=settings.lag_seconds))
        return stream


def run_pass(
    raw: RawTask, settings: DetectSettings, denoiser_for: Callable[[str], Denoiser], *, keep_traces: bool = False
) -> PassResult:
    """Judge all there is of one task.

    Args:
        denoiser_for: gives the denoising model of a metric; asked by the method *paper* only.
        keep_traces: keep panels and scores for the report; memory then grows with machines x seconds x metrics.
    Returns:
        the result, whose verdict is *unknown* where nothing could be observed.
    Raises:
        ModelError: a model is missing or does not fit.
    """
    memory = Memory(Feed(_look_back(settings))).with_samples(raw)
    if not keep_traces:
        # What is kept for the report is kept of all there is.
        memory = _settled(memory, settings, denoiser_for)
    return _told(memory, settings, denoiser_for, keep_traces=keep_traces)


def _settled(memory: Memory, settings: DetectSettings, denoiser_for: Callable[[str], Denoiser]) -> Memory:
    """With everything judged that is settled."""
    if memory.task is None:
        return memory
    feed, state = memory.feed.decided(), memory.state
    for block, left in feed.settled(AT_ONCE[settings.method]):
        state, _ = judge_block(block, memory.task.fleet, settings, denoiser_for, state)
        feed = left
    return replace(memory, feed=feed, state=state)


def _look_back(settings: DetectSettings) -> int:
    return looks_back(settings.window_samples) if settings.method == "paper" else LOOK_BACK


def _told(
    memory: Memory, settings: DetectSettings, denoiser_for: Callable[[str], Denoiser], *, keep_traces: bool
) -> PassResult:
    if memory.task is None:
        raise Unobservable("the stream has taken in nothing yet: give it samples of the task first")
    task, feed = memory.task, memory.feed
    block = feed.rest()
    state, kept = judge_block(block, task.fleet, settings, denoiser_for, memory.state, keep_traces=keep_traces)
    sight = Sight(warnings=distrust_lines(state.distrusted, settings.window_samples))
    _, group_of = groups_of(task.fleet, settings.min_machines, sight.warnings)
    members = frozenset(task.fleet.machines)
    sight.last_seen.update({name: at for name, at in feed.left.items() if name in members or not task.is_stated})
    for name in ordered_metrics(task.fleet.specs, settings):
        placing = feed.placings.get(name)
        if placing is None:
            continue
        sight.note_both(name, layout_of(placing.rows, task.fleet.machines).both)
        try:
            seen = state.seen.get(name)
            if seen is None or name in block.unusable:
                sight.glimpse(placing.rows, placing.newest(feed.newest), np.diff(placing.offsets), members)
            if name in block.unusable:
                raise Unobservable(block.unusable[name])
            if seen is None:
                continue
            if seen.span_samples < settings.window_samples and settings.method == "paper":
                raise Unobservable(
                    f"{name}: {seen.span_samples} samples at {seen.step_seconds:g} s are fewer than the window's "
                    f"{settings.window_samples}"
                )
            sight.look(seen)
            sight.admit(seen, settings, feed.newest)
        except Unobservable as unusable:
            sight.unusable.append(str(unusable))
    machines = task.fleet.machines
    if not task.is_stated:
        slowest = max((seen.step_seconds for seen in state.seen.values()), default=0.0)
        gone = sight.forget(forgotten_seconds(slowest))
        machines = tuple(sorted({*machines, *feed.left} - gone)) if gone or feed.left else machines
    if state.others:
        sight.warnings.append(f"stood out as long as the verdict's machine, but not first: {some_names(state.others)}")
    sight.warnings += _ahead(feed)
    if memory.late:
        sight.warnings.append(
            f"at least {counted(memory.late, 'sample')} came more than {feed.lag_seconds:g} s late and were left out: "
            "raise detect.lag_seconds"
        )
    sight.note_silent(machines, task.to_at)
    verdicts: tuple[Verdict, ...] = state.verdicts
    status: Status = "faulty" if verdicts else "none"
    reason: str | None = None
    try:
        _check_comparable(group_of, settings.min_machines)
        if not verdicts:
            sight.check_observed(task.to_at, settings)
            sight.check_all_there(settings)
    except Unobservable as unknown:
        status, reason = "unknown", str(unknown)
    return PassResult(
        task=task.name,
        method=settings.method,
        from_at=task.from_at,
        to_at=task.to_at,
        machines=machines,
        status=status,
        reason=reason,
        verdicts=verdicts,
        coverage=sight.coverage(task.metrics_absent),
        warnings=(*task.warnings, *sight.warnings, *sight.unusable),
        traces=kept.traces,
        trail=kept.trail,
    )


def _check_comparable(group_of: IntArray, least: int) -> None:
    """Whether enough machines can be compared.

    Args:
        group_of: (machine,) as ``groups_of`` gave it.
    Raises:
        TooFewMachines: fewer than ``detect.min_machines`` in the task, or in each of its groups.
    """
    if (group_of >= 0).any():
        return
    count = len(group_of)
    where = f" in groups of fewer than {least}" if count >= least else ""
    raise TooFewMachines(
        f"{counted(count, 'machine')}{where}, and at least {least} comparable ones are needed: "
        "of two, neither stands out"
    )


def _ahead(feed: Feed) -> list[str]:
    """A line about machines whose samples lie so far after the others' that they wait for them."""
    ahead: dict[str, float] = {}
    for placing in feed.placings.values():
        newest = placing.newest(np.inf)
        for row in np.flatnonzero(newest > feed.newest + SILENT_SECONDS).tolist():
            machine = placing.rows[row][0]
            ahead[machine] = max(float(newest[row]) - feed.newest, ahead.get(machine, 0.0))
    if not ahead:
        return []
    return [
        f"{some_names(sorted(ahead))}: samples up to {max(ahead.values()):.0f} s after those of the others are left "
        "out until then: are some instants wrong?"
    ]
