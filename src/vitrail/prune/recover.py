"""A short fine-tuning after surgery: the smaller model learns to answer as the whole one did."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.model.vit import VisionTransformer

RATE = 1e-4  # AdamW's peak, reached after a tenth of the steps and down to zero at the end


def recover(
    pruned: VisionTransformer, whole: VisionTransformer, images: Tensor, steps: int, batch_size: int = 8, seed: int = 0
) -> list[float]:
    """Train `pruned` in place for `steps` batches; the losses on the way.

    The loss is the divergence from the whole model's probabilities, or one minus the cosine with its features.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(pruned.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=max(steps, 2), pct_start=0.1)
    whole.eval()
    pruned.train()
    losses = []
    for _ in range(steps):
        some = images[torch.randint(0, len(images), (batch_size,), generator=generator)]
        with torch.no_grad():
            wanted = whole(some)
        loss = apart(pruned(some), wanted, whole.config.num_classes)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pruned.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    pruned.eval()
    return losses


def apart(outputs: Tensor, wanted: Tensor, classes: int) -> Tensor:
    """How far outputs are from those wanted."""
    if not classes:
        return 1 - F.cosine_similarity(outputs, wanted, dim=1).mean()
    if classes == 1:
        return F.binary_cross_entropy_with_logits(outputs, wanted.sigmoid())
    return F.kl_div(outputs.log_softmax(1), wanted.log_softmax(1), log_target=True, reduction="batchmean")
