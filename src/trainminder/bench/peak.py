"""How much memory this process took at its peak, where the system tells (Linux)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_mib", "reset_peak"]

_SELF = Path("/proc/self")


def reset_peak() -> float | None:
    """Begin anew, and tell what the process holds now, in MiB; None where the system does not tell."""
    try:
        (_SELF / "clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def peak_mib() -> float | None:
    """Most memory held since the last ``reset_peak`` (else since the start), in MiB."""
    return _status("VmHWM")


def _status(key: str) -> float | None:
    try:
        lines = (_SELF / "status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:")), None)
