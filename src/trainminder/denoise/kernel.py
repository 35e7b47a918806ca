"""Fused LSTM-VAE inference: normalise, encode, decode, in one pass over blocks of windows.

A block holds ``LANES`` windows side by side (structure of arrays), so that the compiler turns every inner
loop into packed instructions over lanes; the sizes of the network are loops outside. What keeps it fast:

* gates use a rational approximation of tanh (no call into the mathematics library), and the five
  divisions of an LSTM cell are brought over two common denominators;
* at inference z is the mean, which is linear in the last hidden state, and the decoder's input (the same at
  each step) and first cell state are linear in z: these maps are multiplied into one when weights are packed;
* nothing but the embedding is written to main memory.

Each window is computed on its own, lane by lane in the same order of operations: results do not depend on
the number of threads or on which windows share a block. Consecutive windows of a machine overlap, but an
LSTM starts each of them from zero, so there is nothing exact to reuse between them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from trainminder.compiled import compiled
from trainminder.types import Float32Array, FloatArray, IntArray

__all__ = ["LANES", "PackedWeights", "embed_windows", "pack_weights"]

#: Place of the cell gate among the four; it alone is no sigmoid.
_CELL_GATE = 2

#: Windows per block. Their state (some 20 rows of floats) stays in the first-level cache.
LANES = 128

#: Blocks per piece of work: small enough to balance threads, large enough to forget the cost of handing over.
_BLOCKS_PER_PIECE = 64

# tanh(x) = x P(x²) / Q(x²) on [-8.3, 8.3], a minimax fit (1e-8; 4e-7 in single precision); beyond, tanh is 1.
_P0 = np.float32(0.9999999403953552)
_P1 = np.float32(0.13419128954410553)
_P2 = np.float32(0.0035412712022662163)
_P3 = np.float32(2.138220406777691e-05)
_P4 = np.float32(1.4478700904874131e-08)
_Q1 = np.float32(0.4675244390964508)
_Q2 = np.float32(0.026049630716443062)
_Q3 = np.float32(0.00033612013794481754)
_Q4 = np.float32(8.224647558563447e-07)
_CLAMP = np.float32(8.3)
# Unsigned lanes and rows: numba checks signed indices for being negative, which keeps loops from being vectorised.
_LANES = np.uint64(LANES)
_ONE_ROW, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_ONE = np.float32(1.0)
_HALF = np.float32(0.5)
_ZERO = np.float32(0.0)


_COMPILE: dict[str, Any] = {
    "error_model": "numpy",
    # Fused multiply-add is the only liberty taken: the order of operations stays, and NaN stays NaN.
    "fastmath": {"contract"},
}
#: Inner functions are never called from Python: without wrappers they compile sooner.
_INNER = _COMPILE | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class PackedWeights(NamedTuple):
    """A model's weights in the order the kernel reads them; sizes are rounded up to multiples of 4 with zeros.

    Matrices are cut in tiles: [layer, unit, input // 4, gate * 4 + input % 4]. A unit of zeros stays zero, so
    the rounding changes no result. Sigmoid gates are stored halved, because sigmoid(x) = (1 + tanh(x / 2)) / 2.
    """

    encoder_sample: Float32Array
    """(unit, 4): from the scalar sample to the first layer's gates."""
    encoder_input: Float32Array
    """(layer, unit, tile, 16): from the layer below; unused in layer 0."""
    encoder_recurrent: Float32Array
    encoder_bias: Float32Array
    """(layer, unit, 4)"""
    code: Float32Array
    """(1, unit, tile, 16): from the encoder's last hidden state, through z, to the decoder's constant input."""
    code_bias: Float32Array
    """(1, unit, 4)"""
    start: Float32Array
    """Like ``code``, to the first cell state of the decoder's first layer, in the place of the cell gate."""
    start_bias: Float32Array
    decoder_input: Float32Array
    decoder_recurrent: Float32Array
    decoder_bias: Float32Array
    output: Float32Array
    """(unit,)"""
    output_bias: Float32Array
    """(1,)"""


def pack_weights(weights: Mapping[str, Float32Array], layers: int) -> PackedWeights:
    """Lay out the weights of a model (names and shapes: ``models.weight_shapes``) for the kernel."""

    def stacked(name: str) -> Float32Array:
        return np.stack([_tiles(weights[f"{name.format(layer)}"]) for layer in range(layers)])

    def above_first(side: str) -> Float32Array:
        tiles = [_tiles(weights[f"{side}.{layer}.input"]) for layer in range(1, layers)]
        return np.stack([np.zeros_like(_tiles(weights[f"{side}.0.recurrent"])), *tiles])

    def biases(side: str) -> Float32Array:
        return np.stack([_units(weights[f"{side}.{layer}.bias"]) for layer in range(layers)])

    def through_latent(matrix: FloatArray, bias: FloatArray) -> tuple[Float32Array, Float32Array]:
        onto_hidden = matrix @ weights["latent.weight"].astype(np.float64)
        constant = matrix @ weights["latent.bias"].astype(np.float64) + bias
        return _tiles(onto_hidden)[None], _units(constant)[None]

    code, code_bias = through_latent(
        weights["decoder.0.input"].astype(np.float64), weights["decoder.0.bias"].astype(np.float64)
    )
    hidden, latent = weights["start.weight"].shape
    as_gates, as_bias = np.zeros((4, hidden, latent)), np.zeros((4, hidden))
    as_gates[_CELL_GATE], as_bias[_CELL_GATE] = weights["start.weight"], weights["start.bias"]
    start, start_bias = through_latent(as_gates.reshape(-1, latent), as_bias.ravel())
    output = weights["output.weight"][0]
    return PackedWeights(
        encoder_sample=_units(weights["encoder.0.input"][:, 0]),
        encoder_input=above_first("encoder"),
        encoder_recurrent=stacked("encoder.{}.recurrent"),
        encoder_bias=biases("encoder"),
        code=code,
        code_bias=code_bias,
        start=start,
        start_bias=start_bias,
        decoder_input=above_first("decoder"),
        decoder_recurrent=stacked("decoder.{}.recurrent"),
        decoder_bias=biases("decoder"),
        output=np.pad(output, (0, -len(output) % 4)).astype(np.float32),
        output_bias=weights["output.bias"].astype(np.float32),
    )


def _units(gates: np.ndarray[Any, Any]) -> Float32Array:
    """(4 * hidden,) in torch's gate order i, f, g, o -> (unit, 4)."""
    units = gates.astype(np.float64).reshape(4, -1).T * np.array([0.5, 0.5, 1.0, 0.5])
    return np.ascontiguousarray(np.pad(units, ((0, -len(units) % 4), (0, 0))), dtype=np.float32)


def _tiles(matrix: np.ndarray[Any, Any]) -> Float32Array:
    """(4 * hidden, input) -> (unit, tile, 16)."""
    units = np.stack([_units(column) for column in matrix.T], axis=-1)
    units = np.pad(units, ((0, 0), (0, 0), (0, -units.shape[-1] % 4)))
    tiles = units.reshape(len(units), 4, -1, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(tiles.reshape(len(units), -1, 16))


def embed_windows(
    values: FloatArray,
    rows: IntArray,
    low: FloatArray,
    high: FloatArray,
    weights: PackedWeights,
    window_samples: int,
    threads: int | None = None,
) -> Float32Array:
    """Normalise and denoise every window.

    Args:
        values: (row, second), in the metric's unit.
        rows: (machine, window) row of each machine in the window starting at that second; -1: none.
        low, high: (window,) min-max bounds, high > low.
        weights: of the model, packed.
        window_samples: length of a window, and width of its embedding.
        threads: None: one per processor.
    Returns:
        (machine, window, width), normalised units; NaN where the row is -1 or a value is NaN.
    Raises:
        ValueError: shapes that do not belong together, or a row that does not exist.
    """
    machines, windows = rows.shape
    if values.shape[1] < windows + window_samples - 1:
        raise ValueError(f"{values.shape[1]} samples do not hold {windows} windows of {window_samples}")
    if low.shape != (windows,) or high.shape != (windows,):
        raise ValueError(f"bounds of shape {low.shape} and {high.shape} do not fit {windows} windows")
    if rows.size and (rows.max() >= len(values) or rows.min() < -1):
        raise ValueError(f"rows go from {rows.min()} to {rows.max()}, but values has {len(values)} rows")
    unfit = np.flatnonzero(~(high > low))
    if unfit.size:
        first = unfit[0]
        raise ValueError(f"bounds of window {first} are {low[first]:g} and {high[first]:g}: high must be greater")
    embedding = np.empty((machines, windows, window_samples), np.float32)
    flat = embedding.reshape(-1, window_samples)
    given = (
        np.ascontiguousarray(values, np.float64),
        np.ascontiguousarray(rows, np.int64),
        np.ascontiguousarray(low, np.float64),
        np.ascontiguousarray(1.0 / (high - low), np.float64),
    )
    blocks = -(-rows.size // LANES)
    starts = range(0, blocks, _BLOCKS_PER_PIECE)
    threads = min(threads or os.cpu_count() or 1, len(starts))

    def run(start: int) -> None:
        _embed_blocks(*given, *weights, flat, start, min(start + _BLOCKS_PER_PIECE, blocks))

    if threads <= 1:
        for start in starts:
            run(start)
    else:
        with ThreadPoolExecutor(threads, "embed") as pool:
            list(pool.map(run, starts))
    return embedding


@compiled(**_INNER)
def _tanh_fraction(x: Any) -> Any:
    """Numerator and denominator of tanh; NaN passes through the clamp."""
    x = _CLAMP if x > _CLAMP else x
    x = -_CLAMP if x < -_CLAMP else x
    u = x * x
    numerator = x * (_P0 + u * (_P1 + u * (_P2 + u * (_P3 + u * _P4))))
    denominator = _ONE + u * (_Q1 + u * (_Q2 + u * (_Q3 + u * _Q4)))
    return numerator, denominator


# Whole-array assignment would compile numba's string formatting (for its error message): seconds of it.
@compiled(**_INNER)
def _clear(hidden: Any, cell: Any) -> None:
    for parity in range(2):
        for layer in range(len(cell)):
            for value in range(hidden.shape[2]):
                hidden[parity, layer, value] = _ZERO
    for layer in range(len(cell)):
        for unit in range(cell.shape[1]):
            for lane in range(_LANES):
                cell[layer, unit, lane] = _ZERO


@compiled(**_INNER)
def _copy(gates: Any, constant: Any) -> None:
    for unit in range(len(gates)):
        for value in range(gates.shape[1]):
            gates[unit, value] = constant[unit, value]


@compiled(**_INNER)
def _bias_gates(gates: Any, bias: Any, layer: Any) -> None:
    for unit in range(len(gates)):
        for gate in range(4):
            start = bias[layer, unit, gate]
            for lane in range(_LANES):
                gates[unit, np.uint64(gate) * _LANES + lane] = start


@compiled(**_INNER)
def _sample_gates(gates: Any, sample: Any, step: Any, weight: Any, bias: Any) -> None:
    for unit in range(len(gates)):
        for gate in range(4):
            start, factor = bias[0, unit, gate], weight[unit, gate]
            for lane in range(_LANES):
                gates[unit, np.uint64(gate) * _LANES + lane] = start + factor * sample[step, lane]


@compiled(**_INNER)
def _tile(weight: Any, row: Any, unit: Any, tile: Any) -> Any:
    """One tile as a tuple, which stays in registers."""
    return (
        weight[row, unit, tile, 0],
        weight[row, unit, tile, 1],
        weight[row, unit, tile, 2],
        weight[row, unit, tile, 3],
        weight[row, unit, tile, 4],
        weight[row, unit, tile, 5],
        weight[row, unit, tile, 6],
        weight[row, unit, tile, 7],
        weight[row, unit, tile, 8],
        weight[row, unit, tile, 9],
        weight[row, unit, tile, 10],
        weight[row, unit, tile, 11],
        weight[row, unit, tile, 12],
        weight[row, unit, tile, 13],
        weight[row, unit, tile, 14],
        weight[row, unit, tile, 15],
    )


@compiled(**_INNER)
def _add_tiles(gates: Any, hidden: Any, parity: Any, layer: Any, weight: Any, row: Any, tiles: int) -> None:
    """Add the parts of ``hidden[parity, layer]`` to all gates, four units of input (a tile) at a time."""
    for unit in range(len(gates)):
        for tile in range(tiles):
            w = _tile(weight, row, unit, tile)
            first = np.uint64(4 * tile) * _LANES
            for lane in range(_LANES):
                x0 = hidden[parity, layer, first + lane]
                x1 = hidden[parity, layer, first + _LANES + lane]
                x2 = hidden[parity, layer, first + _TWO * _LANES + lane]
                x3 = hidden[parity, layer, first + _THREE * _LANES + lane]
                gates[unit, lane] += w[0] * x0 + w[1] * x1 + w[2] * x2 + w[3] * x3
                gates[unit, _LANES + lane] += w[4] * x0 + w[5] * x1 + w[6] * x2 + w[7] * x3
                gates[unit, _TWO * _LANES + lane] += w[8] * x0 + w[9] * x1 + w[10] * x2 + w[11] * x3
                gates[unit, _THREE * _LANES + lane] += w[12] * x0 + w[13] * x1 + w[14] * x2 + w[15] * x3


@compiled(**_INNER)
def _advance(gates: Any, hidden: Any, cell: Any, parity: Any, layer: Any, weight: Any) -> None:
    """Add the last recurrent tile to the gates, then one step of one layer: the heart of the kernel.

    Reads ``hidden[parity, layer]`` and writes ``hidden[1 - parity, layer]``.
    """
    tile = weight.shape[2] - 1
    first = np.uint64(4 * tile) * _LANES
    for unit in range(len(gates)):
        w = _tile(weight, layer, unit, tile)
        output = np.uint64(unit) * _LANES
        for lane in range(_LANES):
            x0 = hidden[parity, layer, first + lane]
            x1 = hidden[parity, layer, first + _LANES + lane]
            x2 = hidden[parity, layer, first + _TWO * _LANES + lane]
            x3 = hidden[parity, layer, first + _THREE * _LANES + lane]
            ni, di = _tanh_fraction(gates[unit, lane] + w[0] * x0 + w[1] * x1 + w[2] * x2 + w[3] * x3)
            nf, df = _tanh_fraction(gates[unit, _LANES + lane] + w[4] * x0 + w[5] * x1 + w[6] * x2 + w[7] * x3)
            ng, dg = _tanh_fraction(gates[unit, _TWO * _LANES + lane] + w[8] * x0 + w[9] * x1 + w[10] * x2 + w[11] * x3)
            no, do = _tanh_fraction(
                gates[unit, _THREE * _LANES + lane] + w[12] * x0 + w[13] * x1 + w[14] * x2 + w[15] * x3
            )
            # sigmoid(f) * state + sigmoid(i) * tanh(g), then sigmoid(o) * tanh(state), one division each.
            common = di * dg
            state = _HALF * ((df + nf) * cell[layer, unit, lane] * common + (di + ni) * ng * df) / (df * common)
            cell[layer, unit, lane] = state
            nc, dc = _tanh_fraction(state)
            hidden[_ONE_ROW - parity, layer, output + lane] = _HALF * (do + no) * nc / (do * dc)


@compiled(**_INNER)
def _begin(gates: Any, hidden: Any, cell: Any) -> None:
    """Set the first layer's state from the cell gates: the state itself, and its tanh as output."""
    for unit in range(len(gates)):
        first = np.uint64(unit) * _LANES
        for lane in range(_LANES):
            state = gates[unit, _TWO * _LANES + lane]
            cell[0, unit, lane] = state
            numerator, denominator = _tanh_fraction(state)
            hidden[0, 0, first + lane] = numerator / denominator


@compiled(**_INNER)
def _advance_above(gates: Any, hidden: Any, cell: Any, parity: Any, inputs: Any, recurrent: Any, bias: Any) -> None:
    """One step of the layers above the first, each fed the new state of the one below."""
    tiles = recurrent.shape[2]
    for layer in range(_ONE_ROW, np.uint64(len(cell))):
        _bias_gates(gates, bias, layer)
        _add_tiles(gates, hidden, _ONE_ROW - parity, layer - _ONE_ROW, inputs, layer, tiles)
        _add_tiles(gates, hidden, parity, layer, recurrent, layer, tiles - 1)
        _advance(gates, hidden, cell, parity, layer, recurrent)


@compiled(**_COMPILE)
def _embed_blocks(
    values: Any,
    rows: Any,
    low: Any,
    scale: Any,
    encoder_sample: Any,
    encoder_input: Any,
    encoder_recurrent: Any,
    encoder_bias: Any,
    code: Any,
    code_bias: Any,
    start: Any,
    start_bias: Any,
    decoder_input: Any,
    decoder_recurrent: Any,
    decoder_bias: Any,
    output: Any,
    output_bias: Any,
    embedding: Any,
    first_block: int,
    last_block: int,
) -> None:
    """Embed blocks of windows; ``embedding`` is (machine * window, sample)."""
    samples = embedding.shape[1]
    layers, units, tiles = encoder_recurrent.shape[:3]
    bottom, top = np.uint64(0), np.uint64(layers - 1)
    sample = np.empty((samples, LANES), np.float32)
    mean = np.empty(LANES, np.float32)
    unseen = np.empty(LANES, np.bool_)
    # A layer's units lie one after another, LANES values each; the step's parity picks old and new.
    hidden = np.empty((2, layers, units * LANES), np.float32)
    cell = np.empty((layers, units, LANES), np.float32)
    constant = np.empty((units, 4 * LANES), np.float32)
    gates = np.empty((units, 4 * LANES), np.float32)
    for block in range(first_block, last_block):
        _load(values, rows, low, scale, block * LANES, sample, mean, unseen)
        _clear(hidden, cell)
        for step in range(samples):
            parity = np.uint64(step % 2)
            _sample_gates(gates, sample, step, encoder_sample, encoder_bias)
            _add_tiles(gates, hidden, parity, bottom, encoder_recurrent, bottom, tiles - 1)
            _advance(gates, hidden, cell, parity, bottom, encoder_recurrent)
            _advance_above(gates, hidden, cell, parity, encoder_input, encoder_recurrent, encoder_bias)
        _bias_gates(constant, code_bias, bottom)
        _add_tiles(constant, hidden, np.uint64(samples % 2), top, code, bottom, tiles)
        _bias_gates(gates, start_bias, bottom)
        _add_tiles(gates, hidden, np.uint64(samples % 2), top, start, bottom, tiles)
        _clear(hidden, cell)
        _begin(gates, hidden, cell)
        for step in range(samples):
            parity = np.uint64(step % 2)
            if tiles == 1:
                _advance(constant, hidden, cell, parity, bottom, decoder_recurrent)
            else:
                _copy(gates, constant)
                _add_tiles(gates, hidden, parity, bottom, decoder_recurrent, bottom, tiles - 1)
                _advance(gates, hidden, cell, parity, bottom, decoder_recurrent)
            _advance_above(gates, hidden, cell, parity, decoder_input, decoder_recurrent, decoder_bias)
            _render(sample, step, hidden, _ONE_ROW - parity, output, output_bias, mean)
        first = block * LANES
        for lane in range(min(LANES, len(embedding) - first)):
            for step in range(samples):
                embedding[first + lane, step] = np.nan if unseen[lane] else sample[step, lane]


@compiled(**_INNER)
def _load(values: Any, rows: Any, low: Any, scale: Any, first: int, sample: Any, mean: Any, unseen: Any) -> None:
    """Normalise a block's windows and centre each on its mean; lanes without a window hold zeros."""
    samples = len(sample)
    machine, start = first // rows.shape[1], first % rows.shape[1]
    for lane in range(LANES):
        row = rows[machine, start] if machine < len(rows) else np.int64(-1)
        unseen[lane] = row < 0
        if row < 0:
            mean[lane] = _ZERO
            for step in range(samples):
                sample[step, lane] = _ZERO
        else:
            total = 0.0
            for step in range(samples):
                total += values[row, start + step]
            centre = total / samples
            mean[lane] = np.float32((centre - low[start]) * scale[start])
            for step in range(samples):
                sample[step, lane] = np.float32((values[row, start + step] - centre) * scale[start])
        start += 1
        if start == rows.shape[1]:
            start = 0
            machine += 1


@compiled(**_INNER)
def _render(rendered: Any, step: int, hidden: Any, parity: Any, weight: Any, bias: Any, mean: Any) -> None:
    top = np.uint64(hidden.shape[1] - 1)
    for lane in range(_LANES):
        rendered[step, lane] = bias[0] + mean[lane]
    for unit in range(len(weight)):
        factor, first = weight[unit], np.uint64(unit) * _LANES
        for lane in range(_LANES):
            rendered[step, lane] += factor * hidden[parity, top, first + lane]
