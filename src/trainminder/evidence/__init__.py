"""The method *default*: evidence that gathers over time and over metrics, machine by machine.

How it flows: ``life`` says when the task works and when all of it suffers, ``departure`` when a row of a metric leaves
its peers unlike before, ``silence`` who ceased to report; ``gather`` puts these together by ``causes``, ``episodes``
weighs how rare what lasts so long is on healthy machines, ``findings`` says whom that convicts and why. ``judge`` runs
them over one task. Every part goes forward in time only, with its state in and out, so that a task judged in pieces
gives what the whole gives.

Here belongs nothing that embeds windows or sums distances: that is the method *paper*.
"""

from trainminder.evidence.judge import EvidenceState, Judgement

__all__ = ["EvidenceState", "Judgement"]
