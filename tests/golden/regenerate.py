"""Our own goldens: what small models with fixed weights answer, at every stage. `make golden` runs this.

It prints how far every stored number moved, then stores the new ones. A refactor moves nothing; a change of
numbers is a commit of its own, with a sentence that says why.
"""

# ruff: noqa: E402, T201

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from oracle.tiny import TINY_STEM, random_images, random_model, tiny_config

from vitrail.config import ViTConfig, build
from vitrail.model.probe import Probe
from vitrail.model.vit import create

SMALL: dict[str, Any] = {"hidden_size": 16}
CASES: dict[str, dict[str, Any]] = {
    "plain": SMALL,
    "hybrid": SMALL | {"image_size": (16, 12), "patch_size": 1, "resnet": TINY_STEM},
    "everything": SMALL | {
        "num_register_tokens": 2, "distillation_token": True, "position_grid": (2, 5), "position_resampling": "timm",
        "position_covers": "all", "pre_norm": True, "qk_norm": True, "mlp": "swiglu", "hidden_act": "silu",
        "layer_scale": 0.1, "representation_size": 7, "kept_heads": ((0, 1, 3), (2,)), "key_bias": False,
        "patch_bias": False,
    },
    "rotary-map": SMALL | {
        "position": "rotary", "num_register_tokens": 1, "pooling": "map", "class_token": False,
        "hidden_act": "gelu_tanh", "num_channels": 1,
    },
}  # fmt: skip
FLAVOURS = ("google", "hf", "timm", "torchvision")


def stages(case: str) -> dict[str, np.ndarray]:
    """Every probe name of a case, in the order of the forward pass, and the logits without a probe.

    Computed in float64, so that machines differ by less than the float32 they are stored in can show.
    """
    config = tiny_config(**CASES[case])
    model, images = random_model(config).double(), random_images(config, batch=1, seed=2).double()
    probe = Probe("*")
    with torch.no_grad():
        model(images, probe)
        unwatched = model(images)
    taken = dict(probe.items()) | {"unwatched": unwatched}
    return {name: tensor.detach().float().numpy() for name, tensor in taken.items()}


def fresh_weights() -> dict[str, np.ndarray]:
    """The first numbers of every parameter a seed gives, for some flavours."""
    sizes = {"image_size": 8, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 24, "num_classes": 5}
    out = {}
    for flavour in FLAVOURS:
        model = create(build(ViTConfig, sizes | {"initializer": flavour}), seed=0)
        out |= {f"{flavour}/{name}": p.detach().flatten()[:4].numpy() for name, p in model.named_parameters()}
    return out


def everything() -> dict[str, dict[str, np.ndarray]]:
    """File name to arrays."""
    return {case: stages(case) for case in CASES} | {"fresh-weights": fresh_weights()}


def store(name: str, arrays: dict[str, np.ndarray]) -> None:
    """One run of numbers, and how to cut it: a file per array inside the npz would take more room than its numbers."""
    names = [f"{key} {' '.join(map(str, array.shape))}" for key, array in arrays.items()]
    numbers = np.concatenate([array.ravel() for array in arrays.values()])
    np.savez_compressed(HERE / f"{name}.npz", names=np.array("\n".join(names)), numbers=numbers)


def stored(name: str) -> dict[str, np.ndarray]:
    path = HERE / f"{name}.npz"
    if not path.exists():
        return {}
    with np.load(path) as file:
        names, numbers = str(file["names"]).splitlines(), file["numbers"]
    out, start = {}, 0
    for line in names:
        key, *shape = re.split(r" (?=[\d ]*$)", line, maxsplit=1)
        sides = [int(side) for side in " ".join(shape).split()]
        size = int(np.prod(sides))
        out[key] = numbers[start : start + size].reshape(sides)
        start += size
    return out


def moved(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> list[str]:
    """One line per array that appeared, vanished, changed shape or moved."""
    lines = [f"- {name}" for name in old if name not in new]
    for name, array in new.items():
        if name not in old:
            lines.append(f"+ {name} {array.shape}")
        elif old[name].shape != array.shape:
            lines.append(f"  {name} {old[name].shape} -> {array.shape}")
        elif not np.array_equal(old[name], array):
            lines.append(f"  {name} moved by up to {np.abs(old[name] - array).max():.3g}")
    return lines


def main() -> None:
    for name, arrays in everything().items():
        lines = moved(stored(name), arrays)
        print(f"{name}: {len(arrays)} arrays, {len(lines)} changed", *lines, sep="\n")
        if lines:
            store(name, arrays)
    print(f"{sum(path.stat().st_size for path in HERE.glob('*.npz')) / 1024:.0f} KB in all")


if __name__ == "__main__":
    main()
