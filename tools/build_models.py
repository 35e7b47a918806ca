"""Train the models that ship with the package, from seeded ordinary signals, and print how well they render.

    python tools/build_models.py                  all of them, into the package
    python tools/build_models.py general --to DIR one, elsewhere
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from trainminder.denoise import GENERAL_MODEL, save_model, shipped_folder
from trainminder.denoise.patterns import GENERAL, MIXTURES, draw_windows
from trainminder.denoise.training import train_model
from trainminder.settings import TrainSettings

WINDOW_SAMPLES = 8
NORMALISATION = "signals drawn on [0, 1], the range that min-max bounds of the metric map to"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="metrics, or general; default: all")
    parser.add_argument("--to", type=Path, default=shipped_folder(), help="folder; default: the package's")
    arguments = parser.parse_args()
    settings = TrainSettings()
    print(f"{'model':24} {'seconds':>8} {'train MSE':>10} {'validation MSE':>15} {'KL':>6}")
    for name in arguments.names or (GENERAL_MODEL, *MIXTURES):
        started = time.perf_counter()
        mixture = GENERAL if name == GENERAL_MODEL else MIXTURES[name]
        model = train_model(
            draw_windows(mixture, settings.max_windows, WINDOW_SAMPLES, settings.seed),
            metric=name,
            window_samples=WINDOW_SAMPLES,
            normalisation=NORMALISATION,
            settings=settings,
        )
        save_model(model, arguments.to)
        last = model.card.history[-1]
        print(
            f"{name:24} {time.perf_counter() - started:8.1f} {last.train_mse:10.2e} "
            f"{last.validation_mse:15.2e} {last.validation_kl:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
