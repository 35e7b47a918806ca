from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainminder.denoise import DenoisingModel, EpochLosses, load_model, save_model
from trainminder.denoise.models import weight_shapes
from trainminder.denoise.patterns import GENERAL, MIXTURES, SHAPES, draw_windows
from trainminder.denoise.training import render_with_torch, train_model
from trainminder.errors import ModelError
from trainminder.settings import TrainSettings
from trainminder.types import Float32Array

SAMPLES = 8
WINDOWS = draw_windows(MIXTURES["gpu_power_draw"], 4_000, SAMPLES, seed=1)
QUICK = TrainSettings(epochs=12, batch_size=64)


def trained(windows: Float32Array = WINDOWS, samples: int = SAMPLES, **changes: Any) -> DenoisingModel:
    return train_model(
        windows,
        metric="gpu_power_draw",
        window_samples=samples,
        normalisation="drawn on [0, 1]",
        settings=QUICK.model_copy(update=changes),
    )


@cache
def trained_once(kl_weight: float = QUICK.kl_weight) -> DenoisingModel:
    return trained(kl_weight=kl_weight)


def last(model: DenoisingModel) -> EpochLosses:
    return model.card.history[-1]


def weight_bytes(model: DenoisingModel) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.weights.items()}


def embed_windows(model: DenoisingModel, windows: Float32Array) -> Float32Array:
    rows = np.arange(len(windows))[:, None]
    return model.embed(windows.astype(np.float64), rows, np.zeros(1), np.ones(1))[:, 0]


def test_training_lowers_the_error_of_windows_it_has_not_seen() -> None:
    first, *_, final = trained_once().card.history
    assert final.validation_mse < 0.5 * first.validation_mse
    assert final.validation_mse == pytest.approx(final.train_mse, rel=0.5)


def test_the_kl_weight_trades_divergence_for_error() -> None:
    none, some, much = (last(trained_once(kl_weight)) for kl_weight in (0.0, 1e-5, 1e-1))
    assert none.validation_kl > some.validation_kl > much.validation_kl
    assert none.validation_mse < much.validation_mse
    assert some.validation_mse < much.validation_mse


def test_an_overwhelming_kl_weight_leaves_the_latent_unused() -> None:
    windows = WINDOWS[np.ptp(WINDOWS, axis=1) > 0.05]

    def shapes_apart(model: DenoisingModel) -> float:
        embedding = embed_windows(model, windows)
        return float((embedding - embedding.mean(axis=1, keepdims=True)).std(axis=0).mean())

    assert last(trained_once(1e-1)).validation_kl < 0.01
    assert shapes_apart(trained_once(1e-1)) < 0.05 * shapes_apart(trained_once(0.0))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, model in (("a", trained(epochs=2)), ("b", trained(epochs=2)), ("c", trained(epochs=2, seed=1))):
        save_model(model, tmp_path / name)
    a, b, c = ((tmp_path / name / "gpu_power_draw.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    cards = [(tmp_path / name / "gpu_power_draw.json").read_bytes() for name in "abc"]
    assert cards[0] == cards[1]
    assert cards[0] != cards[2]


def test_training_leaves_torch_as_it_found_it() -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    trained(epochs=1)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert torch.equal(torch.rand(1), expected)


def test_a_noisy_window_is_embedded_nearer_to_the_clean_one_than_it_was() -> None:
    clean = draw_windows(MIXTURES["gpu_power_draw"], 2_000, SAMPLES, seed=2, is_clean=True)
    noisy = clean + np.random.default_rng(3).normal(0, 0.03, clean.shape).astype(np.float32)
    before = np.square(noisy - clean).mean(axis=1)
    after = np.square(embed_windows(trained_once(), noisy) - clean).mean(axis=1)
    assert np.median(after) < 0.6 * np.median(before)
    assert (after < before).mean() > 0.8


def test_levels_stay_as_far_apart_as_they_are_even_outside_the_normalised_range() -> None:
    levels = np.linspace(-0.5, 1.5, 41, dtype=np.float32)
    embedding = embed_windows(trained_once(), np.repeat(levels[:, None], SAMPLES, axis=1))
    assert np.abs(np.diff(embedding, axis=0) - 0.05).max() < 1e-5


def test_a_shape_on_one_level_is_the_same_shape_on_another() -> None:
    shapes = WINDOWS[:200]
    low, high = (embed_windows(trained_once(), shapes + level) for level in (np.float32(0.0), np.float32(0.3)))
    assert np.abs(high - low - 0.3).max() < 1e-5


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    hidden=st.integers(1, 9),
    latent=st.integers(1, 9),
    layers=st.integers(1, 3),
    samples=st.integers(2, 12),
)
def test_the_kernel_agrees_with_torch_on_drawn_weights(
    seed: int, hidden: int, latent: int, layers: int, samples: int
) -> None:
    sizes = {"hidden_size": hidden, "latent_size": latent, "layers": layers, "window_samples": samples}
    card = trained_once().card.model_copy(update=sizes)
    random = np.random.default_rng(seed)
    weights = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in weight_shapes(card).items()}
    model = DenoisingModel(card, weights)
    windows = random.uniform(-0.5, 1.5, (200, samples)).astype(np.float32)
    windows[:3] = np.array([0.0, 1.0, 20.0])[:, None]
    windows[3] = np.where(np.arange(samples) % 2, 5.0, -5.0)
    assert np.abs(embed_windows(model, windows) - render_with_torch(model, windows)).max() < 1e-5


@pytest.mark.parametrize("metric", ["general", *MIXTURES])
def test_the_kernel_agrees_with_torch_on_shipped_models(metric: str) -> None:
    model = load_model(None, metric, SAMPLES)
    windows = draw_windows(GENERAL, 3_000, SAMPLES, seed=4)
    assert np.abs(embed_windows(model, windows) - render_with_torch(model, windows)).max() < 1e-5


def test_other_sizes_train_and_embed() -> None:
    windows = draw_windows(GENERAL, 600, 5, seed=1)
    model = trained(windows, 5, epochs=2, hidden_size=6, latent_size=3, layers=2)
    assert embed_windows(model, windows).shape == (600, 5)
    assert np.abs(embed_windows(model, windows) - render_with_torch(model, windows)).max() < 1e-5


def test_the_card_says_what_the_model_was_trained_with() -> None:
    card = trained_once().card
    assert (card.train_windows, card.validation_windows) == (3_600, 400)
    assert (card.hidden_size, card.latent_size, card.kl_weight, card.seed) == (4, 8, 1e-6, 0)
    assert card.history[-1].epoch == card.epochs == 12
    other = trained(WINDOWS + np.float32(1e-3), epochs=1).card
    assert len(card.data_sha256) == 64
    assert card.data_sha256 != other.data_sha256


def test_no_more_windows_than_asked_are_used_and_progress_is_told_every_epoch() -> None:
    seen: list[EpochLosses] = []
    model = train_model(
        WINDOWS,
        metric="m",
        window_samples=SAMPLES,
        normalisation="",
        settings=TrainSettings(epochs=3, max_windows=500),
        progress=seen.append,
    )
    assert model.card.train_windows + model.card.validation_windows == 500
    assert [losses.epoch for losses in seen] == [1, 2, 3]
    assert seen[-1] == model.card.history[-1]


def with_nan() -> Float32Array:
    windows = WINDOWS.copy()
    windows[7, 3] = np.nan
    return windows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WINDOWS[:99], "99 windows are too few: record longer or more machines, at least 100"),
        (with_nan, "1 windows hold missing values: leave them out"),
        (lambda: WINDOWS[:, :7], "windows have shape (4000, 7): give (windows, 8)"),
        (lambda: WINDOWS[0], "windows have shape (8,): give (windows, 8)"),
        (lambda: WINDOWS * 100, "normalise them to about 0 .. 1"),
        (lambda: np.full((500, 8), 0.4, np.float32), "every window is constant, there is no shape to learn"),
    ],
)
def test_windows_that_cannot_teach_are_refused_with_the_remedy(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        trained(make())
    assert '"gpu_power_draw"' in str(caught.value)


def test_without_torch_training_says_what_to_install_and_inference_still_works() -> None:
    script = """
import sys
sys.modules["torch"] = None
from trainminder.denoise import load_model
from trainminder.errors import MissingExtra
load_model(None, "general", 8)
try:
    import trainminder.denoise.training
except MissingExtra as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == 'training needs the extra "train": pip install "trainminder[train]"\n'


def test_drawn_windows_depend_on_the_seed_alone_and_stay_in_range() -> None:
    first, again, other = (draw_windows(GENERAL, 3_000, SAMPLES, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.min() >= -0.1
    assert first.max() <= 1.1


def test_the_general_mixture_covers_levels_noise_and_every_shape() -> None:
    windows = draw_windows(GENERAL, 20_000, SAMPLES, seed=1)
    clean = draw_windows(GENERAL, 20_000, SAMPLES, seed=1, is_clean=True)
    assert set(GENERAL.shapes) == set(SHAPES)
    assert np.histogram(clean.mean(axis=1), bins=20, range=(0, 1))[0].min() > 200
    noise = (windows - clean).std(axis=1)
    assert (noise == 0).mean() == pytest.approx(1 / 3, abs=0.05)
    assert noise.max() > 0.08
    assert (np.ptp(clean, axis=1) > 0.5).any()
