"""Where the public data of real jobs lie: beside the repository, never in it."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SHARED_DATA"


def shared_data() -> Path:
    """The folder with ``ascend_failslow`` and ``straggler_whatif``.

    Raises:
        RuntimeError: it is not there; the message says what to set.
    """
    stated = os.environ.get(VARIABLE)
    places = [Path(stated)] if stated else [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    for place in places:
        if (place / "ascend_failslow").is_dir():
            return place
    raise RuntimeError(
        f"no folder shared/data beside the repository (or above) holds ascend_failslow: set {VARIABLE} to the folder "
        "that docs/real-data.md describes"
    )
