"""Trainminder finds the faulty machine of a distributed training task while the task runs."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
