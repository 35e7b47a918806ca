"""The bench: labelled tasks through the methods and the baselines, measured alike.

Here belong the standard set of simulated tasks (``tasks``), the methods side by side (``methods``), what counts as
found and as false (``measure``), and running and showing it. Nothing here judges in production: what the bench finds
out about a method is written down in ``docs/bench.md``.
"""
