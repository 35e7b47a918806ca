"""How long ``trainminder --help`` takes: the target is half a second.

Run: python benchmarks/start.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 10


def seconds_of(arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    for name, arguments in {
        "python alone": ["-c", "pass"],
        "trainminder --help": ["-m", "trainminder", "--help"],
        "trainminder settings show": ["-m", "trainminder", "settings", "show"],
    }.items():
        seconds_of(arguments)
        times = [seconds_of(arguments) for _ in range(RUNS)]
        print(f"{name:<28} median {statistics.median(times):.3f} s, slowest {max(times):.3f} s of {RUNS}")


if __name__ == "__main__":
    main()
