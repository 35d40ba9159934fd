"""Look inside a forward pass: ask for a name, get the tensor; turn a head down or off.

    probe = Probe("blocks.*.attn.weights", "norm.out", queries=[0])
    logits = model(images, probe)
    probe["blocks.11.attn.weights"]        # batch x heads x 1 x tokens: the class token's row

Every stage offers its result under a name (docs/guide/probe.md lists them). A star between dots stands for one part
of a name, a star at either end for the rest of it. What nobody asked for costs nothing: attention weights are computed
only for the layers, heads and query rows asked for, beside the fast attention that produces the output. Heads go by
the number they were born with, pruned neighbours or not.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ConfigError, did_you_mean
from vitrail.model.shapes import Queries

PerLayer = Sequence[int] | Mapping[int, Sequence[int]]


class Probe:
    """Names to watch, and head gates to apply, during one forward pass."""

    def __init__(
        self,
        *names: str,
        queries: Sequence[int] | None = None,
        heads: PerLayer | None = None,
        scale_heads: Mapping[int, Sequence[int | float] | Tensor] | None = None,
        keep: Callable[[str, Tensor], Any] | None = None,
    ) -> None:
        """Watch `names`; of attention scores and weights only `queries` and `heads` (None: all of them).

        `scale_heads` maps a layer to one factor per original head: 0 switches a head off, exactly as a
        head mask on the attention weights would. A tensor there may require gradients.
        `keep` turns a watched tensor into what is stored, as soon as it exists (default: the tensor).
        """
        self.names = names
        self.queries = None if queries is None else list(queries)
        self.heads = heads
        self.scale_heads = dict(scale_heads or {})
        self._keep = keep or (lambda name, tensor: tensor)
        self._taken: dict[str, Any] = {}
        self._offered: set[str] = set()

    def watches(self, name: str) -> bool:
        """Whether somebody asked for `name`."""
        if not self.names:
            return False
        self._offered.add(name)
        return _matches(self.names, name)

    def watches_under(self, prefix: str, names: Sequence[str]) -> bool:
        """Whether somebody asked for any of these names under `prefix`."""
        return bool(self.names) and any(_matches(self.names, f"{prefix}.{name}") for name in names)

    def take(self, name: str, tensor: Tensor) -> Tensor:
        """Store `tensor` if it is watched, and hand it on."""
        if self.names and self.watches(name):
            self._taken[name] = self._keep(name, tensor)
        return tensor

    def head_rows(self, layer: int, heads: tuple[int, ...]) -> list[int]:
        """Which of a layer's `heads` are asked for, as positions in its tensors."""
        asked = self.heads.get(layer, ()) if isinstance(self.heads, Mapping) else self.heads
        if asked is None:
            return list(range(len(heads)))
        gone = [head for head in asked if head not in heads]
        if gone:
            raise ConfigError(
                f"Layer {layer} has no head {gone[0]}.", f"It has {list(heads)}.", "Ask for one of those."
            )
        return [heads.index(head) for head in asked]

    def query_rows(self, tokens: int) -> list[int] | slice:
        """Which query rows are asked for, of so many tokens."""
        if self.queries is None:
            return slice(None)
        beyond = [row for row in self.queries if not -tokens <= row < tokens]
        if beyond:
            raise ConfigError(
                f"There is no query row {beyond[0]}.", f"Rows 0 to {tokens - 1}.", "Ask for one of those."
            )
        return self.queries

    def check_layers(self, layers: int) -> None:
        """Refuse gates for layers that do not exist: they would silently do nothing."""
        beyond = set(self.scale_heads) - set(range(layers))
        if beyond:
            raise ConfigError(
                f"scale_heads names layer {min(beyond)}.",
                f"The model has layers 0 to {layers - 1}.",
                "Name one of those.",
            )

    def scaled(self, layer: int, heads: tuple[int, ...], born: int, context: Queries) -> Queries:
        """What each head has gathered, times that head's factor; there is one for each head the layer was born with."""
        if layer not in self.scale_heads:
            return context
        factors = torch.as_tensor(self.scale_heads[layer], dtype=context.dtype, device=context.device)
        if factors.shape != (born,):
            raise ConfigError(
                f"scale_heads[{layer}] has the shape {tuple(factors.shape)}.",
                f"One factor for each of the {born} heads the layer was born with.",
                "Use 1 for a head to leave alone.",
            )
        return context * factors[list(heads)].view(-1, 1, 1)

    def __getitem__(self, name: str) -> Any:
        if name not in self._taken:
            unwatched = name in self._offered
            near = "The model offers it, but no name asked for it." if unwatched else did_you_mean(name, self._offered)
            raise ConfigError(f"The probe holds no {name!r}.", near, f"It watched: {', '.join(self.names)}.")
        return self._taken[name]

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def __iter__(self) -> Iterator[str]:
        return iter(self._taken)

    def items(self) -> list[tuple[str, Any]]:
        """Everything taken, in the order of the forward pass."""
        return list(self._taken.items())


SILENT = Probe()


@lru_cache(maxsize=65536)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


@lru_cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A star between dots stands for one part of a name, a star at either end for any number of parts."""
    parts = [re.escape(part) for part in pattern.split("*")]
    stars = ["[^.]*"] * (len(parts) - 1)
    if stars and not parts[0]:
        stars[0] = ".*"
    if stars and not parts[-1]:
        stars[-1] = ".*"
    return re.compile("".join(part + star for part, star in zip(parts, [*stars, ""], strict=True)))
