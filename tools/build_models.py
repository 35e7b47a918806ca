"""Train the models that ship with the package, from seeded ordinary signals, and print how well they render.

    python tools/build_models.py                  all of them, into the package
    python tools/build_models.py general --to DIR one, elsewhere
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from trainminder.denoise import GENERAL_MODEL, save_model, shipped_folder
from trainminder.denoise.patterns import GENERAL, MIXTURES, draw_windows
from trainminder.denoise.training import render_with_torch, train_model
from trainminder.settings import TrainSettings

WINDOW_SAMPLES = 8
UNSEEN_SEED = 1_000
NORMALISATION = "signals drawn on [0, 1], the range that min-max bounds of the metric map to"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="metrics, or general; default: all")
    parser.add_argument("--to", type=Path, default=shipped_folder(), help="folder; default: the package's")
    arguments = parser.parse_args()
    settings = TrainSettings()
    print("validation MSE: of held-out windows, noise included. noise before, after: mean squared distance from the")
    print("windows without their noise, of the windows and of their embeddings; windows without noise rendered: plain.")
    print(f"{'model':24} {'seconds':>8} {'validation MSE':>15} {'KL':>6} {'noise before':>13} {'after':>9} {'plain':>9}")
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
        noisy, clean = (draw_windows(mixture, 10_000, WINDOW_SAMPLES, UNSEEN_SEED, is_clean) for is_clean in (False, True))
        has_noise = np.abs(noisy - clean).max(axis=1) > 0
        noisy_error = np.square(render_with_torch(model, noisy) - clean)[has_noise].mean()
        plain_error = np.square(render_with_torch(model, clean) - clean).mean()
        print(
            f"{name:24} {time.perf_counter() - started:8.1f} {last.validation_mse:15.2e} {last.validation_kl:6.1f} "
            f"{np.square(noisy - clean)[has_noise].mean():13.2e} {noisy_error:9.2e} {plain_error:9.2e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
