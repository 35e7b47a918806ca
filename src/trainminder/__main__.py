"""``python -m trainminder`` is the same as ``trainminder``."""

from __future__ import annotations

import sys

from trainminder.cli import main

if __name__ == "__main__":
    sys.exit(main())
