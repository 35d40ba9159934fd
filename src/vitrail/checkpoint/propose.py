"""A draft of rules for names nobody has seen: from the words in a key and the shape behind it.

The draft is a TOML file for `convert --rules`. Every line that rests on a guess says so; what could not be placed is
listed at the end. Nothing is loaded by a draft: a person reads it, corrects it, and uses it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isqrt, prod
from typing import Any

from torch import Tensor

from vitrail.checkpoint.shapes import square

BLOCK = "encoder.blocks.{i}."
QUERY, KEY, VALUE = {"q", "query", "queries", "wq"}, {"k", "key", "keys", "wk"}, {"v", "value", "values", "wv"}
PACKED, ATTENTION = {"qkv", "kqv", "in"}, {"attn", "attention", "att", "mha", "mhsa", "msa", "sa", "self"}
OUT = {"out", "o", "wo", "output", "proj", "projection", "dense", "unify", "unifyheads", "c"}
MLP = {"mlp", "ff", "ffn", "feed", "feedforward", "fc", "fc1", "fc2", "linear1", "linear2", "net"}
SCALE = {"gamma", "ls", "ls1", "ls2", "layerscale", "lambda1"}
TORCHS_LAYER = {"linear1", "weight"}  # torch.nn.TransformerEncoderLayer
NORM_FIRST = "read as norm_first=True; torch's default norms after adding, which is another model than any here"
LEADING = {1: "token", 2: "rows", 3: "same"}  # how a token with so many axes becomes one with three
HEAD = {"head", "heads", "classifier", "fc", "mlp_head", "classification", "cls_head", "logits", "output"}


@dataclass
class Draft:
    """Rows found so far, config fields, doubts, and the keys nobody has claimed yet."""

    shapes: dict[str, tuple[int, ...]]
    rows: list[tuple[list[str], str, str, str]] = field(default_factory=list)  # theirs, ours, how, doubt
    config: dict[str, Any] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)  # config field: why it is uncertain

    def claim(self, theirs: list[str], ours: str, how: str = "same", doubt: str = "") -> None:
        """One row; its keys are spoken for."""
        self.rows.append((theirs, ours, how, doubt))
        for key in theirs:
            self.shapes.pop(key, None)

    def layer(self, weights: list[str], ours: str, how: str = "same", doubt: str = "") -> None:
        """Weights that make one layer of ours, and their biases where they have them."""
        biases = [bias_of(weight) for weight in weights]
        self.claim(weights, f"{ours}.weight", "transpose" if how == "same" and _is_flax(weights[0]) else how, doubt)
        if all(bias in self.shapes for bias in biases):
            self.claim(biases, f"{ours}.bias", doubt=doubt)


def propose_rules(tensors: Mapping[str, Tensor]) -> str:
    """A TOML draft of rules for these tensors (shapes suffice)."""
    stack = _stack(tensors)
    shapes = {re.sub(stack, r"\1{i}.", key) if stack else key: tuple(tensor.shape) for key, tensor in tensors.items()}
    draft = Draft(shapes)
    width = _width(draft)
    _block(draft, width)
    _stem(draft, width)
    _tokens(draft, width)
    _head(draft, width)
    _config(draft, width)
    return _toml(draft)


def _stack(tensors: Mapping[str, Tensor]) -> str | None:
    """The part of the keys that counts blocks, as a pattern: most tensors stand behind it."""
    starts = Counter(match[1] for key in tensors if (match := re.match(r"(.*?)(\d+)\.", key)))
    if not starts:
        return None
    return rf"^({re.escape(starts.most_common(1)[0][0])})(\d+)\."


def _width(draft: Draft) -> int:
    sizes = Counter(shape[0] for key, shape in draft.shapes.items() if len(shape) == 1 and "{i}" in key)
    return sizes.most_common(1)[0][0] if sizes else 0


def words(key: str) -> set[str]:
    """The words of a key, in small letters: self_attn.in_proj_weight has self, attn, in, proj, weight."""
    parts = re.split(r"[._/]", key.replace("{i}", ""))
    return {part.lower() for part in parts} | {re.sub(r"\d+$", "", part.lower()) for part in parts}


def bias_of(weight: str) -> str:
    """The name a weight's bias has."""
    return re.sub(r"(weight|kernel|scale)$", "bias", weight)


def _is_flax(weight: str) -> bool:
    return weight.endswith("kernel")


def _matrices(draft: Draft, inside: bool) -> list[tuple[str, tuple[int, int]]]:
    """(key, (out, in)) of every matrix, in file order."""
    found = []
    for key, shape in draft.shapes.items():
        if len(shape) == 2 and ("{i}" in key) == inside:
            found.append((key, (shape[1], shape[0]) if _is_flax(key) else (shape[0], shape[1])))
    return found


def _vectors(draft: Draft, width: int, inside: bool) -> list[str]:
    """Vectors of the model's width that are no bias."""
    return [
        key
        for key, shape in draft.shapes.items()
        if shape == (width,) and ("{i}" in key) == inside and not key.endswith("bias")
    ]


def _block(draft: Draft, width: int) -> None:
    torchs_own = any(words(key) >= TORCHS_LAYER for key in draft.shapes)
    inner = _attention(draft, width)
    pair, doubt = _mlp(_matrices(draft, inside=True), width)
    for key, name in zip(pair, ("fc1", "fc2"), strict=False):
        draft.layer([key], f"{BLOCK}mlp.{name}", doubt=doubt)
    for number, key in enumerate([key for key in _vectors(draft, width, inside=True) if words(key) & SCALE]):
        draft.claim([key], f"{BLOCK}scale{number + 1}", doubt="taken for LayerScale by its name")
    norms = _vectors(draft, width, inside=True)
    late = {key: bool(words(key) & MLP) or bool(re.search(r"2\D*$", key)) for key in norms}
    norms.sort(key=lambda key: late[key])
    certain = len(norms) == 2 and [late[key] for key in norms] == [False, True]
    for number, key in enumerate(norms[:2]):
        doubt = NORM_FIRST if torchs_own else "" if certain else "told apart only by its place in the file"
        draft.layer([key], f"{BLOCK}norm{number + 1}", doubt=doubt)
    if inner:
        draft.config["head_dim_times_heads"] = inner


def _mlp(matrices: list[tuple[str, tuple[int, int]]], width: int) -> tuple[list[str], str]:
    """The two matrices of the MLP, told by fitting into each other."""
    wide = [(key, out) for key, (out, columns) in matrices if columns == width != out]
    for gates in (1, 2):
        for first, out in wide:
            fits = [key for key, shape in matrices if out % gates == 0 and shape == (width, out // gates)]
            if fits:
                return [first, fits[0]], "half as many columns: taken for SwiGLU, gate first" if gates == 2 else ""
    named = [key for key, shape in matrices if shape == (width, width) and words(key) & MLP]
    return named[:2], "both matrices are square: they may be the other way round"


def _attention(draft: Draft, width: int) -> int:
    """Queries, keys, values and the projection after them; returns how wide the heads are together."""
    inside, inner = _matrices(draft, inside=True), 0
    for key, (out, columns) in inside:
        if columns == width and out % 3 == 0 and words(key) & PACKED and not words(key) & {"out"}:
            kqv = "the name says k, q, v: check the order of the thirds" if "kqv" in words(key) else ""
            draft.layer([key], f"{BLOCK}attn.qkv", doubt=kqv or "rows taken for all q, then all k, then all v")
            inner = out // 3
    three = [next((key for key, _ in inside if words(key) & names), None) for names in (QUERY, KEY, VALUE)]
    if not inner and all(three) and len(set(three)) == 3:
        draft.layer([str(key) for key in three], f"{BLOCK}attn.qkv")
        inner = dict(inside)[str(three[0])][0]
    for key, shape in _matrices(draft, inside=True):
        if inner and shape == (width, inner) and words(key) & OUT and not words(key) & (MLP - {"net"}):
            draft.layer([key], f"{BLOCK}attn.proj", doubt="" if words(key) & ATTENTION else "told by its name")
            break
    return inner


def _stem(draft: Draft, width: int) -> None:
    for key, shape in list(draft.shapes.items()):
        if len(shape) == 4 and width in (shape[0], shape[3]):
            flax = _is_flax(key)
            draft.layer([key], "stem.proj", "hwio" if flax else "same")
            return
    for key, (out, columns) in _matrices(draft, inside=False):
        if (
            out == width
            and (columns != width or words(key) & {"patch", "embedding", "embed"})
            and not words(key) & HEAD
        ):
            order = "patch_hwc" if "to_patch" in key else "patch_chw"  # lucidrains flattens by einops, others unfold
            how = f"transpose | {order}" if _is_flax(key) else order
            doubt = "patch_chw: flattened colours first (unfold); patch_hwc: colours last (einops' p1 p2 c)"
            draft.layer([key], "stem.proj", how, doubt)
            channels = next((c for c in (3, 1, 4) if columns % c == 0 and isqrt(columns // c) ** 2 == columns // c), 3)
            draft.config |= {"num_channels": channels, "patch_size": isqrt(columns // channels)}
            draft.doubts |= {"patch_size": f"{columns} columns could be other patches, or other channels"}
            return


def _tokens(draft: Draft, width: int) -> None:
    """Tokens and positions, by their names; what has no such name, by its shape."""
    outside = [key for key, shape in draft.shapes.items() if shape[-1:] == (width,) and "{i}" not in key]
    for key in outside:
        shape, named = draft.shapes[key], words(key)
        if named & {"pos", "position", "positional", "positions"} and len(shape) > 1:
            draft.claim([key], "tokens.position.table", {2: "rows", 3: "same", 4: "grid"}[len(shape)])
        elif named & {"cls", "class", "clstoken"} and prod(shape) == width:
            draft.claim([key], "tokens.class_token", LEADING[len(shape)])
        elif named & {"reg", "register", "registers"} and len(shape) == 3:
            draft.claim([key], "tokens.register_tokens")
    ours, doubt = {row[1] for row in draft.rows}, "told by its shape alone"
    for key in outside:
        shape = draft.shapes.get(key, ())
        rows = prod(shape) // width if shape else 0
        table = len(shape) in (2, 3) and rows > 1 and (square(rows) or square(rows - 1))
        if table and "tokens.position.table" not in ours and not words(key) & HEAD and not key.endswith("weight"):
            draft.claim([key], "tokens.position.table", {2: "rows", 3: "same"}[len(shape)], doubt)
        elif rows == 1 and "tokens.class_token" not in ours and not key.endswith(("weight", "bias", "scale")):
            draft.claim([key], "tokens.class_token", LEADING[len(shape)], doubt)
        ours = {row[1] for row in draft.rows}


def _head(draft: Draft, width: int) -> None:
    matrices = _matrices(draft, inside=False)
    last = [key for key, (_, columns) in matrices if columns == width]
    if len(last) == 1 and len(matrices) > 1:
        hidden = dict(matrices)[last[0]][0]
        behind = [key for key, (_, columns) in matrices if columns == hidden and key != last[0]]
        if behind:
            draft.layer(
                last, "head.representation", doubt="an MLP head: a dense layer and a bend before the classifier"
            )
            draft.config["representation_act"] = "gelu"
            draft.doubts["representation_act"] = "tanh, relu and silu have the same tensors"
            last = behind
    if last:
        draft.layer([last[-1]], "head.classifier")
    norms = [key for key in _vectors(draft, width, inside=False) if bias_of(key) in draft.shapes]
    before = [key for key in norms if words(key) & {"pre", "norm_pre"}]
    for key in before[:1]:
        draft.layer([key], "tokens.norm", doubt="taken for a norm before the first block by its name")
    norms = [key for key in norms if key not in before]
    for key in norms[:1]:
        in_head = bool(words(key) & HEAD)
        doubt = "a norm in the head: read as the norm after pooling" if in_head else ""
        draft.layer([key], "head.norm" if in_head else "encoder.norm", doubt=doubt)


def _config(draft: Draft, width: int) -> None:
    inner = draft.config.pop("head_dim_times_heads", width)
    heads = [count for count in range(1, 33) if inner and inner % count == 0]
    draft.doubts["num_attention_heads"] = f"{inner} columns divide into {', '.join(map(str, heads))}"
    draft.config["num_attention_heads"] = next((inner // d for d in (64, 32, 16, 8) if inner % d == 0), 1)
    draft.config |= {"layer_norm_eps": 1e-5, "hidden_act": "gelu"}
    draft.doubts |= {
        "layer_norm_eps": "torch's default; 1e-6 in Google's, timm's and torchvision's models",
        "hidden_act": "gelu_tanh, quick_gelu, relu and silu have the same tensors",
    }
    ours = [row[1] for row in draft.rows]
    draft.config["pooling"] = "token" if "tokens.class_token" in ours else "mean"
    draft.doubts["pooling"] = "the classifier may read the class token, or the mean of the patches"


def _toml(draft: Draft) -> str:
    return "\n".join([*_head_lines(draft), *_row_lines(draft), *_left_lines(draft), ""])


def _head_lines(draft: Draft) -> Iterator[str]:
    yield "# Rules drafted by vitrail from names and shapes. Lines marked UNSURE are guesses: check them."
    yield "# The language: docs/formats.md. Use: vitrail convert --rules THIS.toml SOURCE TARGET"
    yield 'name = "drafted rules"'
    ours = {row[1] for row in draft.rows}
    given = [
        key for key in (f"{BLOCK}attn.proj.bias", f"{BLOCK}mlp.fc1.bias", f"{BLOCK}mlp.fc2.bias") if key not in ours
    ]
    given = [key for key in given if key.replace("bias", "weight") in ours]
    if "head.classifier.weight" in ours and "head.classifier.bias" not in ours:
        given.append("head.classifier.bias")
    if given:
        yield f"zeros = {json.dumps(given)}  # layers without a bias"
    yield "\n[config]  # what no shape says"
    for name, value in draft.config.items():
        doubt = draft.doubts.get(name)
        yield f"{name} = {json.dumps(value)}" + (f"  # UNSURE: {doubt}" if doubt else "")
    table = next((row for row in draft.rows if row[1] == "tokens.position.table"), None)
    if table is None:
        yield "# UNSURE: no position table was found; without one, positions are taken for computed (sin-cos)"


def _row_lines(draft: Draft) -> Iterator[str]:
    for theirs, ours, how, doubt in draft.rows:
        yield "\n[[rule]]" + (f"  # UNSURE: {doubt}" if doubt else "")
        yield f"theirs = {json.dumps(theirs[0] if len(theirs) == 1 else theirs)}"
        yield f"ours = {json.dumps(ours)}"
        if how != "same":
            yield f"how = {json.dumps(how)}"


def _left_lines(draft: Draft) -> Iterator[str]:
    if draft.shapes:
        yield "\n# Not placed; a row for each is needed, or a line under [ignored]:"
        yield from (f"#   {key} {list(shape)}" for key, shape in draft.shapes.items())
