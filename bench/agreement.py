"""Are an engine's answers the model's? A trained model on real pictures, every engine beside torch in float32."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import torch

import vitrail
from bench.interleave import table
from bench.pictures import BESIDE, photos
from vitrail.engines import trust
from vitrail.engines.base import HOMES, ONLY_EXACT, Job, Outputs, card_of
from vitrail.engines.fold import fold
from vitrail.engines.trust import Reference
from vitrail.images.listing import list_inputs
from vitrail.images.loader import batches
from vitrail.model.vit import VisionTransformer

MOST, BATCH = 1000, 50
ARCHIVE, SPLIT = BESIDE.parent / "cats-dogs.tar", "val/"  # pictures the demo model was not trained on


def agreement() -> str:
    """Same first class and largest difference of a logit, over all pictures."""
    model = vitrail.load("demo")
    expected, folded = answers_of(model), fold(model)
    rows: list[list[object]] = []
    for name in HOMES:
        for precision in ("exact",) if name in ONLY_EXACT else ("exact", "balanced"):
            job = Job(precision=precision, size=model.preprocess.size, batch=16, threads=torch.get_num_threads())
            engine = import_module(HOMES[name]).build(folded, card_of(model), job)
            found = trust.agreement(engine, expected)
            share = f"{found.same / found.pictures:.2%} ({found.same} of {found.pictures}, {found.ties} ties)"
            rows.append([name, precision, share, f"{found.error:.1e}"])
    return table(["engine", "precision", "first class as in float32", "largest difference of a logit"], rows)


@torch.inference_mode()
def answers_of(model: VisionTransformer) -> Reference:
    """The pictures, and what the model's own code makes of them."""
    job = Job(size=model.preprocess.size)
    items = list_inputs([ARCHIVE if ARCHIVE.exists() else photos()[0].parent]).items
    files = [item for item in items if SPLIT in str(item) or not ARCHIVE.exists()]
    chosen = files[:: max(1, len(files) // MOST)][:MOST]
    blocks = [batch.pixels for batch in batches(chosen, model.preprocess, batch_size=BATCH)]
    logits = [trust.answers(model, trust.normalised(block, model, job), job)["logits"] for block in blocks]
    return Reference(np.concatenate(blocks), Outputs(logits=np.concatenate(logits)))
