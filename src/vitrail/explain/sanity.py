"""Does a map depend on what the model has learnt? Shuffle its weights from the head down and see the map change.

A map that stays the same shows the picture (edges, the middle), not the model (Adebayo et al., NeurIPS 2018).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitrail.model.vit import VisionTransformer

Maps = Callable[[VisionTransformer, Tensor], Tensor]
SAME = 0.5  # a rank correlation above this, with every weight shuffled, says that the map does not see the model


@dataclass(frozen=True)
class Sanity:
    """How far each image's map still agrees with its original (Spearman), after shuffling down to a stage."""

    stages: list[str]
    agreement: Tensor  # stages x images

    @property
    def depends_on_the_model(self) -> bool:
        """Whether the map of a wholly shuffled model is another one."""
        return bool(self.agreement[-1].mean() < SAME)


def sanity(model: VisionTransformer, images: Tensor, maps: Maps, *, stages: int = 4, seed: int = 0) -> Sanity:
    """Compare `maps(model, images)` with the maps of ever more shuffled copies of the model."""
    original = maps(model, images)
    names, found = [], []
    for name, shuffled in cascade(model, stages, seed):
        names.append(name)
        found.append(spearman(original.flatten(1), maps(shuffled, images).flatten(1)))
    return Sanity(names, torch.stack(found))


def cascade(model: VisionTransformer, stages: int, seed: int) -> Iterator[tuple[str, VisionTransformer]]:
    """One copy, shuffled from the head downwards in about `stages` steps, then its tokens and stem as well."""
    shuffled, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    blocks = list(enumerate(shuffled.encoder.blocks))[::-1]
    shuffle(shuffled.head, generator)
    shuffle(shuffled.encoder.norm, generator)
    yield "head", shuffled
    size = max(1, -(-len(blocks) // max(1, stages)))
    for start in range(0, len(blocks), size):
        for _, block in blocks[start : start + size]:
            shuffle(block, generator)
        yield f"blocks from {blocks[min(start + size, len(blocks)) - 1][0]} up", shuffled
    shuffle(shuffled.tokens, generator)
    shuffle(shuffled.stem, generator)
    yield "everything", shuffled


def wholly_shuffled(model: VisionTransformer, seed: int = 0) -> VisionTransformer:
    """A copy that has learnt nothing: the end of the cascade."""
    *_, (_, shuffled) = cascade(model, 1, seed)
    return shuffled


def shuffle(module: nn.Module, generator: torch.Generator) -> None:
    """Every parameter keeps its values, in another order: what was learnt is gone, the scale is not."""
    with torch.no_grad():
        for parameter in module.parameters():
            order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """Rank correlation of each row of `a` with the same row of `b`; 0 where one of them is constant."""
    ranks = [torch.stack([mean_ranks(row) for row in rows]) for rows in (a, b)]
    x, y = (rank - rank.mean(1, keepdim=True) for rank in ranks)
    spread = x.norm(dim=1) * y.norm(dim=1)
    return torch.where(spread > 0, (x * y).sum(1) / spread.clamp_min(1e-12), 0.0)


def mean_ranks(values: Tensor) -> Tensor:
    """Ranks from 0, equal values sharing the mean of theirs."""
    ordered = values.sort().values.contiguous()
    first, behind = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    ranks: Tensor = (first + behind - 1).double() / 2
    return ranks
