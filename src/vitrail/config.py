"""What a model is, as numbers and words. No torch here: a config can be read, checked and printed anywhere.

Field names follow Hugging Face's ViTConfig where it has the field; the comments say what the others mean.
A config that exists is a config that works: everything is checked before a tensor is made.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from vitrail.errors import ConfigError, did_you_mean

Pair = tuple[int, int]
PAIRS = ("image_size", "patch_size")  # fields where an int stands for a square
Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu"]
Resampling = Literal["google", "hf", "timm", "torchvision"]
Initializer = Literal[
    "google", "big_vision", "hf", "hf_normal", "timm", "timm_jax", "timm_jax_nlhb", "moco", "torchvision"
]


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
        return self._along(size[0]), self._along(size[1])

    def _along(self, pixels: int) -> int:
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

    # initial values
    initializer: Initializer = "google"
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in PAIRS:
            msgspec.structs.force_setattr(self, field, as_pair(getattr(self, field)))
        _check_counts(self)
        if self.head_dim is None:
            _check_heads_divide(self)
            msgspec.structs.force_setattr(self, "head_dim", self.hidden_size // self.num_attention_heads)
        _check_kept_heads(self)
        self.grid_for(self.image_size)
        _check_tokens(self)

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
        rows, cols = self.resnet.grid(size) if self.resnet else size
        patch_rows, patch_cols = self.patch_size
        ragged = (rows % patch_rows or cols % patch_cols) and self.ragged_edge == "refuse"
        if rows < patch_rows or cols < patch_cols or ragged:
            raise ConfigError(
                f"An image of {size[0]} x {size[1]} pixels does not divide into patches of "
                f"{patch_rows} x {patch_cols}{' feature-map cells' if self.resnet else ''}.",
                f"Height must be a multiple of {self.stride[0]}, width of {self.stride[1]}.",
                f"Resize to a height of {_nearest(size[0], self.stride[0])} and "
                f"a width of {_nearest(size[1], self.stride[1])}.",
            )
        return rows // patch_rows, cols // patch_cols

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


Record = TypeVar("Record", bound=Frozen)


def as_pair(size: Any) -> Any:
    """An int is a square; anything else is left for the type check."""
    return (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, list) else size


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
    fields = {name: as_pair(value) if name in PAIRS else value for name, value in fields.items()}
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(*_explain(kind, fields, str(error))) from None


def replace(config: Record, **changes: Any) -> Record:
    """The same record with some fields changed, checked again."""
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    if isinstance(config, ViTConfig) and {"hidden_size", "num_attention_heads"} & set(changes):
        fields["head_dim"] = None  # it was derived from the sizes that now change
    return build(type(config), fields | changes)


def _explain(kind: type[Frozen], fields: dict[str, Any], message: str) -> tuple[str, str, str]:
    what, _, where = message.partition(" - at `$.")
    field = where.rstrip("`").split("[")[0].split(".")[0]
    if field not in fields:
        return f"{kind.__name__}: {message}.", "", ""
    allowed = literal_values(kind, field)
    if allowed and isinstance(fields[field], str):
        return f"{field} is {fields[field]!r}.", did_you_mean(fields[field], allowed), f"One of: {', '.join(allowed)}."
    return f"{field} is {fields[field]!r}.", f"{what}.", f"Set {field} to such a value."


def literal_values(kind: type[Frozen], field: str) -> tuple[str, ...]:
    """The words a field accepts, or none where it takes something else."""
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    annotation = next(f.type for f in described.fields if f.name == field)
    return tuple(map(str, annotation.values)) if isinstance(annotation, msgspec.inspect.LiteralType) else ()


def _nearest(pixels: int, stride: int) -> str:
    below, above = pixels // stride * stride, -(-pixels // stride) * stride
    return str(pixels) if below == above and below else " or ".join(str(size) for size in (below, above) if size)


def _check_counts(config: ViTConfig) -> None:
    at_least_one = ("num_channels", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    for field in at_least_one:
        if getattr(config, field) < 1:
            raise ConfigError(f"{field} is {getattr(config, field)}.", "It counts something: 1 or more.", "")
    for field in PAIRS:
        if len(getattr(config, field)) != 2 or min(getattr(config, field)) < 1:
            raise ConfigError(f"{field} is {getattr(config, field)}.", "An int or (rows, columns), 1 or more.", "")
    for field in ("num_classes", "num_register_tokens"):
        if getattr(config, field) < 0:
            raise ConfigError(f"{field} is {getattr(config, field)}.", "It counts something: 0 or more.", "")
    for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate"):
        if not 0 <= getattr(config, field) < 1:
            raise ConfigError(f"{field} is {getattr(config, field)}.", "A probability: at least 0, below 1.", "")


def _check_heads_divide(config: ViTConfig) -> None:
    hidden, heads = config.hidden_size, config.num_attention_heads
    if hidden % heads:
        fits = [n for n in range(1, hidden + 1) if hidden % n == 0]
        near = sorted(sorted(fits, key=lambda n: abs(n - heads))[:3])
        raise ConfigError(
            f"hidden_size {hidden} does not divide into {heads} attention heads.",
            "Each head works on hidden_size / num_attention_heads numbers.",
            f"Use {', '.join(map(str, near))} heads, hidden_size {hidden // heads * heads or heads} or "
            f"{(hidden // heads + 1) * heads}, or set head_dim.",
        )


def _check_kept_heads(config: ViTConfig) -> None:
    if config.kept_heads is None:
        return
    if len(config.kept_heads) != config.num_hidden_layers:
        raise ConfigError(
            f"kept_heads lists {len(config.kept_heads)} layers.",
            f"The model has {config.num_hidden_layers}.",
            "Give one list per layer; () removes all heads of a layer.",
        )
    for layer, heads in enumerate(config.kept_heads):
        if list(heads) != sorted(set(heads)) or any(not 0 <= h < config.num_attention_heads for h in heads):
            raise ConfigError(
                f"kept_heads[{layer}] is {list(heads)}.",
                f"Different numbers from 0 to {config.num_attention_heads - 1}, ascending.",
                "Heads keep the numbers they had before pruning.",
            )


def _check_tokens(config: ViTConfig) -> None:
    if config.pooling in ("token", "token_and_mean") and not config.class_token:
        raise ConfigError(
            f"pooling is {config.pooling!r}, but the model has no class token.",
            "Token pooling reads the class token.",
            "Use pooling='mean' or 'map', or class_token=True.",
        )
    if config.distillation_token and (config.pooling != "token" or not config.class_token):
        raise ConfigError(
            "There is a distillation token without a class token read by the head.",
            "DeiT averages a class-token and a distillation-token classifier.",
            "Use class_token=True and pooling='token', or distillation_token=False.",
        )
    if config.position == "sincos" and config.hidden_size % 4:
        raise ConfigError(
            f"hidden_size {config.hidden_size} cannot hold a sin-cos table.",
            "Sine and cosine of rows and of columns: a multiple of 4.",
            "Use position='learned' or another hidden_size.",
        )
    if config.position == "rotary" and config.head_dim and config.head_dim % 4:
        raise ConfigError(
            f"head_dim {config.head_dim} cannot be rotated.",
            "Rotary positions turn pairs, for rows and for columns: a multiple of 4.",
            "Change num_attention_heads or head_dim.",
        )
