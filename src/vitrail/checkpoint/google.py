"""Google's .npz files: google-research/vision_transformer and big_vision.

The published files carry the numbering of flax before linen (LayerNorm_2, MlpBlock_3) and group norms shaped
1 x 1 x 1 x C; what today's code writes has linen's numbering. big_vision adds the position table at the root (before
2022: in the encoder) without a row for the class token, all layers stacked into one tensor ("scan"), and the MAP head.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from vitrail.checkpoint.rules import Rule, Table, pairs

PREFIXES = ("", "opt/target/", "target/", "params/", "params/img/", "img/")
LINEAR = (("/kernel", ".weight", "transpose"), ("/bias", ".bias", "same"))
CONV = (("/kernel", ".weight", "hwio"), ("/bias", ".bias", "same"))
KERNEL = (("/kernel", ".weight", "hwio"),)
NORM = (("/scale", ".weight", "same"), ("/bias", ".bias", "same"))
NORM_4D = (("/scale", ".weight", "channels"), ("/bias", ".bias", "channels"))

# names within a block, by numbering
PUBLISHED = {"norm2": "LayerNorm_2", "attn": "MultiHeadDotProductAttention_1", "mlp": "MlpBlock_3"}
LINEN = {"norm2": "LayerNorm_1", "attn": "MultiHeadDotProductAttention_0", "mlp": "MlpBlock_0"}

POSITIONS = {  # where the position table lies
    "Transformer/posembed_input/pos_embedding": "",
    "pos_embedding": "position table at the root",
    "Transformer/pos_embedding": "position table in the encoder",
}

# kept out of a model: what training leaves in a file, and the text half of a two-tower model
IGNORED = (
    ("opt/state/{any}", "optimizer state"),
    ("state/{any}", "optimizer state"),
    ("opt/{n}/{any}", "optimizer state"),
    ("opt/inner_states/{any}", "optimizer state"),
    ("step", "training step"),
    ("params/txt/{any}", "text tower"),
    ("txt/{any}", "text tower"),
    ("params/t", "temperature of the image-text loss"),
    ("params/b", "bias of the image-text loss"),
)


def attention(theirs: str, ours: str, row: str = "") -> Iterator[Rule]:
    """Separate query, key and value kernels, split into heads, as one linear map."""
    three = ("query", "key", "value")
    yield Rule(tuple(f"{theirs}/{name}/kernel{row}" for name in three), f"{ours}.qkv.weight", "heads_in")
    yield Rule(tuple(f"{theirs}/{name}/bias{row}" for name in three), f"{ours}.qkv.bias", "heads_bias")
    yield Rule((f"{theirs}/out/kernel{row}",), f"{ours}.proj.weight", "heads_out")
    yield Rule((f"{theirs}/out/bias{row}",), f"{ours}.proj.bias")


def block(names: dict[str, str], scanned: bool) -> Iterator[Rule]:
    """One encoder block, or the stack of all of them."""
    theirs = "~Transformer/encoderblock" if scanned else "~Transformer/encoderblock_{i}"
    row, ours = "[{i}]" if scanned else "", "encoder.blocks.{i}"
    linear, norm = (tuple((leaf + row, name, how) for leaf, name, how in leaves) for leaves in (LINEAR, NORM))
    yield from pairs(f"{theirs}/LayerNorm_0", f"{ours}.norm1", norm)
    yield from attention(f"{theirs}/{names['attn']}", f"{ours}.attn", row)
    yield from pairs(f"{theirs}/{names['norm2']}", f"{ours}.norm2", norm)
    yield from pairs(f"{theirs}/{names['mlp']}/Dense_0", f"{ours}.mlp.fc1", linear)
    yield from pairs(f"{theirs}/{names['mlp']}/Dense_1", f"{ours}.mlp.fc2", linear)


def resnet(norm: tuple[tuple[str, str, str], ...]) -> Iterator[Rule]:
    """The hybrid's stem; stages and units count from one."""
    yield from pairs("~conv_root", "stem.resnet.root", KERNEL)
    yield from pairs("~gn_root", "stem.resnet.root_norm", norm)
    theirs, ours = "~block{s+1}/unit{u+1}", "stem.resnet.stages.{s}.{u}"
    for part in ("1", "2", "3", "_proj"):
        yield from pairs(f"{theirs}/conv{part}", f"{ours}.conv{part}", KERNEL)
        yield from pairs(f"{theirs}/gn{part}", f"{ours}.norm{part}", norm)


def head() -> Iterator[Rule]:
    """MAP pooling, pre-logits, classifier."""
    theirs, ours = "~MAPHead_0", "head.pool"
    yield Rule((f"{theirs}/probe",), f"{ours}.query")
    yield from attention(f"{theirs}/MultiHeadDotProductAttention_0", ours)
    yield from pairs(f"{theirs}/LayerNorm_0", f"{ours}.norm", NORM)
    yield from pairs(f"{theirs}/MlpBlock_0/Dense_0", f"{ours}.mlp.fc1", LINEAR)
    yield from pairs(f"{theirs}/MlpBlock_0/Dense_1", f"{ours}.mlp.fc2", LINEAR)
    yield from pairs("~pre_logits", "head.representation", LINEAR)
    yield from pairs("~head", "head.classifier", LINEAR)


def table(numbering: str, position: str, scanned: bool, norm_4d: bool) -> Table:
    """One of the ways in which such a file may be written."""
    names = PUBLISHED if numbering == "published" else LINEN
    words = [f"{numbering} numbering"]
    words += ["stacked layers"] if scanned else []
    words += [POSITIONS[position]] if POSITIONS[position] else []
    words += ["flat group norms"] if not norm_4d else []
    rules = (
        Rule(("~cls",), "tokens.class_token"),
        Rule((f"~{position}",), "tokens.position.table"),
        *pairs("~embedding", "stem.proj", CONV),
        *resnet(NORM_4D if norm_4d else NORM),
        *block(names, scanned),
        *pairs("~Transformer/encoder_norm", "encoder.norm", NORM),
        *head(),
    )
    covers = ("patches", "class") if position == "pos_embedding" else ("class", "patches")
    return Table(
        name=f"google ({', '.join(words)})",
        rules=rules,
        prefixes=PREFIXES,
        ignored=IGNORED,
        covers=covers,
        may_compute_positions=numbering == "linen",  # big_vision, models/vit.py: posemb="sincos2d" stores nothing
    )


# The first is how vitrail writes a file whose origin was not Google.
TABLES = tuple(
    table(numbering, position, scanned, norm_4d)
    for scanned, position, numbering, norm_4d in product(
        (False, True),
        POSITIONS,
        ("published", "linen"),
        (True, False),
    )
)
BIG_VISION = next(table for table in TABLES if table.name == "google (linen numbering, position table at the root)")
