"""Which faults occur how often."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainminder.simulate.cluster import generator

__all__ = ["FAULT_MIX", "OTHERS", "draw_fault_type"]

#: Share of the faults of a production cluster, in percent. Source: Minder, NSDI'25.
FAULT_MIX: Mapping[str, float] = {
    "ecc_error": 38.9,
    "pcie_downgrading": 6.6,
    "nic_dropout": 5.7,
    "gpu_card_drop": 2.0,
    "nvlink_error": 1.7,
    "aoc_error": 0.9,
    "cuda_execution_error": 14.6,
    "gpu_execution_error": 7.7,
    "hdfs_error": 5.7,
    "machine_unreachable": 6.0,
}
#: What is left, which the types that the source does not name share evenly.
OTHERS = 10.3


def draw_fault_type(seed: int, known: Collection[str]) -> str:
    """One of the known types, as often as it occurs."""
    unnamed = [name for name in known if name not in FAULT_MIX]
    shares = [FAULT_MIX.get(name, OTHERS / max(len(unnamed), 1)) for name in known]
    total = sum(shares)
    return str(generator(seed, "mix").choice(list(known), p=[share / total for share in shares]))
