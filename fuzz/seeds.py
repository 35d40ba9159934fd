"""Small good files to start from, and builders that wrap hostile bytes into an otherwise sound file."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping

import numpy as np

HEADER = (
    b'{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}'
)
CONFIG = {
    "model_type": "vit",
    "hidden_size": 768,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "id2label": {"0": "tench", "1": "goldfish"},
    "qkv_bias": True,
    "architectures": ["ViTForImageClassification"],
    "image_size": None,
}


def npz_of(members: Mapping[str, bytes], *, deflate: bool = False) -> bytes:
    """An archive with these bytes as arrays; sizes and checksums are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content, archive.compression)
    return out.getvalue()


def npy_of(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    """One array as a .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version)
    return out.getvalue()


def safetensors_of(header: bytes, size: int) -> bytes:
    """A file with this header and so many bytes of numbers."""
    return struct.pack("<Q", len(header)) + header + bytes(size)


def npz_seeds() -> Iterable[bytes]:
    """Archives of every kind of array, and single arrays for the builders."""
    small = np.arange(6, dtype="<f4").reshape(2, 3)
    arrays = [
        small, small.astype("f2"), small.astype(">f8"), np.asfortranarray(small), np.array(3, "i8"),
        np.zeros((0, 4), "f4"), np.zeros(2, "V2"), np.array([True, False]), np.zeros((2, 2), "u1"),
    ]  # fmt: skip
    for array in arrays:
        yield b"\0" + npy_of(array)
        yield b"\1" + npy_of(array, (2, 0))
        yield npz_of({"cls": npy_of(array), "head/bias": npy_of(small)})
    out = io.BytesIO()
    np.savez(out, **{"Transformer/encoder_norm/scale": small})
    yield out.getvalue()
    yield npz_of({"a": npy_of(np.zeros(300, "f4"))}, deflate=True)
    yield npz_of({})


def safetensors_seeds() -> Iterable[bytes]:
    """Whole files and headers for the builder."""
    yield safetensors_of(HEADER, 10)
    yield safetensors_of(b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  ', 8)
    yield safetensors_of(b"{}", 0)
    yield b"\0\3" + HEADER.replace(b"[]", b"[2]").replace(b"10]", b"12]")
    for dtype, width in {"F64": 8, "F16": 2, "I64": 8, "U8": 1, "BOOL": 1, "I16": 2}.items():
        header = json.dumps(
            {"x": {"dtype": dtype, "shape": [4 // min(width, 4), 1], "data_offsets": [0, max(4, width)]}}
        )
        yield b"\0" + bytes([max(1, width // 4)]) + header.encode()


def json_seeds() -> Iterable[bytes]:
    """Configs."""
    yield json.dumps(CONFIG).encode()
    yield json.dumps(CONFIG, indent=2).encode()
    yield b"{}"
    yield b'{"a": [1, -2.5e3, "\\u00e9\\n", null, true, {"b": []}]}'


def index_seeds() -> Iterable[bytes]:
    """Indexes of sharded models."""
    shards = [f"model-{number:05}-of-00002.safetensors" for number in (1, 2)]
    weight_map = {"vit.embeddings.cls_token": shards[0], "classifier.weight": shards[1]}
    yield json.dumps({"metadata": {"total_size": 10}, "weight_map": weight_map}).encode()
    yield json.dumps({"weight_map": {"a": "model.safetensors"}}, separators=(",", ":")).encode()
    yield b'{"weight_map": {"a": "sub/model.safetensors", "b": "../b.safetensors", "c": "/etc/passwd"}}'


SEEDS: dict[str, Callable[[], Iterable[bytes]]] = {
    "npz": npz_seeds,
    "safetensors": safetensors_seeds,
    "json": json_seeds,
    "index": index_seeds,
}
