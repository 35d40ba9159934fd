"""A Vision Transformer in float64 NumPy: what vitrail is measured against. It shares no code with it, and no torch.

Weights go by the names and kernel layouts of Google's published files (FACTS.md sections 3 and 5):
Dense is (in, out), query/key/value (dim, heads, head_dim), out (heads, head_dim, dim), convolutions
(rows, cols, in, out); pictures are (batch, rows, cols, channels). Whatever the files hold is used: a class token
where there is `cls`, a bias where there is `bias`, as many heads as a kernel has. What such a file cannot say is
in `How`. Where Google has no word for a thing, these were added:

    dist, reg                                   distillation token, register tokens
    Transformer/pre_norm                        LayerNorm before the first block (CLIP)
    encoderblock_i/LayerScale_0, LayerScale_2   {scale}: a factor per channel on each branch
    MultiHead.../query_ln, key_ln               {scale, bias} over one head (flax: normalize_qk)
    MlpBlock_3/Gate_0                           {kernel, bias}: its activation multiplies Dense_0 (SwiGLU)
    fc_norm                                     LayerNorm after pooling instead of encoder_norm
    head_dist                                   the distillation token's classifier
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage, special

Weights = dict[str, np.ndarray]

ACTIVATIONS = {
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * special.expit(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * special.expit(x),
    "tanh": np.tanh,
}


@dataclass(frozen=True)
class How:
    """The conventions no weight file states; the defaults are Google's."""

    activation: str = "gelu_tanh"
    representation_activation: str = "tanh"
    layer_norm_eps: float = 1e-6
    group_norm_eps: float = 1e-6
    standardization: str = "std_plus"
    standardization_eps: float = 1e-5
    padding: str = "same"
    shortcut_groups: str = "grouped"
    pooling: str = "token"
    position: str = "learned"
    rotary_base: float = 100.0
    table_grid: tuple[int, int] | None = None  # None: the table was made for the picture's own grid
    resampling: str = "google"
    head_mask: np.ndarray | None = None  # layers x heads: factors on the attention weights


def forward(weights: Weights, images: np.ndarray, how: How | None = None) -> dict[str, np.ndarray]:
    """Pictures (batch, rows, cols, channels) in; logits and everything on the way out, by name."""
    how = how or How()
    w = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    seen: dict[str, np.ndarray] = {}
    grid = stem(w, np.asarray(images, dtype=np.float64), how, seen)
    batch, rows, cols, dim = grid.shape
    seen["patch_embed"] = grid.reshape(batch, rows * cols, dim)
    x, prefix = tokens(w, seen["patch_embed"], (rows, cols), how)
    seen["embed"] = x
    for layer in range(count(w, "Transformer/encoderblock_{}/")):
        x = block(w, layer, x, prefix, (rows, cols), how, seen)
        seen[f"block_{layer}"] = x
    if "Transformer/encoder_norm/scale" in w:
        x = layer_norm(x, under(w, "Transformer/encoder_norm"), how)
    seen["norm"] = x
    seen["logits"] = head(w, x, prefix, how, seen)
    return seen


# Pictures to grid --------------------------------------------------------------------------------------------------


def stem(w: Weights, x: np.ndarray, how: How, seen: dict[str, np.ndarray]) -> np.ndarray:
    if "conv_root/kernel" in w:
        x = resnet(w, x, how, seen)
    kernel = w["embedding/kernel"]
    return convolve(x, kernel, kernel.shape[:2], "valid") + w.get("embedding/bias", 0.0)


def resnet(w: Weights, x: np.ndarray, how: How, seen: dict[str, np.ndarray]) -> np.ndarray:
    x = standard_conv(x, w["conv_root/kernel"], 2, how)
    seen["conv_root"] = x
    x = np.maximum(group_norm(x, under(w, "gn_root"), 32, how.group_norm_eps), 0)
    if how.padding == "same":
        x = pad_same(x, (3, 3), (2, 2), fill=-np.inf)
    x = windows(x, (3, 3), (2, 2)).max(axis=(-2, -1))
    seen["stem_pool"] = x
    for stage in range(1, 1 + count(w, "block{}/", start=1)):
        for unit in range(1, 1 + count(w, f"block{stage}/unit{{}}/", start=1)):
            stride = 2 if stage > 1 and unit == 1 else 1
            x = bottleneck(under(w, f"block{stage}/unit{unit}"), x, stride, how)
        seen[f"stem_block{stage}"] = x
    seen["stem_out"] = x
    return x


def bottleneck(w: Weights, x: np.ndarray, stride: int, how: How) -> np.ndarray:
    shortcut = x
    if "conv_proj/kernel" in w:
        shortcut = standard_conv(x, w["conv_proj/kernel"], stride, how)
        channels = shortcut.shape[-1]
        groups, eps = (32, how.group_norm_eps) if how.shortcut_groups == "grouped" else (channels, 1e-5)
        shortcut = group_norm(shortcut, under(w, "gn_proj"), groups, eps)
    for number, step in ((1, 1), (2, stride), (3, 1)):
        x = standard_conv(x, w[f"conv{number}/kernel"], step, how)
        x = group_norm(x, under(w, f"gn{number}"), 32, how.group_norm_eps)
        x = np.maximum(x, 0) if number < 3 else x
    return np.maximum(x + shortcut, 0)


def standard_conv(x: np.ndarray, kernel: np.ndarray, stride: int, how: How) -> np.ndarray:
    mean, std = kernel.mean(axis=(0, 1, 2)), kernel.std(axis=(0, 1, 2))
    eps = how.standardization_eps
    divisor = std + eps if how.standardization == "std_plus" else np.sqrt(std**2 + eps)
    return convolve(x, (kernel - mean) / divisor, (stride, stride), how.padding)


def convolve(x: np.ndarray, kernel: np.ndarray, stride: tuple[int, ...], padding: str) -> np.ndarray:
    if padding == "same":
        x = pad_same(x, kernel.shape[:2], stride, fill=0.0)
    elif padding == "symmetric":
        edge = (kernel.shape[0] - 1) // 2
        x = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    return np.einsum("brcixy,xyio->brco", windows(x, kernel.shape[:2], stride), kernel, optimize=True)


def windows(x: np.ndarray, size: tuple[int, ...], stride: tuple[int, ...]) -> np.ndarray:
    """Every window of `size`, `stride` apart: batch x rows x cols x channels x window rows x window cols."""
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))[:, :: stride[0], :: stride[1]]


def pad_same(x: np.ndarray, size: tuple[int, ...], stride: tuple[int, ...], fill: float) -> np.ndarray:
    """TensorFlow's SAME: ceil(n / stride) outputs; an odd cell goes to the end."""
    edges = [(0, 0)]
    for n, k, s in zip(x.shape[1:3], size, stride, strict=True):
        total = max((int(np.ceil(n / s)) - 1) * s + k - n, 0)
        edges.append((total // 2, total - total // 2))
    return np.pad(x, [*edges, (0, 0)], constant_values=fill)


def group_norm(x: np.ndarray, w: Weights, groups: int, eps: float) -> np.ndarray:
    batch, rows, cols, channels = x.shape
    split = x.reshape(batch, rows, cols, groups, channels // groups)
    mean, variance = split.mean(axis=(1, 2, 4), keepdims=True), split.var(axis=(1, 2, 4), keepdims=True)
    normal = ((split - mean) / np.sqrt(variance + eps)).reshape(x.shape)
    return normal * w["scale"].reshape(-1) + w["bias"].reshape(-1)


# Grid to tokens ----------------------------------------------------------------------------------------------------


def tokens(w: Weights, patches: np.ndarray, grid: tuple[int, int], how: How) -> tuple[np.ndarray, int]:
    """[class, distillation, registers, patches] with positions, and how many tokens come before the patches."""
    batch, _, dim = patches.shape
    before = [w[name].reshape(-1, dim) for name in ("cls", "dist", "reg") if name in w]
    before = np.concatenate(before) if before else np.zeros((0, dim))
    x = np.concatenate([np.broadcast_to(before, (batch, *before.shape)), patches], axis=1)
    if how.position in ("learned", "sincos"):
        table = sincos(grid, dim) if how.position == "sincos" else learned_table(w, grid, how)
        covered = len(table) - grid[0] * grid[1]
        x = x.copy()
        x[:, :covered] += table[:covered]
        x[:, len(before) :] += table[covered:]
    if "Transformer/pre_norm/scale" in w:
        x = layer_norm(x, under(w, "Transformer/pre_norm"), how)
    return x, len(before)


def learned_table(w: Weights, grid: tuple[int, int], how: How) -> np.ndarray:
    table = w["Transformer/posembed_input/pos_embedding"][0]
    old = how.table_grid or grid
    if old == grid:
        return table
    covered = len(table) - old[0] * old[1]
    patches = resample(table[covered:].reshape(*old, -1), grid, how.resampling)
    return np.concatenate([table[:covered], patches.reshape(grid[0] * grid[1], -1)])


def resample(table: np.ndarray, grid: tuple[int, int], method: str) -> np.ndarray:
    """A (rows, cols, dim) table at another grid, the way each library does it."""
    if method == "google":
        zoom = (grid[0] / table.shape[0], grid[1] / table.shape[1], 1)
        return ndimage.zoom(table, zoom, order=1)
    for axis in (0, 1):
        along = bicubic_matrix(table.shape[axis], grid[axis], method)
        table = np.moveaxis(np.tensordot(along, table, axes=(1, axis)), 0, axis)
    return table


def bicubic_matrix(old: int, new: int, method: str) -> np.ndarray:
    """new x old: how much of each old cell goes into each new one. Outside cells repeat the edge.

    torchvision: corner cells stay corners; hf: cell centres map to cell centres, Keys' kernel with a = -0.75;
    timm (antialias, like Pillow): a = -0.5, widened by the factor of shrinking, edges left out and renormalised.
    """
    matrix = np.zeros((new, old))
    ratio = old / new
    for i in range(new):
        corners = i * (old - 1) / max(new - 1, 1)
        centre = corners if method == "torchvision" else (i + 0.5) * ratio - 0.5
        if method == "timm":
            wide = max(ratio, 1.0)
            weights = keys((np.arange(old) - centre) / wide, -0.5)
            matrix[i] = weights / weights.sum()
        else:
            for j in range(int(np.floor(centre)) - 1, int(np.floor(centre)) + 3):
                matrix[i, min(max(j, 0), old - 1)] += keys(j - centre, -0.75)
    return matrix


def keys(distance: np.ndarray | float, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel."""
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def sincos(grid: tuple[int, int], dim: int) -> np.ndarray:
    """big_vision's fixed table: sin and cos of the column, then of the row, wavelengths 1 to 10,000."""
    row, col = np.mgrid[: grid[0], : grid[1]]
    omega = 1 / 10_000 ** (np.arange(dim // 4) / (dim // 4 - 1))
    row, col = (np.outer(axis.reshape(-1), omega) for axis in (row, col))
    return np.concatenate([np.sin(col), np.cos(col), np.sin(row), np.cos(row)], axis=1)


# Tokens to tokens --------------------------------------------------------------------------------------------------


def block(w: Weights, layer: int, x: np.ndarray, prefix: int, grid: tuple, how: How, seen: dict) -> np.ndarray:
    w = under(w, f"Transformer/encoderblock_{layer}")
    y = layer_norm(x, under(w, "LayerNorm_0"), how)
    mask = None if how.head_mask is None else how.head_mask[layer]
    y, seen[f"attn_{layer}"] = attention(under(w, "MultiHeadDotProductAttention_1"), y, y, prefix, grid, how, mask)
    x = x + y * w.get("LayerScale_0/scale", 1.0)
    y = mlp(under(w, "MlpBlock_3"), layer_norm(x, under(w, "LayerNorm_2"), how), how)
    return x + y * w.get("LayerScale_2/scale", 1.0)


def attention(
    w: Weights,
    asking: np.ndarray,
    asked: np.ndarray,
    prefix: int = 0,
    grid: tuple[int, int] | None = None,
    how: How | None = None,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What each token of `asking` gathers from `asked`, and the weights (batch, heads, asking, asked)."""
    how = how or How()
    q, k, v = (
        np.einsum("btd,dhk->bhtk", x, w[f"{name}/kernel"]) + w.get(f"{name}/bias", np.zeros((1, 1)))[:, None]
        for name, x in (("query", asking), ("key", asked), ("value", asked))
    )
    if "query_ln/scale" in w:
        q, k = layer_norm(q, under(w, "query_ln"), how), layer_norm(k, under(w, "key_ln"), how)
    if how.position == "rotary" and grid:
        q, k = rotate(q, prefix, grid, how), rotate(k, prefix, grid, how)
    weights = softmax(np.einsum("bhqk,bhtk->bhqt", q, k) / np.sqrt(q.shape[-1]))
    if mask is not None:
        weights = weights * mask[:, None, None]
    gathered = np.einsum("bhqt,bhtk->bhqk", weights, v)
    out = np.einsum("bhqk,hkd->bqd", gathered, w["out/kernel"]) + w.get("out/bias", 0.0)
    return out, weights


def rotate(x: np.ndarray, prefix: int, grid: tuple[int, int], how: How) -> np.ndarray:
    """DINOv3's rotary positions: patch (row, col), scaled to [-1, 1], turns pairs (k, k + head_dim / 2)."""
    half = x.shape[-1] // 2
    periods = how.rotary_base ** (2 * np.arange(half // 2) / half)
    out = x.copy()
    for patch in range(grid[0] * grid[1]):
        row, col = divmod(patch, grid[1])
        row, col = (row + 0.5) / grid[0] * 2 - 1, (col + 0.5) / grid[1] * 2 - 1
        angle = 2 * np.pi * np.concatenate([row / periods, col / periods])
        first, second = x[:, :, prefix + patch, :half], x[:, :, prefix + patch, half:]
        out[:, :, prefix + patch, :half] = first * np.cos(angle) - second * np.sin(angle)
        out[:, :, prefix + patch, half:] = second * np.cos(angle) + first * np.sin(angle)
    return out


def mlp(w: Weights, x: np.ndarray, how: How) -> np.ndarray:
    act = ACTIVATIONS[how.activation]
    hidden = dense(x, under(w, "Dense_0"))
    hidden = act(dense(x, under(w, "Gate_0"))) * hidden if "Gate_0/kernel" in w else act(hidden)
    return dense(hidden, under(w, "Dense_1"))


def dense(x: np.ndarray, w: Weights) -> np.ndarray:
    return x @ w["kernel"] + w.get("bias", 0.0)


def layer_norm(x: np.ndarray, w: Weights, how: How) -> np.ndarray:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + how.layer_norm_eps) * w["scale"] + w["bias"]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# Tokens to logits --------------------------------------------------------------------------------------------------


def head(w: Weights, x: np.ndarray, prefix: int, how: How, seen: dict[str, np.ndarray]) -> np.ndarray:
    seen["pooled"] = pool(w, x, prefix, how)
    logits = classify(w, "head", seen["pooled"], how, seen)
    if "head_dist/kernel" in w:
        return (logits + classify(w, "head_dist", x[:, 1], how, {})) / 2
    return logits


def classify(w: Weights, name: str, pooled: np.ndarray, how: How, seen: dict[str, np.ndarray]) -> np.ndarray:
    if "fc_norm/scale" in w:
        pooled = layer_norm(pooled, under(w, "fc_norm"), how)
    if "pre_logits/kernel" in w:
        pooled = ACTIVATIONS[how.representation_activation](dense(pooled, under(w, "pre_logits")))
    seen["pre_logits"] = pooled
    return dense(pooled, under(w, name)) if f"{name}/kernel" in w else pooled


def pool(w: Weights, x: np.ndarray, prefix: int, how: How) -> np.ndarray:
    if how.pooling == "map":
        w = under(w, "MAPHead_0")
        probe = np.broadcast_to(w["probe"], (len(x), *w["probe"].shape[1:]))
        y, _ = attention(under(w, "MultiHeadDotProductAttention_0"), probe, x)
        return (y + mlp(under(w, "MlpBlock_0"), layer_norm(y, under(w, "LayerNorm_0"), how), how))[:, 0]
    mean = x[:, prefix:].mean(axis=1)
    return {"token": x[:, 0], "mean": mean, "token_and_mean": np.concatenate([x[:, 0], mean], axis=-1)}[how.pooling]


# Names -------------------------------------------------------------------------------------------------------------


def under(w: Weights, prefix: str) -> Weights:
    """The weights below a prefix, by the rest of their names."""
    return {name[len(prefix) + 1 :]: value for name, value in w.items() if name.startswith(prefix + "/")}


def count(w: Weights, pattern: str, start: int = 0) -> int:
    """How many numbered things of a kind there are, counting up from `start`."""
    found = 0
    while any(name.startswith(pattern.format(start + found)) for name in w):
        found += 1
    return found
