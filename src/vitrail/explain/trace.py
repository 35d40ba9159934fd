"""Walk a picture through a model, stage by stage: shapes, parameters, multiply-adds, formulas and live numbers.

Every shape is read off a real forward pass. Without a picture that pass runs on torch's "meta" device, which
executes the model's own code on tensors that have a shape but no memory, so even H/14 walks in a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitrail.config import Frozen, ViTConfig
from vitrail.explain.stages import Row, row_of
from vitrail.images.decode import Source
from vitrail.images.transforms import normalise, read
from vitrail.model.probe import Probe
from vitrail.model.variants import create
from vitrail.model.vit import VisionTransformer, build_empty

Shape = tuple[int, ...]


class Numbers(Frozen, frozen=True):
    """What a live tensor holds."""

    mean: float
    std: float
    min: float
    max: float


class Seen(Frozen, frozen=True):
    """What the probe keeps of a tensor: its shape, and its numbers if it has memory."""

    shape: Shape
    live: Numbers | None


class Stage(Frozen, frozen=True):
    """One step of the walk."""

    name: str
    hf: str
    google: str
    formula: str
    input: Shape
    output: Shape
    parameters: int
    multiply_adds: int
    live: Numbers | None


class Trace(Frozen, frozen=True):
    """The whole walk, and its totals."""

    stages: list[Stage]
    parameters: int
    multiply_adds: int
    config: ViTConfig


def trace(
    model: VisionTransformer | str = "B/16", image: Tensor | Source | None = None, batch: int | None = None
) -> Trace:
    """Run a picture through the model and note every stage.

    `model` may be a name; `image` a path, bytes, a Pillow picture, an array, or a normalised tensor (batch x channels
    x height x width). Without an image: shapes only, for `batch` (32) pictures of the model's own size.
    """
    model = create(model, seed=0) if isinstance(model, str) else model
    if image is None:
        model = build_empty(model.config).eval()
        images = torch.empty(batch or 32, model.config.num_channels, *model.config.image_size, device="meta")
    else:
        images = image if isinstance(image, Tensor) else as_images(image, model, batch or 1)
    probe = Probe("*", keep=lambda name, tensor: see(tensor))
    with torch.inference_mode(), counted_convolutions(model) as convolutions:
        model(images, probe)
    stages = list(walk(model, probe, convolutions))
    return Trace(
        stages=stages,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        multiply_adds=sum(stage.multiply_adds for stage in stages),
        config=model.config,
    )


def as_images(source: Source, model: VisionTransformer, batch: int) -> Tensor:
    """A picture as the model's own preprocessing gives it, `batch` times."""
    pixels, _ = read(source, model.preprocess)
    return normalise(pixels[None], model.preprocess).expand(batch, -1, -1, -1)


def see(tensor: Tensor) -> Seen:
    """Shape, and mean, spread and range where there is memory behind the shape."""
    if tensor.is_meta or not tensor.numel():
        return Seen(shape=tuple(tensor.shape), live=None)
    std, mean = torch.std_mean(tensor.float(), correction=0)
    low, high = tensor.aminmax()
    numbers = Numbers(mean=mean.item(), std=std.item(), min=low.item(), max=high.item())
    return Seen(shape=tuple(tensor.shape), live=numbers)


def walk(model: VisionTransformer, probe: Probe, convolutions: dict[str, int]) -> Iterator[Stage]:
    """The stages the pass really went through, in its order."""
    before = Seen(shape=(), live=None)
    for name, seen in probe.items():
        row, number = row_of(name)
        if name == "head.representation" and not model.config.representation_size:
            continue  # offered unchanged by models without that layer
        texts = spelled(model.config, number)
        reads = before if not row.reads else probe[row.reads.format(i=number)] if row.reads != "nothing" else None
        owned = owned_by(row, number, model)
        yield Stage(
            name=name,
            hf=row.hf.format(**texts),
            google=row.google.format(**texts),
            formula=row.formula.format(**texts),
            input=reads.shape if reads else (),
            output=seen.shape,
            parameters=sum(parameter.numel() // shared for parameter, shared in owned.values()),
            multiply_adds=multiply_adds(name, reads, seen, owned, convolutions, model.config),
            live=seen.live,
        )
        before = seen


Owned = dict[str, tuple[nn.Parameter, int]]  # parameter name: the parameter, and how many stages share it


def owned_by(row: Row, number: int | None, model: nn.Module) -> Owned:
    """The parameters a stage uses."""
    owners = {owner.format(i=number): shared for owner, shared in row.owns.items()}
    return {
        name: (parameter, shared)
        for name, parameter in model.named_parameters()
        for owner, shared in owners.items()
        if name == owner or name.startswith(f"{owner}.")
    }


def multiply_adds(
    name: str, reads: Seen | None, seen: Seen, owned: Owned, convolutions: dict[str, int], config: ViTConfig
) -> int:
    """Multiply-adds of a stage's matrix products and convolutions, from the shapes that were seen."""
    cells = torch.Size(seen.shape).numel()
    if name.endswith("attn.scores"):
        return cells * (config.head_dim or 0)
    if name.endswith("attn.context") and reads:
        return cells * reads.shape[-1]  # one per key
    matrices = [(parameter, shared) for parameter, shared in owned.values() if parameter.dim() == 2]
    if name == "head.pooled" and matrices and reads:
        return attention_pool_multiply_adds(reads.shape, [parameter for parameter, _ in matrices])
    # A linear layer meets each of its weights once per row of its output.
    linear = sum(cells // (len(matrix) // shared) * (matrix.numel() // shared) for matrix, shared in matrices if cells)
    return linear + sum(count for layer, count in convolutions.items() if f"{layer}.weight" in owned)


def attention_pool_multiply_adds(tokens: Shape, matrices: list[nn.Parameter]) -> int:
    """Attention pooling: keys and values for every token, all else for the one learned query of each picture."""
    batch, count, dim = tokens
    one_query = sum(matrix.numel() for matrix in matrices) - 2 * dim * dim
    return batch * (one_query + count * 2 * dim * dim + 2 * count * dim)


@contextmanager
def counted_convolutions(model: nn.Module) -> Iterator[dict[str, int]]:
    """Multiply-adds of each convolution that runs inside, by module name."""
    counted: dict[str, int] = {}

    def counter(name: str) -> object:
        def count(layer: nn.Conv2d, _: object, output: Tensor) -> None:
            counted[name] = output.numel() * layer.weight[0].numel()

        return count

    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)]
    handles = [layer.register_forward_hook(counter(name)) for name, layer in layers]  # type: ignore[arg-type]
    yield counted
    for handle in handles:
        handle.remove()


def spelled(config: ViTConfig, number: int | None) -> dict[str, object]:
    """What the words in braces of the stage table stand for in this model."""
    pools = {
        "token": "the class token",
        "mean": "mean of the patches",
        "map": "a learned query attends to all tokens",
        "token_and_mean": "class token beside mean of the patches",
    }
    units = dict(enumerate(config.resnet.layers)) if config.resnet else {}
    return {
        "i": number,
        "n": "" if number is None else number + 1,
        "units": "" if number is None else units.get(number, ""),
        "patch": "x".join(map(str, config.patch_size)),
        "head_dim": config.head_dim,
        "act": "silu(gate) x value" if config.mlp == "swiglu" else config.hidden_act,
        "bend": config.representation_act,
        "scale": "" if config.layer_scale is None else "scale . ",
        "embed": "layer norm, " if config.pre_norm else "",
        "pool": pools[config.pooling],
    }
