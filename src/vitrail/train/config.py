"""What a training run does, as numbers and words. No torch here.

Zero, "none" or an empty text switches a thing off; there are no optional values, so that a run's config.toml can say
everything it was made with.
"""

from __future__ import annotations

from typing import Literal

from vitrail.checks import check_fields
from vitrail.config import Frozen
from vitrail.errors import ConfigError

Mode = Literal["full", "head", "lora", "probe"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]


class TrainConfig(Frozen, frozen=True, kw_only=True):
    """How a model is trained. Defaults fine-tune a pretrained model with AdamW; recipes/ has others."""

    model: str = ""  # where the weights start: a checkpoint, or a name such as Ti/16 for fresh ones
    mode: Mode = "full"  # what learns: everything, the classifier, low-rank updates, a classifier on cached features
    epochs: int = 20
    batch_size: int = 64  # pictures per step, over all devices
    micro_batch: int = 0  # pictures per device at a time; 0: as many of batch_size as memory is predicted to hold
    seed: int = 0

    # the loss
    loss: Literal["cross_entropy", "bce"] = "cross_entropy"  # bce: one yes-or-no per class, for several labels each
    label_smoothing: float = 0.0
    class_weights: Literal["none", "balanced"] = "none"  # balanced: rare classes count as much as frequent ones
    mixup: float = 0.0  # alpha of the beta distribution; 0.2 to 0.8 where it is used
    cutmix: float = 0.0
    mix_chance: float = 1.0  # share of the steps that mix at all

    # the optimiser
    optimizer: Literal["adamw", "sgd"] = "adamw"
    lr: float = 5e-4
    weight_decay: float = 0.05  # not on biases, norms, tokens and positions
    momentum: float = 0.9  # sgd
    betas: tuple[float, float] = (0.9, 0.999)  # adamw
    eps: float = 1e-8
    layer_decay: float = 1.0  # each layer nearer to the picture learns by this factor more slowly
    clip: float = 1.0  # longest gradient; 0: any length
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = 0.05  # below 1: share of all steps; 1 and above: so many steps
    min_lr: float = 0.0  # where the schedule ends, as a share of lr
    ema: float = 0.0  # decay of the weights' moving average, which is then what is evaluated and kept

    # adapters
    lora_rank: int = 8
    lora_alpha: float = 16.0
    lora_layers: tuple[str, ...] = ("attn.qkv", "attn.proj")

    # arithmetic
    device: str = "auto"  # cpu, cuda, cuda:1; auto: a GPU if there is one
    precision: Precision = "auto"  # auto: bf16 where the hardware has it
    compile: bool = False  # by torch.compile: a minute first, and on CPUs little to gain (docs/guide/train.md)
    gradient_checkpointing: bool = False  # a third more time, a fraction of the memory
    parallel: Literal["ddp", "fsdp"] = "ddp"  # under torchrun

    # when to look, keep and stop
    metric: Literal["top1", "loss"] = "top1"  # what the best weights are best in
    patience: int = 0  # epochs without a better result before stopping; 0: never
    checkpoint_every: int = 0  # steps; 0: after every epoch
    checkpoint_minutes: float = 10.0  # and when so much time has passed; 0: not by time
    keep_checkpoints: int = 2
    on_nonfinite: str = "stop"  # stop | skip:K, at most K steps left out | rollback:N, back to a checkpoint N times
    max_bad: float = 0.1  # pictures that may be unreadable: below 1 a share, 1 and above a number
    track: tuple[str, ...] = ()  # dashboards that are told too: tensorboard, wandb
    report: bool = True  # evaluate the best weights at the end: report.html, plots, tables and the model card

    def __post_init__(self) -> None:
        check_fields(self)
        for field in ("epochs", "batch_size", "keep_checkpoints", "lora_rank"):
            _at_least(self, field, 1)
        for field in ("micro_batch", "lr", "weight_decay", "clip", "warmup", "patience", "checkpoint_every", "seed",
                      "mixup", "cutmix", "max_bad", "checkpoint_minutes"):  # fmt: skip
            _at_least(self, field, 0)
        for field in ("label_smoothing", "mix_chance", "ema", "min_lr", "momentum"):
            if not 0 <= getattr(self, field) <= 1:
                raise ConfigError(f"train.{field} is {getattr(self, field)}.", "From 0 to 1.", "")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"train.layer_decay is {self.layer_decay}.", "Above 0, at most 1.", "1 switches it off.")
        if not _is_policy(self.on_nonfinite):
            raise ConfigError(
                f"train.on_nonfinite is {self.on_nonfinite!r}.",
                "What to do when a loss is not a number.",
                "One of: stop, skip:3, rollback:2.",
            )

    @property
    def mixes(self) -> bool:
        """Whether pictures are ever mixed with one another."""
        return self.mix_chance > 0 and (self.mixup > 0 or self.cutmix > 0)


class DataConfig(Frozen, frozen=True, kw_only=True):
    """Where the pictures are and how they are read. What is done to training pictures is `augment`."""

    path: str = ""
    workers: int = -1  # threads that read pictures ahead; 0: none; -1: one per processor. Never changes a result
    val_share: float = 0.1  # held out of data that has no val split, the same share of every class
    labels_split: str = ""  # several labels per picture, separated by this, as in "cat|dog"; needs train.loss=bce
    depth: Literal[8, 16] = 8  # bits kept of every channel
    background: Literal["white", "black"] = "white"  # under transparent pixels

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.val_share < 1:
            raise ConfigError(f"data.val_share is {self.val_share}.", "At least 0, below 1.", "")
        if self.workers < -1:
            raise ConfigError(f"data.workers is {self.workers}.", "-1 (one per processor), 0 or more.", "")


def nonfinite_policy(text: str) -> tuple[str, int]:
    """`skip:3` as what to do and how often; stop is never done twice."""
    name, _, count = text.partition(":")
    return name, int(count or 0)


def _is_policy(text: str) -> bool:
    name, colon, count = text.partition(":")
    return text == "stop" or (name in ("skip", "rollback") and colon == ":" and count.isdecimal() and int(count) > 0)


def _at_least(config: TrainConfig, field: str, least: float) -> None:
    if getattr(config, field) < least:
        raise ConfigError(f"train.{field} is {getattr(config, field)}.", f"{least} or more.", "")
