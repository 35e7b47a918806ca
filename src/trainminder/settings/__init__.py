"""One settings model: what can be set, in which unit, why the default, and what changing it costs.

Values come from a YAML file, then ``TRAINMINDER_SECTION__KEY`` environment variables, then the command
line; the later wins. ``load_settings`` reports every problem at once. ``sections`` holds the model, ``load`` reads the
layers, ``explain`` says what can be set. What a setting does belongs to the stage that reads it.
"""

from __future__ import annotations

from trainminder.settings.explain import iter_settings, nearest_key
from trainminder.settings.load import ENVIRONMENT_PREFIX, load_settings, merge_layers, nest
from trainminder.settings.sections import (
    DetectSettings,
    MachineRewrite,
    MembershipSettings,
    MetricSettings,
    QuerySettings,
    RecordingSettings,
    Settings,
    StoreSettings,
    TaskSettings,
    TrainSettings,
)

__all__ = [
    "ENVIRONMENT_PREFIX",
    "DetectSettings",
    "MachineRewrite",
    "MembershipSettings",
    "MetricSettings",
    "QuerySettings",
    "RecordingSettings",
    "Settings",
    "StoreSettings",
    "TaskSettings",
    "TrainSettings",
    "iter_settings",
    "load_settings",
    "merge_layers",
    "nearest_key",
    "nest",
]
