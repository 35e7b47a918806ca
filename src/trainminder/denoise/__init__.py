"""Denoising: LSTM-VAE models, one per metric, whose reconstructions are the embeddings that are compared.

Here belong fused inference (``kernel``), model files and the shipped models (``models``), training
(``training``, the only importer of torch) and the ordinary signals the shipped models are trained with
(``patterns``). Not here: cutting windows and finding their bounds (``align``), distances (``score``),
where training data come from (the caller).
"""

from __future__ import annotations

from trainminder.denoise.models import (
    GENERAL_MODEL,
    DenoisingModel,
    EpochLosses,
    ModelCard,
    load_model,
    load_models,
    save_model,
    shipped_folder,
)

__all__ = [
    "GENERAL_MODEL",
    "DenoisingModel",
    "EpochLosses",
    "ModelCard",
    "load_model",
    "load_models",
    "save_model",
    "shipped_folder",
]
