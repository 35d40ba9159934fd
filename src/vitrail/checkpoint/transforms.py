"""How one layout of the same numbers becomes another: the transforms a rule may name, each with its way back.

Every transform only moves numbers, never changes one, so reading and then writing gives the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.config import Pair
from vitrail.errors import CheckpointError, did_you_mean


@dataclass(frozen=True)
class Sizes:
    """What a shape alone cannot say; most transforms need none of it to read, some need it to write."""

    head_dim: int | None = None
    patch_size: Pair | None = None
    num_channels: int | None = None
    grid: Pair | None = None  # of the position table

    def need(self, field: str) -> int:
        """A size, or an error that says which one is missing."""
        value: int | None = getattr(self, field)
        if value is None:
            raise _missing(field)
        return value

    def pair(self, field: str) -> Pair:
        """Rows and columns, or an error that says what is missing."""
        value: Pair | None = getattr(self, field)
        if value is None:
            raise _missing(field)
        return value


def _missing(field: str) -> CheckpointError:
    return CheckpointError(
        f"A rule needs {field}, which the file does not say.", "It comes from the caller.", f"Give {field}=…."
    )


@dataclass(frozen=True)
class Transform:
    """`read` makes ours of theirs, `write` theirs of ours; `shape` says what theirs looks like."""

    read: Callable[[Tensor, Sizes], Tensor]
    write: Callable[[Tensor, Sizes], Tensor]
    shape: str = ""

    @property
    def rank(self) -> int | None:
        """How many sizes theirs has; None: any number."""
        return len(self.shape.split(" x ")) if self.shape else None


def _split(x: Tensor, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """One axis as several."""
    return x.reshape(*x.shape[:axis], *sizes, *x.shape[axis + 1 :])


def _split_patch(x: Tensor, sizes: Sizes, channels_last: bool) -> Tensor:
    rows, cols = sizes.pair("patch_size")
    if channels_last:
        return _split(x, 1, (rows, cols, sizes.need("num_channels"))).permute(0, 3, 1, 2)
    return _split(x, 1, (sizes.need("num_channels"), rows, cols))


def _heads_of_three(x: Tensor, sizes: Sizes) -> Tensor:
    return _split(x, 0, (-1, 3, sizes.need("head_dim"))).transpose(0, 1).flatten(0, 2)


def _three_of_heads(x: Tensor, sizes: Sizes) -> Tensor:
    return _split(x, 0, (3, -1, sizes.need("head_dim"))).transpose(0, 1).flatten(0, 2)


def _swapped(x: Tensor) -> Tensor:
    return joined(x.chunk(2)[::-1])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One tensor of several, along the first axis. On "meta" only the shape is worked out."""
    if len(parts) == 1:
        return parts[0]
    if _lie_end_to_end(parts):
        whole = parts[0].as_strided((sum(part.numel() for part in parts),), (1,))
        return whole.view(-1, *parts[0].shape[1:])
    if parts[0].is_meta:  # torch.cat there would import the compiler: four seconds
        return torch.empty(sum(len(part) for part in parts), *parts[0].shape[1:], dtype=parts[0].dtype, device="meta")
    return torch.cat(list(parts))


def _lie_end_to_end(parts: Sequence[Tensor]) -> bool:
    """Whether each starts where the one before it ends, in the same memory: then they are one tensor already."""
    first = parts[0]
    alike = {(part.dtype, part.shape[1:], part.is_contiguous()) for part in parts}
    if first.is_meta or not first.is_contiguous() or not first.numel() or len(alike) > 1:
        return False
    same_memory = len({part.untyped_storage().data_ptr() for part in parts}) == 1
    return same_memory and all(
        before.storage_offset() + before.numel() == after.storage_offset()
        for before, after in itertools.pairwise(parts)
    )


# "D" is the model's width, "out" and "in" the sizes of a linear map.
TRANSFORMS: dict[str, Transform] = {
    "same": Transform(lambda x, s: x, lambda x, s: x),
    "transpose": Transform(lambda x, s: x.T, lambda x, s: x.T, "in x out"),
    # flax
    "hwio": Transform(lambda x, s: x.permute(3, 2, 0, 1), lambda x, s: x.permute(2, 3, 1, 0), "rows x cols x in x out"),
    "heads_in": Transform(
        lambda x, s: x.flatten(1).T, lambda x, s: _split(x.T, 1, (-1, s.need("head_dim"))), "D x heads x head_dim"
    ),
    "heads_bias": Transform(
        lambda x, s: x.flatten(), lambda x, s: _split(x, 0, (-1, s.need("head_dim"))), "heads x head_dim"
    ),
    "heads_out": Transform(
        lambda x, s: x.flatten(0, 1).T, lambda x, s: _split(x.T, 0, (-1, s.need("head_dim"))), "heads x head_dim x D"
    ),
    "channels": Transform(lambda x, s: x.flatten(), lambda x, s: x[None, None, None], "1 x 1 x 1 x channels"),
    # tokens and positions without the leading axes
    "token": Transform(lambda x, s: x[None, None], lambda x, s: x[0, 0], "D"),
    "rows": Transform(lambda x, s: x[None], lambda x, s: x[0], "rows x D"),
    "grid": Transform(
        lambda x, s: x.flatten(1, 2), lambda x, s: _split(x, 1, s.pair("grid")), "1 x grid rows x grid cols x D"
    ),
    "grid_channels_first": Transform(
        lambda x, s: x.flatten(2).transpose(1, 2),
        lambda x, s: _split(x.transpose(1, 2), 2, s.pair("grid")),
        "1 x D x grid rows x grid cols",
    ),
    # a linear patch embedding over flattened patches, colours first (unfold) or last (einops "p1 p2 c")
    "patch_chw": Transform(lambda x, s: _split_patch(x, s, False), lambda x, s: x.flatten(1), "out x in"),
    "patch_hwc": Transform(
        lambda x, s: _split_patch(x, s, True), lambda x, s: x.permute(0, 2, 3, 1).flatten(1), "out x in"
    ),
    # query, key and value of one head next to each other, instead of all queries first
    "qkv_by_head": Transform(_heads_of_three, _three_of_heads),
    # SwiGLU with the gate in the second half instead of the first
    "swap_halves": Transform(lambda x, s: _swapped(x), lambda x, s: _swapped(x)),
}


def chain(how: str) -> list[Transform]:
    """The transforms a rule names, in reading order: "transpose | patch_hwc"."""
    names = [name.strip() for name in how.split("|")]
    for name in names:
        if name not in TRANSFORMS:
            raise CheckpointError(
                f"No transform is called {name!r}.", did_you_mean(name, TRANSFORMS), "docs/formats.md."
            )
    return [TRANSFORMS[name] for name in names]


def read(how: str, x: Tensor, sizes: Sizes) -> Tensor:
    """Theirs, laid out as ours."""
    for transform in chain(how):
        if transform.rank not in (None, x.ndim):
            raise CheckpointError(f"the shape is {list(x.shape)}", f"{transform.shape} was expected")
        try:
            x = transform.read(x, sizes)
        except RuntimeError:  # torch's words for sizes that do not divide
            raise CheckpointError(f"the shape is {list(x.shape)}", f"it does not divide as {sizes} says") from None
    return x


def write(how: str, x: Tensor, sizes: Sizes) -> Tensor:
    """Ours, laid out as theirs."""
    for transform in reversed(chain(how)):
        x = transform.write(x, sizes)
    return x
