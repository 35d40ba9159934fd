"""A checkpoint from anywhere, as a model ready to evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vitrail.checkpoint.custom import Custom
from vitrail.checkpoint.reading import Reading, read, survey
from vitrail.checkpoint.report import Report
from vitrail.model.vit import VisionTransformer


def load(
    path: Path | str,
    *,
    from_pickle: bool = False,
    allow_nonfinite: bool = False,
    rules: Custom | Path | str | None = None,
    labels: Sequence[str] | None = None,
    dtype: torch.dtype = torch.float32,
    **config_fields: Any,
) -> VisionTransformer:
    """The model at `path`, a file or a folder, with its own conventions, preprocessing and labels.

    `config_fields` say what the file cannot (num_attention_heads=4), or ask for another model (num_classes=2).
    Files in 16 bits are computed in 32 unless `dtype` says otherwise; `model.origin.dtype` is the file's own.
    """
    reading = read(
        path,
        from_pickle=from_pickle,
        allow_nonfinite=allow_nonfinite,
        rules=rules,
        labels=labels,
        asked=config_fields,
    )
    return assemble(reading, dtype)


def inspect(
    path: Path | str,
    *,
    from_pickle: bool = False,
    allow_nonfinite: bool = False,
    rules: Custom | Path | str | None = None,
    **config_fields: Any,
) -> Report:
    """What the checkpoint at `path` is; keys that do not add up are its problems."""
    return survey(path, from_pickle=from_pickle, allow_nonfinite=allow_nonfinite, rules=rules, asked=config_fields)


def assemble(reading: Reading, dtype: torch.dtype | None = torch.float32) -> VisionTransformer:
    """The model of a reading, in evaluation mode; `dtype` None keeps the number format of each tensor."""
    state = reading.state
    for key in list(state):  # one at a time, so that never two models are in memory
        state[key] = state[key].to(dtype or state[key].dtype)
    model = reading.empty
    model.load_state_dict(state, assign=True)
    model.preprocess, model.labels = reading.preprocess, reading.labels
    # Where it came from travels with the model, beside its parameters: `save` needs the tensors nobody uses, too.
    vars(model).update(origin=reading.report, kept=reading.kept)
    return model.eval()
