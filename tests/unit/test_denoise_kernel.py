from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainminder.denoise import kernel
from trainminder.denoise.models import DenoisingModel, ModelCard, weight_shapes
from trainminder.types import Float32Array, FloatArray, IntArray

TOLERANCE = 1e-5


def random_model(seed: int = 0, hidden: int = 4, latent: int = 8, layers: int = 1, samples: int = 8) -> DenoisingModel:
    card = ModelCard(
        metric="drawn",
        window_samples=samples,
        hidden_size=hidden,
        latent_size=latent,
        layers=layers,
        normalisation="none",
        kl_weight=0.0,
        epochs=0,
        batch_size=0,
        learning_rate=0.0,
        seed=seed,
        train_windows=0,
        validation_windows=0,
        history=(),
        data_sha256="",
        versions={},
    )
    random = np.random.default_rng(seed)
    weights = {name: random.uniform(-1, 1, shape) for name, shape in weight_shapes(card).items()}
    return DenoisingModel(card, {name: array.astype(np.float32) for name, array in weights.items()})


def every_window(machines: int, windows: int) -> IntArray:
    return np.repeat(np.arange(machines)[:, None], windows, axis=1)


def embed(model: DenoisingModel, values: FloatArray, low: float = 0.0, high: float = 1.0) -> Float32Array:
    windows = values.shape[1] - model.window_samples + 1
    bounds = np.full(windows, low), np.full(windows, high)
    return model.embed(values, every_window(len(values), windows), *bounds)


def plain(model: DenoisingModel, windows: FloatArray) -> FloatArray:
    """The model written down once more, in double precision and without any haste."""

    def sigmoid(x: FloatArray) -> FloatArray:
        return 1.0 / (1.0 + np.exp(-x))

    def lstm(side: str, inputs: list[FloatArray], start: FloatArray) -> list[FloatArray]:
        for layer in range(model.card.layers):
            w = {key: model.weights[f"{side}.{layer}.{key}"].astype(float) for key in ("input", "recurrent", "bias")}
            cell = np.zeros_like(start) if layer else start
            hidden = np.tanh(cell)
            outputs = []
            for x in inputs:
                i, f, g, o = np.split(x @ w["input"].T + hidden @ w["recurrent"].T + w["bias"], 4, axis=1)
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                hidden = sigmoid(o) * np.tanh(cell)
                outputs.append(hidden)
            inputs = outputs
        return inputs

    centre = windows.mean(axis=1, keepdims=True)
    nothing = np.zeros((len(windows), model.card.hidden_size))
    last = lstm("encoder", [column[:, None] for column in (windows - centre).T], nothing)[-1]
    z = last @ model.weights["latent.weight"].T.astype(float) + model.weights["latent.bias"]
    start = z @ model.weights["start.weight"].T.astype(float) + model.weights["start.bias"]
    steps = lstm("decoder", [z] * windows.shape[1], start)
    output = model.weights["output.weight"][0].astype(float)
    return np.asarray(np.stack([step @ output for step in steps], axis=1) + model.weights["output.bias"] + centre)


def cut(values: FloatArray, samples: int) -> FloatArray:
    return np.lib.stride_tricks.sliding_window_view(values, samples, axis=1)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    hidden=st.integers(1, 9),
    latent=st.integers(1, 9),
    layers=st.integers(1, 3),
    samples=st.integers(2, 12),
    machines=st.integers(1, 5),
    windows=st.integers(1, 70),
    outlier=st.sampled_from([0.0, 1.0, -1.0, 5.0, -20.0]),
)
def test_the_kernel_computes_the_model_whatever_its_sizes(
    seed: int, hidden: int, latent: int, layers: int, samples: int, machines: int, windows: int, outlier: float
) -> None:
    model = random_model(seed, hidden, latent, layers, samples)
    values = np.random.default_rng(seed).uniform(-0.5, 1.5, (machines, windows + samples - 1))
    values[0, -1] = outlier
    expected = plain(model, cut(values, samples).reshape(-1, samples)).reshape(machines, windows, samples)
    assert np.abs(embed(model, values) - expected).max() < TOLERANCE


def test_gates_driven_to_their_ends_stay_exact() -> None:
    drawn = random_model(3)
    # Inputs and biases saturate the gates; recurrent weights of this size would amplify rounding itself.
    weights = {
        name: array * np.float32(8 if name.endswith((".input", ".bias")) else 0.5)
        for name, array in drawn.weights.items()
    }
    model = DenoisingModel(drawn.card, weights)
    values = np.random.default_rng(4).uniform(-10.0, 10.0, (5, 100))
    expected = plain(model, cut(values, 8).reshape(-1, 8)).reshape(5, 93, 8)
    assert np.abs(embed(model, values) - expected).max() < TOLERANCE


def test_tanh_is_within_single_precision_everywhere() -> None:
    plain_python: Any = getattr(kernel._tanh_fraction, "py_func")  # noqa: B009 - numba's, unknown to the type checker
    x = np.linspace(-30.0, 30.0, 200_001).astype(np.float32)
    numerator, denominator = plain_python(np.float32(0.5))
    assert numerator / denominator == pytest.approx(np.tanh(0.5), abs=1e-7)
    fraction = np.array([np.divide(*plain_python(value)) for value in x[::100]])
    assert np.abs(fraction - np.tanh(x[::100].astype(float))).max() < 5e-7


def test_raw_units_are_normalised_with_each_windows_own_bounds() -> None:
    model = random_model()
    random = np.random.default_rng(5)
    values = random.uniform(200.0, 700.0, (3, 40))
    low, high = random.uniform(0.0, 200.0, 33), random.uniform(700.0, 900.0, 33)
    windows = (cut(values, 8) - low[:, None]) / (high - low)[:, None]
    expected = plain(model, windows.reshape(-1, 8)).reshape(3, 33, 8)
    assert np.abs(model.embed(values, every_window(3, 33), low, high) - expected).max() < TOLERANCE


def test_a_large_offset_loses_no_precision() -> None:
    # Bytes of memory: a level of 1e11 and differences of 1e6. Single precision would see steps of 8,192.
    model = random_model()
    values = 1e11 + 1e6 * np.random.default_rng(6).random((2, 30))
    expected = plain(model, ((cut(values, 8) - 1e11) / 1e6).reshape(-1, 8)).reshape(2, 23, 8)
    assert np.abs(embed(model, values, 1e11, 1e11 + 1e6) - expected).max() < TOLERANCE


def test_a_machine_without_a_row_is_nan_and_its_neighbours_are_untouched() -> None:
    model = random_model()
    values = np.random.default_rng(7).random((4, 60))
    values[2] = np.nan
    rows = every_window(4, 53)
    rows[2] = -1
    rows[0, 10:20] = -1
    embedding = model.embed(values, rows, np.zeros(53), np.ones(53))
    assert np.array_equal(np.isnan(embedding), np.broadcast_to((rows < 0)[..., None], embedding.shape))
    full = embed(model, values)
    assert np.array_equal(embedding[rows >= 0], full[rows >= 0])


def test_a_missing_value_that_is_referred_to_shows_as_nan_never_as_a_number() -> None:
    model = random_model()
    values = np.random.default_rng(8).random((2, 30))
    values[1, 15] = np.nan
    embedding = embed(model, values)
    assert np.isnan(embedding[1, 8:16]).all()
    assert np.isfinite(embedding[0]).all()
    assert np.isfinite(embedding[1, :8]).all()


def test_rows_choose_the_series_window_by_window() -> None:
    model = random_model()
    values = np.random.default_rng(9).random((6, 50))
    rows = np.random.default_rng(10).integers(0, 6, (3, 43))
    embedding = model.embed(values, rows, np.zeros(43), np.ones(43))
    full = embed(model, values)
    assert np.array_equal(embedding, full[rows, np.arange(43)])


def test_the_number_of_threads_changes_no_bit() -> None:
    model = random_model()
    values = np.random.default_rng(11).random((60, 507))
    rows, bounds = every_window(60, 500), (np.zeros(500), np.ones(500))
    single = kernel.embed_windows(values, rows, *bounds, model._packed, 8, threads=1)
    for threads in (2, 3, 7):
        assert np.array_equal(single, kernel.embed_windows(values, rows, *bounds, model._packed, 8, threads=threads))


def test_a_window_embeds_alike_alone_and_among_others() -> None:
    model = random_model()
    values = np.random.default_rng(12).random((40, 30))
    together = embed(model, values)
    assert np.array_equal(embed(model, values[17:18, 5:13])[0, 0], together[17, 5])
    assert np.array_equal(embed(model, values[::-1]), together[::-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v, r, lo, hi: (v[:, :-1], r, lo, hi), "19 samples do not hold 13 windows of 8"),
        (lambda v, r, lo, hi: (v, r, lo[1:], hi), "bounds of shape (12,) and (13,) do not fit 13 windows"),
        (lambda v, r, lo, hi: (v, r + 1, lo, hi), "rows go from 1 to 2, but values has 2 rows"),
        (lambda v, r, lo, hi: (v, r - 2, lo, hi), "rows go from -2 to -1, but values has 2 rows"),
        (lambda v, r, lo, _: (v, r, lo, lo), "bounds of window 0 are 0 and 0"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(change: Callable[..., Any], message: str) -> None:
    given_arrays = np.zeros((2, 20)), every_window(2, 13), np.zeros(13), np.ones(13)
    with pytest.raises(ValueError, match=re.escape(message)):
        random_model().embed(*change(*given_arrays))


def test_no_machines_or_no_windows_give_an_empty_embedding() -> None:
    model = random_model()
    assert model.embed(np.zeros((0, 20)), every_window(0, 13), np.zeros(13), np.ones(13)).shape == (0, 13, 8)
    assert model.embed(np.zeros((2, 7)), every_window(2, 0), np.zeros(0), np.ones(0)).shape == (2, 0, 8)


def run_python(script: str, **environment: str) -> str:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | environment | {"PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_inner_loop_runs_on_packed_registers_and_calls_no_mathematics_library(tmp_path: Path) -> None:
    # In a process of its own: machine code that came from numba's cache cannot be inspected.
    script = """
import numpy as np
from trainminder.denoise import kernel
from test_denoise_kernel import random_model
random_model().embed(np.zeros((1, 8)), np.zeros((1, 1), np.int64), np.zeros(1), np.ones(1))
print(*kernel._embed_blocks.inspect_asm().values(), sep="\\n")
"""
    assembly = run_python(script, NUMBA_CACHE_DIR=str(tmp_path))
    assert len(re.findall(r"\bv?divps\b|\bfdiv\s+v\d+\.4s", assembly)) >= 2
    assert not re.search(r"\b(tanhf?|expf?)\b", assembly)


def test_where_nothing_can_be_cached_what_is_compiled_can_still_be_imported() -> None:
    script = """
import numpy as np
from trainminder.compiled import compiled
from trainminder.score import sums_kernel
from trainminder.denoise import kernel
from trainminder.source.prometheus import matrix
print(compiled()(lambda x: x + 1)(1))
"""
    # The only place allowed is the one NUMBA_CACHE_DIR names, and it names none.
    only = "numba.core.caching.UserProvidedCacheLocator"
    assert run_python(script, NUMBA_CACHE_LOCATOR_CLASSES=only, NUMBA_CACHE_DIR="") == "2\n"
