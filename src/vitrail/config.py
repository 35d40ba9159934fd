"""What a model is, as numbers and words. No torch here: a config can be read, checked and printed anywhere.

Field names follow Hugging Face's ViTConfig where it has the field; the comments say what the others mean.
A config that exists is a config that works: everything is checked before a tensor is made.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from vitrail.checks import PAIRS as PAIRS
from vitrail.checks import as_pair as as_pair
from vitrail.checks import (
    check_fields,
    check_heads_divide,
    check_kept_heads,
    check_numbers,
    check_pictures,
    check_tokens,
    require,
)
from vitrail.checks import literal_values as literal_values
from vitrail.errors import ConfigError, did_you_mean

Pair = tuple[int, int]
Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu"]
Resampling = Literal["google", "hf", "timm", "torchvision"]
Initializer = Literal["google", "big_vision", "hf", "timm", "timm_jax", "timm_jax_nlhb", "moco", "torchvision"]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strict, immutable record."""


class ResNetStem(Frozen, frozen=True, kw_only=True):
    """The hybrid's convolutional stem: ResNetV2 with weight standardisation and group norm."""

    layers: tuple[int, ...] = (3, 4, 9)  # bottleneck units per stage; () is the root alone (R+Ti/16)
    width: int = 64  # channels of the root; stage s puts out width * 4 * 2**s
    # The numeric conventions below differ between ports of the same weights (docs/formats.md).
    group_norm_eps: float = 1e-6  # Google and jeonsworld 1e-6, timm and HF 1e-5
    standardization: Literal["std_plus", "var_plus"] = "std_plus"  # (w-m)/(std+eps) | (w-m)/sqrt(var+eps)
    standardization_eps: float = 1e-5  # Google std+1e-5, timm var+1e-8, jeonsworld var+1e-5
    padding: Literal["same", "symmetric"] = "same"  # TensorFlow SAME | torch's symmetric, pool unpadded
    shortcut_groups: Literal["grouped", "per_channel"] = "grouped"  # jeonsworld norms each shortcut channel

    def __post_init__(self) -> None:
        check_fields(self)
        require(self, "layers", lambda layers: all(units >= 1 for units in layers), "1 unit or more per stage")
        require(self, "width", lambda width: width >= 1, "1 or more")
        if self.width % 32:
            raise ConfigError(
                f"The hybrid stem is {self.width} channels wide.",
                "Group norm splits channels into 32 groups, so the width is a multiple of 32.",
                f"Use resnet.width={max(32, round(self.width / 32) * 32)}.",
            )

    @property
    def channels(self) -> int:
        """Channels of the last feature map."""
        return self.width * 4 * 2 ** (len(self.layers) - 1) if self.layers else self.width

    def grid(self, size: Pair) -> Pair:
        """Rows and columns of the last feature map for an image of this size."""
        return self.along(size[0]), self.along(size[1])

    def along(self, pixels: int) -> int:
        """Cells of the last feature map along an axis of so many pixels."""
        root = -(-pixels // 2)
        # SAME pooling rounds up; jeonsworld pools 3 by 3 without padding (112 -> 55 where Google has 56).
        pooled = -(-root // 2) if self.padding == "same" else (root - 3) // 2 + 1
        for _ in self.layers[1:]:
            pooled = -(-pooled // 2)
        return pooled


class ViTConfig(Frozen, frozen=True, kw_only=True):
    """A Vision Transformer, plain or hybrid. Defaults are ViT-B/16."""

    image_size: Pair = (224, 224)  # pixels, rows then columns; an int is taken for a square
    patch_size: Pair = (16, 16)  # of the image, or of the stem's feature map in a hybrid
    num_channels: int = 3
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    num_classes: int = 1000  # 0: no classifier, the model returns the pooled features

    # stem
    resnet: ResNetStem | None = None  # None: patches straight from pixels
    ragged_edge: Literal["refuse", "crop"] = "refuse"  # pixels beyond the last whole patch; SigLIP So400m/14 crops
    patch_bias: bool = True  # CLIP's patch projection has none
    pre_norm: bool = False  # CLIP: a LayerNorm between the tokens and the first block

    # tokens; their order is class, distillation, registers, patches
    class_token: bool = True
    distillation_token: bool = False  # DeiT
    num_register_tokens: int = 0
    position: Literal["learned", "sincos", "rotary", "none"] = "learned"
    position_covers: Literal["all", "class", "patches"] = "class"  # which tokens the table has rows for
    position_grid: Pair | None = None  # the grid the table was learnt on; None: the image's own
    position_resampling: Resampling = "hf"  # how the table follows a picture of another size
    rotary_base: float = 100.0

    # block
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    kept_heads: tuple[tuple[int, ...], ...] | None = None  # per layer, by original number; None: all
    qkv_bias: bool = True
    key_bias: bool = True  # False: queries and values have a bias, keys have none (DINOv3)
    qk_norm: bool = False
    mlp: Literal["dense", "swiglu"] = "dense"
    hidden_act: Activation = "gelu"  # gelu is the exact erf form; Google's checkpoints use gelu_tanh
    layer_norm_eps: float = 1e-6
    layer_scale: float | None = None  # initial value of LayerScale; None: no LayerScale

    # regularisation, active in training only
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    drop_path_rate: float = 0.0  # of the last block; grows linearly from zero at the first

    # head
    pooling: Literal["token", "mean", "map", "token_and_mean"] = "token"
    final_norm: Literal["tokens", "pooled"] = "tokens"  # before pooling | after it (timm's fc_norm)
    representation_size: int | None = None  # Google's pre_logits, HF's pooler: dense + tanh before the classifier
    representation_act: Literal["tanh", Activation] = "tanh"  # in an MLP head of one's own often gelu or relu

    # initial values
    initializer: Initializer = "google"
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        check_fields(self)
        check_numbers(self)
        if self.head_dim is None:
            check_heads_divide(self)
            msgspec.structs.force_setattr(self, "head_dim", self.hidden_size // self.num_attention_heads)
        check_kept_heads(self)
        self.grid_for(self.image_size)
        check_tokens(self)

    @property
    def grid(self) -> Pair:
        """Patch rows and columns for an image of the model's own size."""
        return self.grid_for(self.image_size)

    @property
    def table_grid(self) -> Pair:
        """The grid the position table has rows for."""
        return self.position_grid or self.grid

    @property
    def prefix_tokens(self) -> int:
        """Tokens before the first patch."""
        return self.class_token + self.distillation_token + self.num_register_tokens

    @property
    def positioned_prefix(self) -> int:
        """How many of the prefix tokens the position table covers."""
        covered = {"all": self.prefix_tokens, "class": self.class_token + self.distillation_token, "patches": 0}
        return covered[self.position_covers]

    def heads_in(self, layer: int) -> tuple[int, ...]:
        """The heads layer `layer` still has, by the numbers they were born with."""
        return tuple(range(self.num_attention_heads)) if self.kept_heads is None else self.kept_heads[layer]

    def grid_for(self, size: Pair) -> Pair:
        """Patch rows and columns for an image of `size`; an error that names the nearest sizes if it has none."""
        rows, cols = (self._patches_along(axis, size[axis]) for axis in (0, 1))
        if rows is None or cols is None:
            heights, widths = (self._nearest(axis, size[axis]) for axis in (0, 1))
            raise ConfigError(
                f"An image of {size[0]} x {size[1]} pixels does not divide into patches of "
                f"{self.patch_size[0]} x {self.patch_size[1]}{' feature-map cells' if self.resnet else ''}.",
                f"The model cuts every {self.stride[0]} rows and every {self.stride[1]} columns of pixels.",
                f"Resize to a height of {heights} and a width of {widths}.",
            )
        return rows, cols

    def _patches_along(self, axis: int, pixels: int) -> int | None:
        """Whole patches along an axis; None where they do not come out even, or at all."""
        cells = self.resnet.along(pixels) if self.resnet else pixels
        patches, rest = divmod(max(cells, 0), self.patch_size[axis])
        return None if patches == 0 or (rest and self.ragged_edge == "refuse") else patches

    def _nearest(self, axis: int, pixels: int) -> str:
        reach = range(2 * self.stride[axis] + 8)
        sizes = ((size for size in (pixels + sign * step for step in reach) if size > 0) for sign in (-1, 1))
        fitting = [next((size for size in side if self._patches_along(axis, size)), None) for side in sizes]
        return " or ".join(str(size) for size in dict.fromkeys(fitting) if size)

    @property
    def stride(self) -> Pair:
        """Pixels between neighbouring patches."""
        stem = 4 * 2 ** max(len(self.resnet.layers) - 1, 0) if self.resnet else 1
        return self.patch_size[0] * stem, self.patch_size[1] * stem


class Preprocess(Frozen, frozen=True, kw_only=True):
    """How a picture becomes the model's input. Part of the model: it is saved, loaded and checked with it."""

    size: Pair = (224, 224)  # what the model receives
    resize: int | Pair | None = (224, 224)  # int: the shorter side; pair: exactly, aspect ratio lost; None: as it is
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = "bilinear"
    center_crop: bool = False
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        check_fields(self)
        check_pictures(self)


Record = TypeVar("Record", bound=Frozen)


def build(kind: type[Record], fields: dict[str, Any]) -> Record:
    """A checked record from plain values, as they come from TOML, JSON or keyword arguments."""
    unknown = set(fields) - set(kind.__struct_fields__)
    if unknown:
        word = min(unknown)
        raise ConfigError(
            f"{kind.__name__} has no field {word!r}.",
            did_you_mean(word, kind.__struct_fields__),
            "Every field is listed in docs/guide/config.md.",
        )
    return kind(**fields)


def replace(config: Record, **changes: Any) -> Record:
    """The same record with some fields changed, checked again."""
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    if isinstance(config, ViTConfig) and config.head_dim == config.hidden_size / config.num_attention_heads:
        fields["head_dim"] = None  # it was derived from sizes that may now change
    return build(type(config), fields | changes)
