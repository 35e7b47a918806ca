"""Where the public data of real jobs lie: beside the repository, never in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "SHARED_DATA"


def shared_data() -> Path:
    """The folder with ``ascend_failslow`` and ``straggler_whatif``; a test that needs it is skipped without.

    Raises:
        RuntimeError: the variable names a folder that does not hold them.
    """
    stated = os.environ.get(VARIABLE)
    places = [Path(stated)] if stated else [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    for place in places:
        if (place / "ascend_failslow").is_dir():
            return place
    if stated:
        raise RuntimeError(f"{VARIABLE}={stated} holds no ascend_failslow: docs/real-data.md says what it should hold")
    pytest.skip(
        f"the data of real jobs are not part of the repository: set {VARIABLE} to the folder that docs/real-data.md "
        "describes"
    )
