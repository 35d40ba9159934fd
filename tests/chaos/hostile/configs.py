"""JSON that is a bomb, is no config, or asks for a model no machine can hold."""

# ruff: noqa: E501  (one case to a line)

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile import Case, tiny
from vitrail.checkpoint import container

INDEX = "model.safetensors.index.json"


def text(content: bytes) -> Callable[[Path], Path]:
    """A config file of these bytes."""

    def build(folder: Path) -> Path:
        path = folder / "config.json"
        path.write_bytes(content)
        return path

    return build


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "config.json")
    return folder / "config.json"


def loop(folder: Path) -> Path:
    (folder / "config.json").symlink_to(folder / "config.json")
    return folder / "config.json"


def inside(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def changed(**fields: Any) -> Callable[[Path], Path]:
    """A sound model whose config says something else."""
    return lambda folder: tiny.folder(folder, {**tiny.CONFIG, **fields})


def indexed(weight_map: object, **files: dict[str, Any]) -> Callable[[Path], Path]:
    """A folder whose index says this."""

    def build(folder: Path) -> Path:
        path = tiny.folder(folder)
        (path / "model.safetensors").rename(path / "model-00001-of-00001.safetensors")
        (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        for name, tensors in files.items():
            container.write_safetensors(path / f"{name}.safetensors", tensors)
        return path

    return build


def preprocessed(content: object) -> Callable[[Path], Path]:
    """A sound model with this preprocessor_config.json."""

    def build(folder: Path) -> Path:
        path = tiny.folder(folder)
        (path / "preprocessor_config.json").write_text(json.dumps(content))
        return path

    return build


SHARD = "model-00001-of-00001.safetensors"
TEXTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "braces nested 100,000 deep": (text(inside(100_000)), "recursion|nested"),
    "brackets nested 1,000,000 deep": (text(b'{"a":' + b"[" * 1_000_000), "recursion|not a JSON object|too many"),
    "nested 33 deep": (text(inside(33)), "nested too deeply"),
    "5 MB": (text(b'{"a":"' + b"x" * 5 * 2**20 + b'"}'), "bytes long"),
    "a million empty lists": (text(b'{"a":[' + b"[]," * 1_000_000 + b"[]]}"), "too many values"),
    "a number of a million digits": (text(b'{"hidden_size":' + b"9" * 1_000_000 + b"}"), "out of range"),
    "1e999": (text(b'{"hidden_size":1e999}'), "out of range"),
    "NaN": (text(b'{"layer_norm_eps":NaN}'), "not a JSON object"),
    "a list": (text(b"[1,2,3]"), "not a JSON object"),
    "nothing": (text(b""), "not a JSON object"),
    "half of it": (text(json.dumps(tiny.CONFIG).encode()[:100]), "not a JSON object"),
    "bytes that are no UTF-8": (text(b'{"\xff\xfe":1}'), "not a JSON object"),
    "half a surrogate": (text(b'{"a":"\\ud800"}'), "not a JSON object"),
    "Python": (text(b"__import__('os').system('true')"), "not a JSON object"),
    "YAML that builds objects": (text(b"!!python/object/apply:os.system ['true']"), "not a JSON object"),
    "a pipe nobody writes to": (pipe, "not a regular file"),
    "a link to itself": (loop, "cannot be opened"),
}
MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "hidden_size of 10**15": (changed(hidden_size=10**15), "hidden_size"),
    "a billion blocks": (changed(num_hidden_layers=10**9), "num_hidden_layers"),
    "intermediate_size of 10**18": (changed(intermediate_size=10**18), "intermediate_size"),
    "no heads": (changed(num_attention_heads=0), "heads"),
    "10**30 heads": (changed(num_attention_heads=10**30), "heads|too large"),
    "patches of 0 pixels": (changed(patch_size=0), "patch_size"),
    "pictures of 10**12 pixels": (changed(image_size=[10**6, 10**6]), "position table"),
    "a size that is a table": (changed(image_size={"a": 1}), "image_size"),
    "labels that are a list": (changed(id2label=["cat"]), "id2label|config.json says makes no sense"),
    "100,000 labels": (changed(id2label={str(n): "x" for n in range(100_000)}), "100000 classes|100,000"),
    "an activation that is a table": (changed(hidden_act={}), "hidden_act|config.json says makes no sense"),
    "an activation named eval": (changed(hidden_act="eval"), "hidden_act"),
    "eps that is a word": (changed(layer_norm_eps="nan"), "layer_norm_eps"),
    "eps below 0": (changed(layer_norm_eps=-1), "layer_norm_eps"),
    "an index that climbs": (indexed({"a": "../../../etc/passwd"}), "names the shard"),
    "an index from the root": (indexed({"a": "/etc/passwd"}), "names the shard"),
    "an index of 1,000 shards": (indexed({f"a{n}": f"{n}.safetensors" for n in range(1000)}), "names 1000 shards"),
    "an index that is a list": (indexed([SHARD]), "has no weight_map"),
    "an index that names a missing shard": (indexed({"a": "gone.safetensors"}), "cannot be opened"),
    "an index that promises too much": (indexed({"vit.gone": SHARD}), "promises 1 tensors"),
    "one tensor in two shards": (
        indexed({"classifier.bias": SHARD, "classifier.weight": "two.safetensors"}, two=tiny.tensors()), "in another shard"
    ),
    "a preprocessor that is a list": (preprocessed([1]), "not a JSON object"),
    "pictures scaled by 0": (preprocessed({"image_mean": [0, 0, 0], "image_std": [0, 0, 0], "do_normalize": True}), "std"),
    "a crop of 10**9 pixels": (preprocessed({"size": {"height": 10**9, "width": 10**9}}), "size|pixels"),
}  # fmt: skip

CASES = [
    *(Case("config", name, "json", build, reason) for name, (build, reason) in TEXTS.items()),
    *(Case("config", name, "load", build, reason) for name, (build, reason) in MODELS.items()),
]
