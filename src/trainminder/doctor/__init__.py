"""Whether Trainminder can see what it needs of a task, what stands in the way, and what to do about it. Pure.

``look`` measures one metric, ``repeats`` finds values that stand still, ``clocks`` machines whose instants are
shifted, ``findings`` puts the metrics together, ``diagnosis`` holds the result. Nothing here judges machines: what
looks like a fault of the exporter, the store or the clock is said, and when in doubt nothing is.
"""

from trainminder.doctor.diagnosis import Diagnosis, Finding, Kind, MetricDiagnosis, Severity
from trainminder.doctor.examine import diagnose

__all__ = ["Diagnosis", "Finding", "Kind", "MetricDiagnosis", "Severity", "diagnose"]
