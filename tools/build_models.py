"""Train the models that ship with the package and print how well they render.

    python tools/build_models.py                    all of them, into the package
    python tools/build_models.py general --to DIR   one, elsewhere

A metric's model learns from ordinary running of simulated tasks at several sampling intervals, and from as
many windows of seeded ordinary signals (``denoise.patterns``); ``general`` from signals
alone. The errors are those of windows held out, and of simulated tasks that training never saw.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from trainminder.catalogue import load_catalogue
from trainminder.denoise import GENERAL_MODEL, save_model, shipped_folder
from trainminder.denoise.patterns import GENERAL, MIXTURES, draw_windows
from trainminder.denoise.training import render_with_torch, train_model
from trainminder.denoise.windows import NORMALISATION, training_windows
from trainminder.settings import TrainSettings
from trainminder.simulate import ClusterSpec, simulate_task
from trainminder.types import Float32Array, RawTask

WINDOW_SAMPLES = 8
#: (sampling interval, duration) of the simulated tasks, in seconds.
SAMPLINGS = ((1.0, 900.0), (1.0, 900.0), (1.0, 900.0), (5.0, 1800.0), (15.0, 3600.0), (30.0, 7200.0))


def ordinary_tasks(first_seed: int) -> list[RawTask]:
    """Simulated tasks without a fault."""
    catalogue = load_catalogue()
    return [
        simulate_task(
            ClusterSpec(
                machines=8,
                devices_per_machine=2,
                seed=first_seed + number,
                interval_seconds=interval,
                duration_seconds=duration,
            ),
            specs=catalogue,
        )[0]
        for number, (interval, duration) in enumerate(SAMPLINGS)
    ]


def windows_of(name: str, tasks: Sequence[RawTask], count: int, seed: int) -> Float32Array:
    """Half simulated, half drawn; all drawn for the general model."""
    mixture = GENERAL if name == GENERAL_MODEL else MIXTURES[name]
    drawn_seed = crc32(f"{name} {seed}".encode())
    if name == GENERAL_MODEL:
        return draw_windows(mixture, count, WINDOW_SAMPLES, drawn_seed)
    simulated = training_windows([(raw, ()) for raw in tasks], load_catalogue()[name], WINDOW_SAMPLES, count // 2, seed)
    drawn = draw_windows(mixture, count - len(simulated), WINDOW_SAMPLES, drawn_seed)
    return np.concatenate((simulated, drawn))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="metrics, or general; default: all")
    parser.add_argument("--to", type=Path, default=shipped_folder(), help="folder; default: the package's")
    asked = parser.parse_args()
    settings = TrainSettings()
    tasks, unseen = ordinary_tasks(first_seed=1), ordinary_tasks(first_seed=101)
    print(f"{'model':24} {'seconds':>8} {'MSE, held out':>14} {'MSE, unseen tasks':>18} {'KL':>6}")
    for name in asked.names or (GENERAL_MODEL, *MIXTURES):
        began = time.perf_counter()
        model = train_model(
            windows_of(name, tasks, settings.max_windows, settings.seed),
            metric=name,
            window_samples=WINDOW_SAMPLES,
            normalisation=NORMALISATION,
            settings=settings,
        )
        save_model(model, asked.to)
        last = model.card.history[-1]
        rendered = ""
        if name != GENERAL_MODEL:
            fresh = training_windows(
                [(raw, ()) for raw in unseen], load_catalogue()[name], WINDOW_SAMPLES, settings.max_windows, 0
            )
            rendered = f"{np.square(render_with_torch(model, fresh) - fresh).mean():.2e}"
        print(
            f"{name:24} {time.perf_counter() - began:8.1f} {last.validation_mse:14.2e} {rendered:>18} "
            f"{last.validation_kl:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
