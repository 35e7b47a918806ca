from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from trainminder.catalogue import load_catalogue
from trainminder.denoise import GENERAL_MODEL, DenoisingModel, ModelCard, load_model, load_models, save_model
from trainminder.denoise.models import weight_shapes
from trainminder.errors import ModelError
from trainminder.types import Denoiser

SAMPLES = 8


def small_model(metric: str = "cpu_usage", samples: int = SAMPLES, seed: int = 0) -> DenoisingModel:
    card = ModelCard(
        metric=metric,
        window_samples=samples,
        hidden_size=4,
        latent_size=8,
        layers=1,
        normalisation="drawn on [0, 1]",
        kl_weight=1e-5,
        epochs=1,
        batch_size=256,
        learning_rate=0.02,
        seed=seed,
        train_windows=90,
        validation_windows=10,
        history=(),
        data_sha256="0" * 64,
        versions={"trainminder": "0"},
    )
    random = np.random.default_rng(seed)
    return DenoisingModel(
        card, {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in weight_shapes(card).items()}
    )


def embed_something(model: DenoisingModel) -> bytes:
    values = np.random.default_rng(1).random((3, 20))
    windows = 20 - model.window_samples + 1
    rows = np.repeat(np.arange(3)[:, None], windows, axis=1)
    return model.embed(values, rows, np.zeros(windows), np.ones(windows)).tobytes()


def rewrite(folder: Path, weights: dict[str, np.ndarray]) -> None:
    """Store other weights under a checksum that fits: damage that only a look inside can find."""
    content = safetensors.numpy.save(weights)
    (folder / "cpu_usage.safetensors").write_bytes(content)
    set_card(folder, weights_sha256=hashlib.sha256(content).hexdigest())


def set_card(folder: Path, **changes: object) -> None:
    path = folder / "cpu_usage.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def stored_weights(folder: Path) -> dict[str, np.ndarray]:
    return dict(safetensors.numpy.load((folder / "cpu_usage.safetensors").read_bytes()))


def test_a_saved_model_comes_back_the_same(tmp_path: Path) -> None:
    model = small_model()
    save_model(model, tmp_path / "new" / "folder")
    loaded = load_model(tmp_path / "new" / "folder", "cpu_usage", SAMPLES)
    assert loaded.card == model.card
    assert loaded.stands_in_for is None
    assert embed_something(loaded) == embed_something(model)


def test_saving_leaves_nothing_but_the_two_files(tmp_path: Path) -> None:
    for seed in (0, 1):
        save_model(small_model(seed=seed), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu_usage.json", "cpu_usage.safetensors"]
    assert load_model(tmp_path, "cpu_usage", SAMPLES).card.seed == 1


def test_a_replaced_model_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    save_model(small_model(seed=0), tmp_path)
    first = load_model(tmp_path, "cpu_usage", SAMPLES)
    assert load_model(tmp_path, "cpu_usage", SAMPLES).weights is first.weights
    save_model(small_model(seed=1), tmp_path)
    assert embed_something(load_model(tmp_path, "cpu_usage", SAMPLES)) == embed_something(small_model(seed=1))


def test_the_same_model_is_stored_as_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save_model(small_model(), tmp_path / folder)
    for name in ("cpu_usage.json", "cpu_usage.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_metric_without_a_model_is_judged_by_the_general_one_and_that_is_said(tmp_path: Path) -> None:
    save_model(small_model(GENERAL_MODEL), tmp_path)
    save_model(small_model("cpu_usage", seed=1), tmp_path)
    models = load_models(tmp_path, ["cpu_usage", "my_metric", "a/b ../c"], SAMPLES)
    assert [model.stands_in_for for model in models.values()] == [None, "my_metric", "a/b ../c"]
    assert models["my_metric"].card.metric == GENERAL_MODEL


def test_a_folder_without_the_model_and_without_a_general_one_is_an_error(tmp_path: Path) -> None:
    save_model(small_model("cpu_usage"), tmp_path)
    with pytest.raises(ModelError, match=r'holds no model of "disk_io" and no general one: train it .*or unset'):
        load_model(tmp_path, "disk_io", SAMPLES)


def test_another_window_is_refused_with_both_remedies(tmp_path: Path) -> None:
    save_model(small_model(), tmp_path)
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path, "cpu_usage", 90)
    assert str(caught.value) == (
        'detect.window_samples is 90 but model "cpu_usage" was trained with 8: '
        'set it to 8, or retrain with "trainminder train --window-samples 90"'
    )


def flip_one_bit(folder: Path) -> None:
    path = folder / "cpu_usage.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def truncate(folder: Path) -> None:
    path = folder / "cpu_usage.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def put_nan(folder: Path) -> None:
    weights = stored_weights(folder)
    weights["latent.bias"][3] = np.nan
    rewrite(folder, weights)


def put_double(folder: Path) -> None:
    weights = stored_weights(folder)
    weights["latent.bias"] = weights["latent.bias"].astype(np.float64)
    rewrite(folder, weights)


def put_other_shape(folder: Path) -> None:
    weights = stored_weights(folder)
    weights["output.weight"] = np.ascontiguousarray(weights["output.weight"].T)
    rewrite(folder, weights)


def leave_one_out(folder: Path) -> None:
    weights = stored_weights(folder)
    del weights["decoder.0.recurrent"]
    rewrite(folder, weights)


def add_one(folder: Path) -> None:
    rewrite(folder, stored_weights(folder) | {"extra": np.zeros(1, np.float32)})


def put_a_pickle(folder: Path) -> None:
    content = b"\x80\x04N."
    (folder / "cpu_usage.safetensors").write_bytes(content)
    set_card(folder, weights_sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_one_bit, "its checksum is not the one in its card"),
        (truncate, "its checksum is not the one in its card"),
        (put_nan, 'array "latent.bias" holds values that are not numbers'),
        (put_double, 'array "latent.bias" is float64 (8,) where its card needs float32 (8,)'),
        (put_other_shape, 'array "output.weight" is float32 (4, 1) where its card needs float32 (1, 4)'),
        (leave_one_out, 'array "decoder.0.recurrent" is missing'),
        (add_one, 'array "extra" is unknown'),
        (put_a_pickle, "it is not in the safetensors format"),
        (lambda folder: (folder / "cpu_usage.json").unlink(), "cpu_usage.json: No such file"),
        (lambda folder: (folder / "cpu_usage.safetensors").unlink(), "cpu_usage.safetensors: No such file"),
        (lambda folder: (folder / "cpu_usage.json").write_text("{"), "the file: Invalid JSON"),
        (lambda folder: set_card(folder, format_version=2), "format_version: Input should be 1"),
        (lambda folder: set_card(folder, hidden_size=10**9), "hidden_size: Input should be less than"),
        (lambda folder: set_card(folder, window_samples=0), "window_samples: Input should be greater than"),
        (lambda folder: set_card(folder, hidden_size=5), "where its card needs float32"),
        (lambda folder: set_card(folder, layers=2), 'array "decoder.1.bias" is missing'),
        (lambda folder: set_card(folder, note="x"), "note: Extra inputs are not permitted"),
        (lambda folder: set_card(folder, metric="disk_io"), 'is the card of "disk_io"'),
        (lambda folder: (folder / "cpu_usage.safetensors").write_bytes(bytes(10**6)), "it has 1000000 bytes"),
    ],
)
def test_a_damaged_model_is_refused_with_what_is_wrong_and_never_replaced_by_the_general_one(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    save_model(small_model(), tmp_path)
    save_model(small_model(GENERAL_MODEL), tmp_path)
    damage(tmp_path)
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        load_model(tmp_path, "cpu_usage", SAMPLES)
    assert "\n" not in str(caught.value)
    assert "cpu_usage" in str(caught.value)


def test_a_name_that_could_leave_the_folder_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r'metric "\.\./cpu" cannot name a file'):
        save_model(small_model("../cpu"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="give a folder that can be written"):
        save_model(small_model(), tmp_path / "file")


def test_a_model_is_what_the_pipeline_asks_for() -> None:
    denoiser: Denoiser = small_model()
    assert denoiser.window_samples == SAMPLES


SHIPPED = (GENERAL_MODEL, *load_catalogue())


@pytest.mark.parametrize("metric", SHIPPED)
def test_every_metric_of_the_catalogue_has_a_shipped_model_of_its_own_and_of_the_papers_sizes(metric: str) -> None:
    model = load_model(None, metric, SAMPLES)
    card = model.card
    assert model.stands_in_for is None
    assert (card.window_samples, card.hidden_size, card.latent_size, card.layers) == (8, 4, 8, 1)
    assert set(card.versions) == {"trainminder", "torch", "numpy"}


@pytest.mark.parametrize("metric", SHIPPED)
def test_shipped_models_keep_levels_apart_even_outside_the_normalised_range(metric: str) -> None:
    model = load_model(None, metric, SAMPLES)
    levels = np.linspace(-0.2, 1.2, 141)
    values = np.repeat(levels[:, None], SAMPLES, axis=1)
    embedding = model.embed(values, np.arange(141)[:, None], np.zeros(1), np.ones(1))[:, 0]
    assert np.abs(np.diff(embedding, axis=0) - 0.01).max() < 1e-4
    assert np.abs(embedding - values).max() < 0.02


@pytest.mark.parametrize("metric", SHIPPED)
def test_shipped_models_render_signals_that_turn_within_minutes_within_the_papers_error(metric: str) -> None:
    model = load_model(None, metric, SAMPLES)
    seconds = np.arange(600)
    slow = np.stack([0.5 + 0.4 * np.sin(2 * np.pi * (seconds / period + 0.1)) for period in (90, 120, 200, 400)])
    rows = np.repeat(np.arange(4)[:, None], 593, axis=1)
    embedding = model.embed(slow, rows, np.zeros(593), np.ones(593))
    windows = np.lib.stride_tricks.sliding_window_view(slow, SAMPLES, axis=1)
    assert np.square(embedding - windows).mean() < 1e-4


@pytest.mark.parametrize("metric", SHIPPED)
def test_shipped_models_take_noise_out(metric: str) -> None:
    model = load_model(None, metric, SAMPLES)
    clean = np.repeat(np.linspace(0.2, 0.8, 7)[:, None], 300, axis=1)
    noisy = clean + np.random.default_rng(2).normal(0, 0.01, clean.shape)
    rows = np.repeat(np.arange(7)[:, None], 293, axis=1)
    bounds = np.zeros(293), np.ones(293)
    before = np.square(noisy - clean).mean()
    after = np.square(model.embed(noisy, rows, *bounds) - model.embed(clean, rows, *bounds)).mean()
    assert after < 0.75 * before
