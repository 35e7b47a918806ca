"""Streams: tasks judged as their samples come in, saved and taken up again. No network, files or clock."""

from __future__ import annotations

from trainminder.stream.task import TaskStream, run_pass

__all__ = ["TaskStream", "run_pass"]
