"""How far to trust the maps of a picture: their faithfulness, a random order's, and a shuffled model's maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.explain.faithfulness import Scores, faithfulness, per_patch, random_maps
from vitrail.explain.methods import RANKED, View, run
from vitrail.explain.record import size_of
from vitrail.explain.sanity import spearman, wholly_shuffled
from vitrail.explain.target import Target
from vitrail.model.vit import VisionTransformer

RANDOM_ORDERS = 3  # averaged: one random order of one picture can be lucky


def with_scores(
    model: VisionTransformer,
    images: Tensor,
    target: Target,
    found: list[dict[str, View]],
    options: Mapping[str, Any],
) -> tuple[list[dict[str, View]], list[Scores]]:
    """The views with every map's scores and agreement, and what a random order scores on each picture."""
    asked = None if target.classes is None else target.classes.tolist()
    shuffled = wholly_shuffled(model)
    views = [dict(view) for view in found]
    for name in [name for name in found[0] if name in RANKED]:
        maps = per_patch(model, images, torch.from_numpy(np.stack([view[name].values for view in found])))
        scores = faithfulness(model, images, maps, target=asked)
        other = run(name, shuffled, images, target, options)
        assert isinstance(other, Tensor)
        agreement = spearman(maps.flatten(1), per_patch(model, images, other.cpu()).flatten(1)).tolist()
        for view, measured, same in zip(views, scores, agreement, strict=True):
            view[name] = replace(view[name], scores=measured, agreement=same)
    return views, chance(model, images, asked)


def chance(model: VisionTransformer, images: Tensor, asked: list[int] | None) -> list[Scores]:
    """The scores of random orders, averaged for each picture."""
    grid = model.config.grid_for(size_of(images))
    draws = [
        faithfulness(model, images, random_maps(len(images), grid, seed), target=asked) for seed in range(RANDOM_ORDERS)
    ]
    return [
        Scores(*(fmean(getattr(one, measure) for one in each) for measure in ("deletion", "insertion", "road")))
        for each in zip(*draws, strict=True)
    ]
