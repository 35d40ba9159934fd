"""Tokens to tokens: attention, block, encoder."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config import Pair, ViTConfig
from vitrail.model.mlp import MLP, DropPath
from vitrail.model.probe import SILENT, Probe
from vitrail.model.shapes import Angles, Heads, Kept, Queries, Tokens, Weights
from vitrail.model.tokens import rotary_angles

Rotary = tuple[Angles, Angles] | None

# What a block offers to a probe with one row per token that asks (its first norm, keys and values always cover all).
PER_TOKEN = (
    *("attn.q", "attn.context", "attn.merged", "attn.out", "attn.residual"),
    *("norm2", "mlp.hidden", "mlp.activated", "mlp.out", "out"),
)

# In 16-bit on a CPU, two plain products around a softmax beat scaled_dot_product_attention 1.7 to 2.3 times at 197
# to 1,025 tokens, as long as the scores stay in cache: a few images at a time. In 32-bit, and for scores that fit no
# cache, the fused kernel wins. Measured on an AVX-512 machine by `make bench` (bench/RESULTS.md, attention kernels).
SLICE_BYTES, IMAGE_BYTES = 8 * 2**20, 32 * 2**20


class Encoder(nn.Module):
    """Blocks, then the final norm."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = layer_norm(config) if config.final_norm == "tokens" else nn.Identity()

    def forward(self, x: Tokens, grid: Pair, probe: Probe = SILENT, keep: int | None = None) -> Kept:
        """`keep` is how many leading tokens the reader needs (None: all): the last block computes no others."""
        probe.check_layers(len(self.blocks))
        rotary = self.rotary(grid, x)
        last = len(self.blocks) - 1
        if keep is not None and watches_beyond(probe, last, keep):
            keep = None
        for layer, block in enumerate(self.blocks):
            x = block(x, rotary, probe, keep if layer == last else None)
        return probe.take("norm.out", self.norm(x))

    def rotary(self, grid: Pair, like: Tensor) -> Rotary:
        """Angles for every patch of the grid, where the config asks for rotary positions."""
        if self.config.position != "rotary":
            return None
        assert self.config.head_dim
        cos, sin = rotary_angles(grid, self.config.head_dim, self.config.rotary_base)
        return cos.to(like), sin.to(like)


def watches_beyond(probe: Probe, last: int, keep: int) -> bool:
    """Whether the probe wants something of the last block or the final norm for more than the first `keep` tokens."""
    if probe.watches_under("norm", ("out",)) or probe.watches_under(f"blocks.{last}", PER_TOKEN):
        return True
    rows = [keep] if probe.queries is None else probe.queries
    return probe.watches_under(f"blocks.{last}", ("attn.scores", "attn.weights")) and not set(rows) <= set(range(keep))


class Block(nn.Module):
    """Norm, attention, residual; norm, MLP, residual."""

    def __init__(self, config: ViTConfig, layer: int) -> None:
        super().__init__()
        self.name = f"blocks.{layer}"
        self.norm1 = layer_norm(config)
        self.attn = Attention(config, layer)
        self.scale1 = layer_scale(config)
        self.norm2 = layer_norm(config)
        self.mlp = MLP(config, f"{self.name}.mlp", config.hidden_size)
        self.scale2 = layer_scale(config)
        self.drop_path = DropPath(config.drop_path_rate * layer / max(config.num_hidden_layers - 1, 1))

    def forward(self, x: Tokens, rotary: Rotary = None, probe: Probe = SILENT, keep: int | None = None) -> Kept:
        attended = self.attn(probe.take(f"{self.name}.norm1", self.norm1(x)), rotary, probe, keep)
        x = x[:, :keep] + self.drop_path(scaled(attended, self.scale1))
        probe.take(f"{self.name}.attn.residual", x)
        mixed = self.mlp(probe.take(f"{self.name}.norm2", self.norm2(x)), probe)
        return probe.take(f"{self.name}.out", x + self.drop_path(scaled(mixed, self.scale2)))


class Attention(nn.Module):
    """Every token asks every token; each head has its own way of asking."""

    def __init__(self, config: ViTConfig, layer: int) -> None:
        super().__init__()
        assert config.head_dim
        self.name, self.layer = f"blocks.{layer}.attn", layer
        self.heads, self.born, self.head_dim = config.heads_in(layer), config.num_attention_heads, config.head_dim
        self.prefix = config.prefix_tokens
        width = len(self.heads) * self.head_dim
        self.qkv = nn.Linear(config.hidden_size, 3 * width, bias=config.qkv_bias and config.key_bias)
        self.query_value_bias = (
            nn.Parameter(torch.zeros(2 * width)) if config.qkv_bias and not config.key_bias else None
        )
        self.q_norm = nn.LayerNorm(self.head_dim, eps=config.layer_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(self.head_dim, eps=config.layer_norm_eps) if config.qk_norm else nn.Identity()
        self.proj = nn.Linear(width, config.hidden_size)
        self.attention_dropout = config.attention_probs_dropout_prob
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tokens, rotary: Rotary = None, probe: Probe = SILENT, keep: int | None = None) -> Kept:
        """What the first `keep` tokens (None: all) gather from all tokens."""
        q, k, v = self.project(x, keep)
        q, k = self.turned(self.q_norm(q), rotary), self.turned(self.k_norm(k), rotary)
        probe.take(f"{self.name}.q", q), probe.take(f"{self.name}.k", k), probe.take(f"{self.name}.v", v)
        self.show_weights(q, k, probe)
        context = attend(q, k, v, self.attention_dropout if self.training else 0.0)
        context = probe.take(f"{self.name}.context", probe.scaled(self.layer, self.heads, self.born, context))
        merged = probe.take(f"{self.name}.merged", context.transpose(1, 2).flatten(2))
        return probe.take(f"{self.name}.out", self.dropout(self.proj(merged)))

    def project(self, x: Tokens, keep: int | None) -> tuple[Queries, Heads, Heads]:
        """Queries of the first `keep` tokens, keys and values of all; each split into heads."""
        bias = self.bias()
        if keep is None:
            q, k, v = F.linear(x, self.qkv.weight, bias).chunk(3, dim=-1)
        else:
            width = len(self.qkv.weight) // 3
            q = F.linear(x[:, :keep], self.qkv.weight[:width], None if bias is None else bias[:width])
            k, v = F.linear(x, self.qkv.weight[width:], None if bias is None else bias[width:]).chunk(2, dim=-1)
        return self.split(q), self.split(k), self.split(v)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (len(self.heads), self.head_dim)).transpose(1, 2)

    def bias(self) -> Tensor | None:
        if self.query_value_bias is None:
            return self.qkv.bias
        q, v = self.query_value_bias.chunk(2)
        return torch.cat([q, torch.zeros_like(q), v])

    def turned(self, x: Queries, rotary: Rotary) -> Queries:
        """Patch tokens rotated by their place; prefix tokens as they are."""
        if rotary is None or x.shape[2] <= self.prefix:
            return x
        cos, sin = rotary
        prefix, patches = x[:, :, : self.prefix], x[:, :, self.prefix :]
        first, second = patches.chunk(2, dim=-1)
        return torch.cat([prefix, patches * cos + torch.cat([-second, first], dim=-1) * sin], dim=2)

    def show_weights(self, q: Queries, k: Heads, probe: Probe) -> None:
        """Scores and weights for the heads and query rows somebody asked for, and for no others."""
        scores_name, weights_name = f"{self.name}.scores", f"{self.name}.weights"
        wants_scores, wants_weights = probe.watches(scores_name), probe.watches(weights_name)
        if not (wants_scores or wants_weights):
            return
        heads = probe.head_rows(self.layer, self.heads)
        scores = attention_scores(q[:, heads][:, :, probe.query_rows(q.shape[2])], k[:, heads])
        probe.take(scores_name, scores)
        probe.take(weights_name, scores.softmax(dim=-1))


def attend(q: Queries, k: Heads, v: Heads, dropout: float = 0.0) -> Queries:
    """What each query gathers from the values, by softmax of its scaled scores."""
    images = images_per_slice(q, k)
    if images == 0:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    slices = zip(q.split(images), k.split(images), v.split(images), strict=True)
    gathered = [weighted_sum(*some, dropout) for some in slices]
    return gathered[0] if len(gathered) == 1 else torch.cat(gathered)


def weighted_sum(q: Queries, k: Heads, v: Heads, dropout: float) -> Queries:
    weights = attention_scores(q, k).softmax(dim=-1)
    return F.dropout(weights, dropout, training=dropout > 0.0) @ v


def attention_scores(q: Queries, k: Heads) -> Weights:
    """Queries times keys, over the square root of the head dimension."""
    # One picture's keys, as a slice of q, k and v side by side, would take bmm's slow road (docs/experiments.md).
    return (q * q.shape[-1] ** -0.5) @ k.contiguous().transpose(-2, -1)


def images_per_slice(q: Queries, k: Heads) -> int:
    """How many images to attend at a time by plain products; 0: use the fused kernel.

    A rule on shapes and dtype alone: the same input always takes the same path, so results repeat bit for bit.
    """
    image_bytes = q.shape[1] * q.shape[2] * k.shape[2] * q.element_size()
    if q.device.type != "cpu" or q.element_size() > 2 or image_bytes > IMAGE_BYTES:
        return 0
    return max(1, SLICE_BYTES // max(image_bytes, 1))


def layer_norm(config: ViTConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


def layer_scale(config: ViTConfig) -> nn.Parameter | None:
    """A learned factor per channel on a branch (CaiT, DINOv2), where the config asks for it."""
    if config.layer_scale is None:
        return None
    return nn.Parameter(torch.full((config.hidden_size,), config.layer_scale))


def scaled(x: Tokens, scale: nn.Parameter | None) -> Tokens:
    return x if scale is None else x * scale
