"""Is there ever a tensor of layers x heads x tokens x tokens, or even one layer's share of it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from oracle.tiny import random_model, tiny_config
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitrail.explain.attention import attention, head_maps, mass, rollout
from vitrail.explain.features import artifacts
from vitrail.explain.paper import attention_distances
from vitrail.explain.record import SLICE_BYTES
from vitrail.explain.relevance import attention_grad_cam, gradient_rollout, relevance


class Largest(TorchDispatchMode):
    """Remembers the largest memory that any operation's result lies in."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [one.untyped_storage().nbytes() for one in tree_leaves(result) if isinstance(one, Tensor)]
        self.bytes = max([self.bytes, *sizes])
        return result


LOOKING = {
    "attention": attention,
    "attention from a patch": partial(attention, query=(3, 5)),
    "mass": mass,
    "every class row": head_maps,
    "rollout": rollout,
    "relevance": relevance,
    "gradient rollout": gradient_rollout,
    "attention Grad-CAM": attention_grad_cam,
    "sinks": artifacts,
    "distances": attention_distances,
}


@pytest.mark.parametrize("looking", LOOKING.values(), ids=LOOKING)
@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_at_1024_pixels_attention_exists_a_slice_at_a_time(looking: Callable[..., Any], pooling: Any) -> None:
    config = tiny_config(image_size=1024, patch_size=16, hidden_size=16, num_attention_heads=2, pooling=pooling)
    tokens = 64 * 64 + 1
    one_layer = 2 * tokens * tokens * 4
    with Largest() as made:
        looking(random_model(config), torch.randn(1, 3, 1024, 1024))
    assert made.bytes <= 2 * SLICE_BYTES < one_layer / 8


def test_the_measure_sees_a_whole_matrix() -> None:
    with Largest() as made:
        torch.randn(4097, 8) @ torch.randn(8, 4097)
    assert made.bytes == 4097 * 4097 * 4
