"""Train the models that ship with the package and print how well they render.

    python tools/build_models.py                    all of them, into the package
    python tools/build_models.py general --to DIR   one, elsewhere

Each learns from seeded ordinary signals of its metric's kind (``denoise.patterns``). The errors are those of windows
held out, and of ordinary running of simulated tasks, which training never sees.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from zlib import crc32

import numpy as np

from trainminder.catalogue import load_catalogue
from trainminder.denoise import GENERAL_MODEL, save_model, shipped_folder
from trainminder.denoise.patterns import GENERAL, MIXTURES, draw_windows
from trainminder.denoise.training import render_with_torch, train_model
from trainminder.denoise.windows import training_windows
from trainminder.settings import TrainSettings
from trainminder.simulate import ClusterSpec, simulate_task
from trainminder.types import RawTask

WINDOW_SAMPLES = 8
NORMALISATION = "signals drawn on [0, 1], the range that min-max bounds of the metric map to"
#: (sampling interval, duration) of the simulated tasks, in seconds.
SAMPLINGS = ((1.0, 900.0), (1.0, 900.0), (1.0, 900.0), (5.0, 1800.0), (15.0, 3600.0), (30.0, 7200.0))


def ordinary_tasks() -> list[RawTask]:
    """Simulated tasks without a fault."""
    catalogue = load_catalogue()
    return [
        simulate_task(
            ClusterSpec(
                machines=8,
                devices_per_machine=2,
                seed=number,
                interval_seconds=interval,
                duration_seconds=duration,
            ),
            specs=catalogue,
        )[0]
        for number, (interval, duration) in enumerate(SAMPLINGS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = (GENERAL_MODEL, *MIXTURES)
    parser.add_argument("names", nargs="*", help="metrics, or general; default: all")
    parser.add_argument("--to", type=Path, default=shipped_folder(), help="folder; default: the package's")
    asked = parser.parse_args()
    settings = TrainSettings()
    tasks, catalogue = ordinary_tasks(), load_catalogue()
    print(f"{'model':24} {'seconds':>8} {'MSE, held out':>14} {'MSE, simulated':>15} {'KL':>6}")
    for name in asked.names or known:
        began = time.perf_counter()
        model = train_model(
            draw_windows(MIXTURES.get(name, GENERAL), settings.max_windows, WINDOW_SAMPLES, seed=crc32(name.encode())),
            metric=name,
            window_samples=WINDOW_SAMPLES,
            normalisation=NORMALISATION,
            settings=settings,
        )
        save_model(model, asked.to)
        last = model.card.history[-1]
        rendered = ""
        if name != GENERAL_MODEL:
            labelled = [(raw, ()) for raw in tasks]
            fresh = training_windows(labelled, catalogue[name], WINDOW_SAMPLES, settings.max_windows, seed=0)
            rendered = f"{np.square(render_with_torch(model, fresh) - fresh).mean():.2e}"
        print(
            f"{name:24} {time.perf_counter() - began:8.1f} {last.validation_mse:14.2e} {rendered:>15} "
            f"{last.validation_kl:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
