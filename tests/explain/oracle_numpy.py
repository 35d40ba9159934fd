"""Every explanation's equation written out again in NumPy float64, from whole attention matrices and their gradients.

Nothing here is fast or clever: each function builds the full tokens x tokens matrices that vitrail never builds.
`weights` and `gradients` are lists over layers of heads x tokens x tokens, `read` a row over tokens.
"""

from __future__ import annotations

import numpy as np

Arrays = list[np.ndarray]


def patches(row: np.ndarray, prefix: int, grid: tuple[int, int]) -> np.ndarray:
    """Prefix tokens dropped, the rest divided by its sum."""
    kept = row[..., prefix:]
    return (kept / kept.sum(-1, keepdims=True)).reshape(*row.shape[:-1], *grid)


def rollout(weights: Arrays, read: np.ndarray, fuse: str = "mean", discard: float = 0.0) -> np.ndarray:
    """read . A_L ... A_1 with A = rownorm(fuse_h(W) + I)."""
    tokens = len(read)
    product = np.eye(tokens)
    for layer in weights:
        step = getattr(np, fuse)(layer, axis=0) if len(layer) else np.zeros((tokens, tokens))
        for row in step:
            row[np.argsort(row)[: int(discard * tokens)]] = 0.0
        step = step + np.eye(tokens)
        product = (step / step.sum(axis=1)[:, None]) @ product
    return read @ product


def relevance(weights: Arrays, gradients: Arrays, read: np.ndarray) -> np.ndarray:
    """Chefer 2021: R = I; R += mean_h(relu(G * W)) R."""
    relevant = np.eye(len(read))
    for layer, gradient in zip(weights, gradients, strict=True):
        if len(layer):
            relevant = relevant + np.maximum(gradient * layer, 0).mean(axis=0) @ relevant
    return read @ relevant


def gradient_rollout(weights: Arrays, gradients: Arrays, read: np.ndarray) -> np.ndarray:
    """read . product of rownorm(relu(mean_h(G * W)) + I)."""
    product = np.eye(len(read))
    for layer, gradient in zip(weights, gradients, strict=True):
        if len(layer):
            step = np.maximum((gradient * layer).mean(axis=0), 0) + np.eye(len(read))
            product = (step / step.sum(axis=1)[:, None]) @ product
    return read @ product


def attention_grad_cam(weights: np.ndarray, gradients: np.ndarray, read: np.ndarray, prefix: int) -> np.ndarray:
    """relu(mean_h(mean over patches of the read row of G_h, times the read row of W_h))."""
    total = np.zeros(len(read))
    for weight, gradient in zip(weights, gradients, strict=True):
        total += (read @ gradient)[prefix:].mean() * (read @ weight)
    return np.maximum(total / len(weights), 0)


def heaviest(row: np.ndarray, keep: float) -> np.ndarray:
    """DINO's mask: from the largest down, until `keep` of the sum is inside."""
    mask, total = np.zeros(len(row), bool), 0.0
    for place in np.argsort(-row):
        if total >= keep * row.sum():
            break
        mask[place] = True
        total += row[place]
    return mask


def grad_cam(activations: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Patches x channels: relu(sum_c mean_p(G) * X)."""
    return np.maximum(sum(gradients[:, c].mean() * activations[:, c] for c in range(activations.shape[1])), 0)


def layer_cam(activations: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Patches x channels: relu(sum_c relu(G) * X)."""
    return np.maximum(sum(np.maximum(gradients[:, c], 0) * activations[:, c] for c in range(activations.shape[1])), 0)


def attention_distance(weights: np.ndarray, prefix: int, grid: tuple[int, int], stride: tuple[int, int]) -> np.ndarray:
    """Per head, in pixels: mean over query patches of the expected distance to a key patch."""
    places = [(row * stride[0], col * stride[1]) for row in range(grid[0]) for col in range(grid[1])]
    distances = np.array([[np.hypot(a - c, b - d) for c, d in places] for a, b in places])
    found = []
    for head in weights:
        inside = head[prefix:, prefix:]
        inside = inside / inside.sum(axis=1)[:, None]
        found.append((inside * distances).sum(axis=1).mean())
    return np.array(found)


def position_similarity(table: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """rows x cols x rows x cols of cosines, from a table without prefix rows."""
    unit = table / np.linalg.norm(table, axis=1)[:, None]
    return (unit @ unit.T).reshape(*grid, *grid)


def filters(kernel: np.ndarray, count: int) -> np.ndarray:
    """Principal components (by SVD of the centred filters) of dim x channels x rows x cols."""
    flat = kernel.reshape(len(kernel), -1)
    _, _, components = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    return components[:count].reshape(-1, *kernel.shape[1:])
