"""From rows to machines, compiled."""

from __future__ import annotations

from typing import Any

from trainminder.compiled import compiled

__all__ = ["of_machines"]


@compiled()
def of_machines(
    weight: Any, size: Any, row_machine: Any, is_device: bool, to_weight: Any, to_size: Any, device: Any, devices: Any
) -> None:
    """Keep, for each machine, the row that departs the most.

    Args:
        weight, size: (instant, row), rows in the order of machines and their devices.
        to_weight, to_size, device, devices: (instant, machine), as ``gather.MetricSigns`` has them; changed in place.
    """
    ordinal = 0
    for r in range(len(row_machine)):
        m = row_machine[r]
        ordinal = ordinal + 1 if r > 0 and row_machine[r - 1] == m else 0
        for t in range(len(weight)):
            hundredths = round(100.0 * weight[t, r])
            if is_device and hundredths > 0:
                devices[t, m] += 1
            if hundredths > to_weight[t, m] or (hundredths == to_weight[t, m] and abs(size[t, r]) > abs(to_size[t, m])):
                to_weight[t, m] = hundredths
                to_size[t, m] = size[t, r]
                device[t, m] = ordinal if is_device else -1
