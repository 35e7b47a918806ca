"""The command line: arguments in, exit code out.

One module per command group. A command reads its options, calls what does the work, and prints the
result; anything worth testing without a command line belongs elsewhere. Nothing heavy (numpy, polars,
numba, httpx, torch, plotly) may be imported at the top of these modules: ``trainminder --help`` has
to be there at once, so commands import what they need inside.

To add a command: write ``cli/NAME.py``, register it in ``cli/app.py``, run ``make docs``.
"""

from __future__ import annotations

from trainminder.cli.frame import main

__all__ = ["main"]
