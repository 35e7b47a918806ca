"""Denoising models as values and as files: ``<metric>.safetensors`` beside ``<metric>.json``, never pickle.

A file is believed only after its checksum, names, shapes and values were checked: a wrong model would
blame healthy machines silently.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import safetensors
import safetensors.numpy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainminder.denoise.kernel import PackedWeights, embed_windows, pack_weights
from trainminder.errors import ModelError
from trainminder.files import replace_file
from trainminder.types import Float32Array, FloatArray, IntArray

__all__ = [
    "GENERAL_MODEL",
    "DenoisingModel",
    "EpochLosses",
    "ModelCard",
    "load_model",
    "load_models",
    "save_model",
    "shipped_folder",
    "weight_shapes",
]

#: Name of the model that judges metrics without one of their own.
GENERAL_MODEL = "general"

#: Names that are safe as file names on every system.
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_HEADER_BYTES = 65_536

Count = Annotated[int, Field(ge=0)]
Loss = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EpochLosses(_Frozen):
    """The two terms of the loss after one epoch. MSE in squared normalised units, KL in nats per window.

    The validation terms are those of inference: z is the mean.
    """

    epoch: Count
    train_mse: Loss
    train_kl: Loss
    validation_mse: Loss
    validation_kl: Loss


class ModelCard(_Frozen):
    """What a model is and what it was trained with; the JSON file beside its weights."""

    format_version: Literal[1] = 1
    metric: str
    window_samples: Annotated[int, Field(ge=2, le=512)]
    hidden_size: Annotated[int, Field(ge=1, le=256)]
    latent_size: Annotated[int, Field(ge=1, le=256)]
    layers: Annotated[int, Field(ge=1, le=4)]
    normalisation: str
    """How the windows were normalised before they were trained with, in words."""
    kl_weight: Loss
    epochs: Count
    batch_size: Count
    learning_rate: Loss
    seed: int
    train_windows: Count
    validation_windows: Count
    history: tuple[EpochLosses, ...]
    """Some epochs' losses; the last entry is the final model's."""
    data_sha256: str
    """Fingerprint of the windows, as given."""
    versions: dict[str, str]
    """Of trainminder, torch and numpy at training."""


class _CardFile(ModelCard):
    weights_sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class DenoisingModel:
    """A trained LSTM-VAE; it satisfies ``types.Denoiser``.

    ``weights``: as ``weight_shapes`` names them, float32. ``stands_in_for``: the metric without a model of
    its own that this general model judges; None where the model is the metric's own. ``threads``: of
    ``embed``; None: one per processor.

    Raises:
        ModelError: the weights do not fit the card.
    """

    card: ModelCard
    weights: Mapping[str, Float32Array]
    stands_in_for: str | None = None
    threads: int | None = None
    _packed: PackedWeights = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_weights(self.card, self.weights)
        object.__setattr__(self, "_packed", pack_weights(self.weights, self.card.layers))

    @property
    def window_samples(self) -> int:
        return self.card.window_samples

    def embed(self, values: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray) -> Float32Array:
        """See ``types.Denoiser.embed``; the width of an embedding is ``window_samples``."""
        return embed_windows(values, rows, low, high, self._packed, self.window_samples, self.threads)


def weight_shapes(card: ModelCard) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every array of a model. Gates are stacked as in torch: input, forget, cell, output."""
    hidden, latent = card.hidden_size, card.latent_size
    shapes: dict[str, tuple[int, ...]] = {}
    for side, inputs in (("encoder", 1), ("decoder", latent)):
        for layer in range(card.layers):
            shapes[f"{side}.{layer}.input"] = (4 * hidden, hidden if layer else inputs)
            shapes[f"{side}.{layer}.recurrent"] = (4 * hidden, hidden)
            shapes[f"{side}.{layer}.bias"] = (4 * hidden,)
    shapes |= {"latent.weight": (latent, hidden), "latent.bias": (latent,)}
    shapes |= {"start.weight": (hidden, latent), "start.bias": (hidden,)}
    return shapes | {"output.weight": (1, hidden), "output.bias": (1,)}


def shipped_folder() -> Path:
    """The models that come with the package."""
    return Path(__file__).with_name("shipped")


def save_model(model: DenoisingModel, folder: Path) -> Path:
    """Write both files, each replaced at once; returns the path of the weights.

    Raises:
        ModelError: the metric's name cannot be a file name, or the folder cannot be written.
    """
    metric = model.card.metric
    if not _FILE_NAME.fullmatch(metric):
        raise ModelError(f'metric "{metric}" cannot name a file: use letters, digits, "_", ".", ":" and "-"')
    weights = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in model.weights.items()})
    checksum = hashlib.sha256(weights).hexdigest()
    card = _CardFile(**dict(model.card), weights_sha256=checksum)
    path = folder / f"{metric}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Weights first: a reader in between finds a checksum that does not fit, never weights with a wrong card.
        replace_file(path, weights)
        replace_file(path.with_suffix(".json"), card.model_dump_json(indent=1).encode() + b"\n")
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror}: give a folder that can be written") from error
    return path


def load_model(folder: Path | None, metric: str, window_samples: int, threads: int | None = None) -> DenoisingModel:
    """Read the metric's model, or the folder's general one where the metric has none.

    Args:
        folder: None: the shipped models.
        metric: canonical or declared name.
        window_samples: of the windows that will be embedded.
        threads: of ``embed``.
    Returns:
        the model; ``stands_in_for`` names the metric where it is the general one.
    Raises:
        ModelError: there is none, it is damaged, or it was trained with other windows.
    """
    place = folder or shipped_folder()
    name = metric if _has_model(place, metric) else GENERAL_MODEL
    if name != metric and not _has_model(place, GENERAL_MODEL):
        raise ModelError(
            f'{place} holds no model of "{metric}" and no general one: train it with "trainminder train", '
            f"or unset detect.models_dir to use the shipped models"
        )
    card, weights = _load_checked(place / f"{name}.safetensors", _signature(place, name))
    if card.window_samples != window_samples:
        raise ModelError(
            f'detect.window_samples is {window_samples} but model "{name}" was trained with {card.window_samples}: '
            f'set it to {card.window_samples}, or retrain with "trainminder train --window-samples {window_samples}"'
        )
    return DenoisingModel(card, weights, None if name == metric else metric, threads)


def load_models(
    folder: Path | None, metrics: Iterable[str], window_samples: int, threads: int | None = None
) -> dict[str, DenoisingModel]:
    """``load_model`` for each metric. Files that have not changed are not read again."""
    return {metric: load_model(folder, metric, window_samples, threads) for metric in metrics}


def _has_model(folder: Path, name: str) -> bool:
    """Half a model counts: that something is missing must be said, not covered by the general model."""
    if not _FILE_NAME.fullmatch(name):
        return False
    return (folder / f"{name}.safetensors").exists() or (folder / f"{name}.json").exists()


def _signature(folder: Path, name: str) -> tuple[tuple[int, int] | None, ...]:
    def state(path: Path) -> tuple[int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    return state(folder / f"{name}.json"), state(folder / f"{name}.safetensors")


@lru_cache(maxsize=256)
def _load_checked(
    path: Path, signature: tuple[tuple[int, int] | None, ...]
) -> tuple[ModelCard, Mapping[str, Float32Array]]:
    """Read and check one model; ``signature`` only makes a replaced file a new entry of the cache."""
    del signature
    name = path.stem
    file, content = _read_pair(path)
    if file.metric != name:
        raise ModelError(f'{path.with_suffix(".json")} is the card of "{file.metric}": name both files after it')
    try:
        weights = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise _damaged(path, f"it is not in the safetensors format ({error})") from error
    card = ModelCard(**file.model_dump(exclude={"weights_sha256"}))
    _check_weights(card, weights)
    for array in weights.values():
        array.flags.writeable = False
    return card, weights


def _read_pair(path: Path) -> tuple[_CardFile, bytes]:
    # Between the two replacements of a model being saved its checksum does not fit: look once more.
    for attempt in range(2):
        card = _read_card(path.with_suffix(".json"))
        expected = sum(4 * int(np.prod(shape)) for shape in weight_shapes(card).values())
        try:
            size = path.stat().st_size
            if size > expected + _HEADER_BYTES:
                raise _damaged(path, f"it has {size} bytes where its sizes need {expected}")
            content = path.read_bytes()
        except OSError as error:
            raise _damaged(path, error.strerror or "it cannot be read") from error
        if hashlib.sha256(content).hexdigest() == card.weights_sha256:
            return card, content
        if attempt == 0:
            time.sleep(0.1)
    raise _damaged(path, "its checksum is not the one in its card")


def _read_card(path: Path) -> _CardFile:
    try:
        return _CardFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise _damaged(path, error.strerror or "it cannot be read") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise _damaged(path, f"{key}: {first['msg']}") from error


def _check_weights(card: ModelCard, weights: Mapping[str, Float32Array]) -> None:
    what = f'model "{card.metric}"'
    remedy = 'restore it from a copy, or retrain with "trainminder train"'
    shapes = weight_shapes(card)
    if weights.keys() != shapes.keys():
        odd = sorted(weights.keys() ^ shapes.keys())[0]
        raise ModelError(f'{what}: array "{odd}" is {"missing" if odd in shapes else "unknown"}: {remedy}')
    for name, shape in shapes.items():
        array = weights[name]
        if array.shape != shape or array.dtype != np.float32:
            raise ModelError(
                f'{what}: array "{name}" is {array.dtype} {array.shape} where its card needs float32 {shape}: {remedy}'
            )
        if not np.isfinite(array).all():
            raise ModelError(f'{what}: array "{name}" holds values that are not numbers: {remedy}')


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f'{path}: {reason}: restore it from a copy, or retrain with "trainminder train"')
