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
METRIC_WINDOWS = 30_000
UNSEEN_SEED = 1_000
NORMALISATION = "signals drawn on [0, 1], the range that min-max bounds of the metric map to"

LEGEND = """\
Mean squared errors in normalised units. validation: held-out windows against their renderings, noise included.
noise: the noise of new windows; left: what remains of it in their embeddings; plain: windows without noise.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="metrics, or general; default: all")
    parser.add_argument("--to", type=Path, default=shipped_folder(), help="folder; default: the package's")
    arguments = parser.parse_args()
    settings = TrainSettings()
    print(LEGEND)
    print(f"{'model':24} {'seconds':>8} {'validation':>11} {'KL':>6} {'noise':>9} {'left':>9} {'plain':>9}")
    for name in arguments.names or (GENERAL_MODEL, *MIXTURES):
        started = time.perf_counter()
        mixture = GENERAL if name == GENERAL_MODEL else MIXTURES[name]
        count = settings.max_windows if name == GENERAL_MODEL else METRIC_WINDOWS
        model = train_model(
            draw_windows(mixture, count, WINDOW_SAMPLES, settings.seed),
            metric=name,
            window_samples=WINDOW_SAMPLES,
            normalisation=NORMALISATION,
            settings=settings,
        )
        save_model(model, arguments.to)
        last = model.card.history[-1]
        noisy = draw_windows(mixture, 10_000, WINDOW_SAMPLES, UNSEEN_SEED)
        clean = draw_windows(mixture, 10_000, WINDOW_SAMPLES, UNSEEN_SEED, is_clean=True)
        has_noise = np.abs(noisy - clean).max(axis=1) > 0
        noise = np.square(noisy - clean)[has_noise].mean()
        left = np.square(render_with_torch(model, noisy) - render_with_torch(model, clean))[has_noise].mean()
        plain = np.square(render_with_torch(model, clean) - clean).mean()
        print(
            f"{name:24} {time.perf_counter() - started:8.1f} {last.validation_mse:11.2e} {last.validation_kl:6.1f} "
            f"{noise:9.2e} {left:9.2e} {plain:9.2e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
