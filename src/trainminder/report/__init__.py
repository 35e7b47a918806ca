"""What a person sees of a pass: one sentence, a table for the terminal, a self-contained HTML page.

Here belongs everything that turns a ``PassResult`` into words and plots; nothing here judges, and
nothing here changes what was judged.
"""

from __future__ import annotations

from trainminder.report.html import render_report, write_report
from trainminder.report.text import print_result, verdict_sentence

__all__ = ["print_result", "render_report", "verdict_sentence", "write_report"]
