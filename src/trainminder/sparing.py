"""Sparing: which windows must be looked at for the verdict to be what looking at every window gives. Pure.

A verdict of the method paper needs one machine to be the candidate of every window for minutes. Windows half as far
apart as that are looked at first: a machine that is the candidate for so long is that of two of them in a row at
least. Where no machine can be, nothing between them can make a verdict, and it is passed over. Where one can, every
window is looked at from where its run begins until it is confirmed, so that onset, confirmation and score are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trainminder.decide import NONE, UNJUDGED, Confirmed, candidates, follow
from trainminder.types import BoolArray, Continuity, FloatArray, IntArray, WindowScores

__all__ = ["Windows", "followed_sparingly", "stride_of"]

#: Windows that are looked at before the last one to see whether what stands out there has just begun to.
SHORTLY = 8


@dataclass(frozen=True, slots=True)
class _Post:
    """A window that is looked at first: its candidate, and who cannot be judged there but could shortly before."""

    window: int
    at: float
    candidate: int
    unseen: frozenset[int]

    def holds(self, machine: int) -> bool:
        """Whether the machine may still be the candidate there."""
        return self.candidate == machine or (self.candidate < 0 and machine in self.unseen)

    def holds_with(self, other: _Post) -> set[int]:
        """The machines that may be the candidate from the one to the other."""
        named = {each for each in (self.candidate, other.candidate) if each >= 0}
        return {
            machine for machine in named | (self.unseen & other.unseen) if self.holds(machine) and other.holds(machine)
        }


def stride_of(continuity_seconds: float, step_seconds: float) -> int:
    """How many windows apart those lie that are looked at first."""
    return max(int(0.5 * continuity_seconds / step_seconds), 1)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one view, of which those are scored that are asked for.

    ``scores``: scores the windows from one (included) to another (excluded); ``judged``: (machine, window), who can be
    judged; ``ends_at``: (window,) instant of the newest sample.
    """

    machines: tuple[str, ...]
    scores: Callable[[int, int], WindowScores]
    judged: BoolArray
    ends_at: FloatArray
    step_seconds: float
    group_of: IntArray


def followed_sparingly(
    windows: Windows,
    group: int,
    continuity: Continuity | None,
    *,
    stride: int,
    continuity_seconds: float,
    patience_windows: int,
    device_in: Callable[[int, int], str | None],
) -> tuple[Continuity | None, list[Confirmed]]:
    """``decide.follow`` over all windows, of which only those are looked at that a verdict hangs on.

    Args:
        stride: as ``stride_of`` gave it; fewer looks at more windows, 1 at every window.
        continuity, continuity_seconds, device_in: as of ``follow``.
        patience_windows: longest stretch without a judged window that continuity survives.
    Returns:
        as ``follow``; of a run that is confirmed, only that it goes on.
    """
    patience_seconds = patience_windows * windows.step_seconds
    last = len(windows.ends_at) - 1
    if stride == 1:
        return follow(
            windows.scores(0, last + 1),
            group,
            continuity,
            continuity_seconds=continuity_seconds,
            patience_seconds=patience_seconds,
            device_in=device_in,
        )
    places = sorted(range(last, -1, -stride))
    posts = [_post(windows, group, window, continuity, patience_windows) for window in places]
    found: list[Confirmed] = []
    begin = 0
    for post, coming in zip(posts, [*posts[1:], None], strict=True):
        held = None if continuity is None else windows.machines.index(continuity.machine)
        if continuity is not None and continuity.is_confirmed and held is not None:
            if post.candidate == held:
                continuity, begin = replace(continuity, last_at=post.at), post.window + 1
                continue
            # It may go on unseen, if nobody else's run may have begun instead.
            if post.holds(held) and coming is not None and post.holds_with(coming) <= {held}:
                begin = post.window + 1
                continue
        if not _may_go_on(continuity, held, post, continuity_seconds):
            # A run that reaches the next post begins here, or goes on.
            if coming is not None and not post.holds_with(coming):
                continuity, begin = None, post.window + 1
                continue
            # What is under way at the end is remembered.
            if coming is None and not post.unseen:
                continuity, begin = None, max(begin, _broken_at(windows, group, post))

        def device_of(machine: int, window: int, begin: int = begin) -> str | None:
            return device_in(machine, begin + window)

        continuity, confirmed = follow(
            windows.scores(begin, post.window + 1),
            group,
            continuity,
            continuity_seconds=continuity_seconds,
            patience_seconds=patience_seconds,
            device_in=device_of,
        )
        found += confirmed
        begin = post.window + 1
    return continuity, found


def _may_go_on(continuity: Continuity | None, held: int | None, post: _Post, continuity_seconds: float) -> bool:
    """Whether a continuity that is not confirmed may go on to a post, or be confirmed before it ends.

    Args:
        held: the machine of the continuity.
    """
    return (
        continuity is not None
        and held is not None
        and not continuity.is_confirmed
        and (post.holds(held) or post.at - continuity.since_at >= continuity_seconds)
    )


def _broken_at(windows: Windows, group: int, post: _Post) -> int:
    """A window from which on to follow what is under way at a post: shortly before it, where others stood out."""
    if post.candidate < 0:
        return post.window
    first = max(post.window + 1 - SHORTLY, 0)
    found = candidates(windows.scores(first, post.window + 1), group)
    is_unseen = (found == UNJUDGED) | ((found == NONE) & ~windows.judged[post.candidate, first : post.window + 1])
    others = np.flatnonzero((found != post.candidate) & ~is_unseen)
    return first + int(others[-1]) if len(others) else 0


def _post(windows: Windows, group: int, window: int, continuity: Continuity | None, patience: int) -> _Post:
    at = float(windows.ends_at[window])
    candidate = int(candidates(windows.scores(window, window + 1), group)[0])
    members = windows.group_of == group
    before = windows.judged[:, max(window - patience, 0) : window].any(axis=1)
    judged = windows.judged[:, window]
    # Where too few can be judged to compare, nobody is.
    unseen = set(np.flatnonzero(members & (before | judged if candidate == UNJUDGED else before & ~judged)).tolist())
    if continuity is not None and at - continuity.last_at <= patience * windows.step_seconds:
        held = windows.machines.index(continuity.machine)
        if candidate == UNJUDGED or not judged[held]:
            unseen.add(held)
    return _Post(window, at, candidate, frozenset(unseen))
