"""The eager model against timm's, the attention kernels, the last block, and pruned heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import vitrail
from bench.interleave import interleave, table
from bench.peers import peer
from vitrail.model import encoder
from vitrail.model.vit import VisionTransformer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def b16() -> VisionTransformer:
    return vitrail.create("B/16", hidden_act="gelu", initializer="hf", seed=0)


@torch.inference_mode()
def eager() -> str:
    """B/16 at 224, forward pass in plain PyTorch, timm's model beside ours."""
    ours, theirs = b16(), peer("timm").create_model("vit_base_patch16_224").eval()
    rows: list[list[object]] = []
    for name, dtype in DTYPES.items():
        ours.to(dtype), theirs.to(dtype)
        for batch, rounds in ((1, 24), (8, 12)):
            images = torch.randn(batch, 3, 224, 224, dtype=dtype)
            timing = interleave({"ours": lambda x=images: ours(x), "timm": lambda x=images: theirs(x)}, rounds)
            middle, low, high = timing.speedup("ours", "timm")
            speeds = [f"{batch / timing.median(who):.1f}" for who in ("timm", "ours")]
            rows.append([name, batch, *speeds, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"])
    return table(["dtype", "batch", "timm images/s", "vitrail images/s", "vitrail is x faster", "quartiles"], rows)


@torch.inference_mode()
def kernels() -> str:
    """Softmax attention: plain products, a few images at a time, against scaled_dot_product_attention."""
    rows: list[list[object]] = []
    for name, dtype in DTYPES.items():
        for batch, heads, tokens in (
            (1, 12, 197),
            (8, 12, 197),
            (32, 3, 197),
            (1, 12, 577),
            (8, 12, 577),
            (8, 12, 1025),
        ):
            qkv = torch.randn(batch, tokens, 3 * heads * 64, dtype=dtype)
            q, k, v = (x.unflatten(-1, (heads, 64)).transpose(1, 2) for x in qkv.chunk(3, dim=-1))
            images = max(1, encoder.SLICE_BYTES // (heads * tokens * tokens * q.element_size()))
            parts = list(zip(q.split(images), k.split(images), v.split(images), strict=True))
            contestants = {
                "plain": lambda parts=parts: torch.cat([encoder.weighted_sum(*part, 0.0) for part in parts]),
                "fused": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
            }
            timing = interleave(contestants, rounds=9)
            chosen = "plain" if encoder.images_per_slice(q, k) else "fused"
            middle, low, high = timing.speedup("plain", "fused")
            times = [f"{1000 * timing.median(who):.1f}" for who in contestants]
            rows.append([name, batch, heads, tokens, *times, f"{middle:.2f} ({low:.2f} to {high:.2f})", chosen])
    return table(
        ["dtype", "batch", "heads", "tokens", "plain ms", "fused ms", "plain is x faster", "vitrail uses"], rows
    )


@torch.inference_mode()
def last_block() -> str:
    """What the last block saves by computing only the class token (B/16, batch 8)."""
    model = b16()
    rows: list[list[object]] = []
    for name, dtype in DTYPES.items():
        model.to(dtype)
        images = torch.randn(8, 3, 224, 224, dtype=dtype)
        contestants = {"all": lambda x=images: model.head(model.features(x)), "pooled": lambda x=images: model(x)}
        middle, low, high = interleave(contestants, rounds=12).speedup("pooled", "all")
        difference = (contestants["all"]() - contestants["pooled"]()).abs().max().item()
        rows.append([name, f"{middle:.3f} ({low:.3f} to {high:.3f})", f"{difference:.1e}"])
    return table(["dtype", "x faster", "largest difference of a logit"], rows)


@torch.inference_mode()
def pruning() -> str:
    """Heads taken out of every layer of B/16, batch 8, fp32: smaller and faster in proportion."""
    whole = b16()
    images = torch.randn(8, 3, 224, 224)
    models = {"12": whole} | {
        str(12 - gone): vitrail.prune_heads(whole, {layer: range(gone) for layer in range(12)})
        for gone in (3, 6, 9, 12)
    }
    timing = interleave({name: lambda m=model: m(images) for name, model in models.items()}, rounds=8)
    full = sum(p.numel() for p in whole.parameters())
    rows: list[list[object]] = []
    for name, model in models.items():
        walk = vitrail.trace(model, batch=1)
        middle, low, high = timing.speedup(name, "12")
        share = sum(p.numel() for p in model.parameters()) / full
        rows.append(
            [name, f"{share:.0%}", f"{walk.multiply_adds / 1e9:.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
        )
    return table(["heads per layer", "parameters", "G multiply-adds", "x faster"], rows)
