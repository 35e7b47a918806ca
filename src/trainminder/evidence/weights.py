"""What each kind of evidence is worth: factors on how often a healthy machine is expected to do what one does.

Chosen by reason and in round numbers, and checked on tasks of the bench's calibration seeds; ``benchmarks/ablation.py``
prints what each is worth, on seeds that nothing was chosen by.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from trainminder.evidence.episodes_kernel import WEIGHTS

__all__ = ["PARTS", "TRIED", "Weights"]


@dataclass(frozen=True, slots=True)
class Weights:
    """Factors below 1 make it rarer, above 1 likelier."""

    prior: float = 0.25
    """What is expected in general counts beside what the task shows itself like so many episodes."""
    size_power: float = 0.5
    """Power of the size of a departure, beyond an ordinary one: ten times as large is three times rarer."""
    other_cause: float = 0.1
    """Another cause departs as well."""
    suffers: float = 0.2
    """The task began to suffer about when the machine departed; bounded by how often it suffers anyhow."""
    suffers_deeply: float = 0.03
    """It lost most of its progress then, or stood still."""
    is_silent: float = 0.1
    """And the machine is silent: this again."""
    has_left: float = 100.0
    """A machine is silent while the task goes on as before: it may have left it, or its exporters broke."""
    alike: float = 10.0
    """Each machine beyond the second that departs alike: uneven work is no machine's fault."""
    others_least: float = 1.0
    """Decades that others need beyond the limit once a machine is suspected: at least so many,"""
    others_share: float = 0.35
    """or so large a share of the decades against it."""

    def record(self) -> np.ndarray:
        """As the kernel takes it."""
        return np.array([tuple(getattr(self, each.name) for each in fields(self))], dtype=WEIGHTS)


_FULL = Weights()
#: Each part of the evidence -> the weights without it.
PARTS = {
    "the task's own ordinary episodes": replace(_FULL, prior=1e9),
    "size of the departure": replace(_FULL, size_power=0.0),
    "several causes": replace(_FULL, other_cause=1.0),
    "common suffering": replace(_FULL, suffers=1.0, suffers_deeply=1.0, is_silent=1.0),
    "machines alike": replace(_FULL, alike=1.0),
    "victims need more": replace(_FULL, others_least=0.0, others_share=0.0),
}
#: What might find more, or sooner -> the weights with it.
TRIED = {
    "victims need half as much more": replace(_FULL, others_least=0.5, others_share=0.175),
    "suffering is worth more": replace(_FULL, suffers=0.1, suffers_deeply=0.01),
}
