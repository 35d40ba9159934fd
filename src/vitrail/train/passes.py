"""Pictures to logits while training: in one process, in copies (DDP), or in shards (FSDP2).

The three differ in who holds the weights and in what happens to gradients on the way back; a step (step.py) sees no
difference. Copies and shards leave every process with the mean of all processes' gradients after the last portion of
a step, so a step multiplies its loss by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel

from vitrail.errors import ConfigError
from vitrail.model.probe import SILENT, Probe
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.train.adapters import CLASSIFIER, Named, effective
from vitrail.train.arithmetic import Arithmetic
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import World, local, whole

LogitsOf = Callable[[Tensor], Tensor]


class Single(nn.Module):
    """One process, which has all the weights: the model with what learns put in place."""

    def __init__(self, model: VisionTransformer, learning: Named, config: TrainConfig, arithmetic: Arithmetic) -> None:
        super().__init__()
        self.model, self.config, self.arithmetic = model, config, arithmetic
        self.names, self.learning = tuple(learning), nn.ParameterList(learning.values())
        self.logits = torch.compile(arithmetic.logits) if config.compile else arithmetic.logits

    def forward(self, images: Tensor, probe: Probe = SILENT) -> Tensor:
        """Logits that gradients go back through."""
        return self.with_weights(dict(zip(self.names, self.learning, strict=True)))(images, probe)

    def with_weights(self, learning: Named) -> Callable[..., Tensor]:
        """Logits by any values of what learns."""
        weights = effective(self.model, learning, self.config)
        if self.config.mode == "probe":  # from features (features.py): the classifier is all there is to compute
            own = {name.removeprefix(CLASSIFIER): tensor for name, tensor in learning.items()}
            classifier, device = self.model.head.classifier, self.arithmetic.device
            return lambda features, probe=SILENT: functional_call(classifier, own, (features.flatten(1).to(device),))

        def logits(images: Tensor, probe: Probe = SILENT) -> Tensor:
            compute = self.logits if probe is SILENT else self.arithmetic.logits  # whoever watches sees every stage
            return compute(self.model, weights, images, probe)

        return logits


class Passes:
    """How a process computes; this one is alone."""

    def __init__(self, single: Single) -> None:
        self.single = single

    def learn(self, images: Tensor) -> Tensor:
        """Logits of a portion, to go back through."""
        logits: Tensor = self.single(images)
        return logits

    def portion(self, last: bool) -> AbstractContextManager[object]:  # noqa: ARG002 (copies and shards use it)
        """Around a portion's way there and back; gradients are shared after the last of a step."""
        return nullcontext()

    def judged(self, learning: Named) -> AbstractContextManager[LogitsOf]:
        """Logits for an evaluation by these values of what learns."""
        return nullcontext(self.single.with_weights(learning))

    def searched(self) -> tuple[VisionTransformer, dict[str, Tensor], Callable[..., Tensor]]:
        """For whoever looks for a number that is not finite: a model without hooks, its weights, its logits."""
        single = self.single
        learning = dict(zip(single.names, single.learning, strict=True))
        return single.model, effective(single.model, learning, single.config), single.with_weights(learning)


class Copies(Passes):
    """Every process has all the weights (torch's DistributedDataParallel)."""

    def __init__(self, single: Single) -> None:
        super().__init__(single)
        self.copy = DistributedDataParallel(single, gradient_as_bucket_view=True)

    def learn(self, images: Tensor) -> Tensor:
        """Through the wrapper, which watches the way back."""
        logits: Tensor = self.copy(images)
        return logits

    def portion(self, last: bool) -> AbstractContextManager[object]:
        """Gradients stay here until the last."""
        return nullcontext() if last else self.copy.no_sync()


class Shards(Passes):
    """Every process has a part of every weight, and of what the optimiser remembers (torch's FSDP2)."""

    def learn(self, images: Tensor) -> Tensor:
        """By the model itself, whose blocks fetch their weights when their turn comes."""
        arithmetic = self.single.arithmetic
        with arithmetic.autocast():
            logits: Tensor = self.single.model(images.to(arithmetic.device, arithmetic.dtype))
        return logits.float()

    def portion(self, last: bool) -> AbstractContextManager[object]:
        """Gradients stay whole and here until the last."""
        model = self.single.model
        assert isinstance(model, FSDPModule)
        model.set_requires_gradient_sync(last)
        return nullcontext()

    @contextmanager
    def judged(self, learning: Named) -> Iterator[LogitsOf]:
        """The model computes with its own weights, so these take their place for as long as it lasts."""
        own = dict(zip(self.single.names, self.single.learning, strict=True))
        kept = {name: local(tensor).detach().clone() for name, tensor in own.items()}
        put(own, learning)
        try:
            yield self.learn
        finally:
            put(own, kept)

    def searched(self) -> tuple[VisionTransformer, dict[str, Tensor], Callable[..., Tensor]]:
        """On a model made for it, with the weights brought together."""
        arithmetic = self.single.arithmetic
        weights = {
            name: whole(p.detach()).requires_grad_(p.requires_grad) for name, p in self.single.model.named_parameters()
        }
        model = build_empty(self.single.model.config).train()
        return model, weights, lambda images, probe: arithmetic.logits(model, weights, images, probe)


def sharded(model: VisionTransformer, config: TrainConfig, arithmetic: Arithmetic) -> VisionTransformer:
    """The same model with every weight in shards, a block at a time; in 16 bits they travel as such."""
    if config.mode in ("lora", "probe"):
        raise ConfigError(
            f"train.parallel is fsdp and train.mode is {config.mode}.",
            "Shards pay where every weight learns; low-rank updates and classifiers are small.",
            "Use train.parallel=ddp.",
        )
    if config.compile:
        raise ConfigError(
            "train.parallel is fsdp and train.compile is true.", "Shards are not compiled.", "Use train.parallel=ddp."
        )
    policy = MixedPrecisionPolicy(param_dtype=arithmetic.dtype, reduce_dtype=torch.float32)
    if model.stem.resnet is not None:  # its kernels are standardised before use (arithmetic.py)
        fully_shard(model.stem.resnet, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
    for block in model.encoder.blocks:
        fully_shard(block, mp_policy=policy)
    # Without the last argument the outermost weights stay whole after an evaluation, and the next step would use them.
    fully_shard(model, mp_policy=policy, reshard_after_forward=True)
    return model


def passes_for(single: Single, world: World) -> Passes:
    """As the world and the model need it."""
    if isinstance(single.model, FSDPModule):
        return Shards(single)
    return Copies(single) if world.launched else Passes(single)


@torch.no_grad()
def put(places: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values into places."""
    for name, place in places.items():
        local(place).copy_(local(values[name]))
