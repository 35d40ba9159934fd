"""The rule language: a table of rows that reads both ways, and the accounting of every key.

A row pairs the key (or keys) of a foreign file with one of ours, whole key with whole key:

    Rule(("Transformer/encoderblock_{i}/LayerNorm_0/scale",), "encoder.blocks.{i}.norm1.weight")

    {i}      a number, the same on both sides        ~     the table's prefix ("vit.", "params/", nothing)
    {i+1}    the same, counted from one              [{i}] row i of a tensor that stacks all layers
    *2       after a key: it makes up two shares of ours where the others make up one

Several keys are joined along the first axis. `how` names what happens to each on the way (transforms.py).
No row overlaps another, so the order of rows and of tensors never matters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import msgspec
import torch
from torch import Tensor

from vitrail.checkpoint import transforms
from vitrail.checkpoint.transforms import Sizes
from vitrail.errors import CheckpointError

KEPT = "kept:"  # ours starts like this for tensors no model of ours uses, kept so that they can be written back
MAX_STACKED = 4096  # layers in one tensor: far above any model, far below what an empty tensor may declare
SLOT = re.compile(r"\{(\w+)(?:\+(\d+))?\}")
Slots = dict[str, int]


class Rule(msgspec.Struct, frozen=True):
    """One row: their keys, our key, and how the numbers move."""

    theirs: tuple[str, ...]
    ours: str
    how: str = "same"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one way to write one format."""

    name: str
    rules: tuple[Rule, ...]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[tuple[str, str], ...] = ()  # keys that are no part of a model ({any}: any text), and what they are
    constants: tuple[tuple[str, float], ...] = ()  # keys of ours this format leaves out: always this number
    implies: tuple[tuple[str, Any], ...] = ()  # config fields that whoever writes these names computes with
    covers: tuple[str, ...] = ("class", "patches")  # which tokens its position table may cover, likeliest first
    may_compute_positions: bool = False  # without a table they are sines and cosines; else a table is missing


def pairs(theirs: str, ours: str, leaves: tuple[tuple[str, str, str], ...]) -> Iterator[Rule]:
    """The rows of one layer: (their leaf, our leaf, how) each."""
    return (Rule((theirs + leaf,), ours + our_leaf, how) for leaf, our_leaf, how in leaves)


def layer(theirs: str, ours: str) -> Iterator[Rule]:
    """Weight and bias of a layer that both sides lay out alike."""
    return pairs(theirs, ours, ((".weight", ".weight", "same"), (".bias", ".bias", "same")))


def joined(theirs: Iterable[str], ours: str, how: str = "same") -> Iterator[Rule]:
    """Weights and biases of several layers that are one layer of ours."""
    parts = tuple(theirs)
    for leaf in (".weight", ".bias"):
        yield Rule(tuple(re.sub(r"(\*\d+)?$", leaf + r"\1", part, count=1) for part in parts), ours + leaf, how)


@dataclass(frozen=True)
class Key:
    """A key with slots for numbers, ready to be recognised and to be filled in."""

    text: str
    row: str | None = None  # the slot that counts rows of a stacked tensor
    shares: int = 1

    @classmethod
    def parse(cls, pattern: str, prefix: str = "") -> Key:
        """A key as a rule spells it."""
        body = re.fullmatch(r"(.*?)(?:\[\{(\w+)\}\])?(?:\*(\d+))?", pattern, re.DOTALL)
        assert body
        text = prefix + body[1][1:] if body[1].startswith("~") else body[1]
        return cls(text, body[2], int(body[3] or 1))

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What recognises such a key; made when first asked for, as most tables of a search are soon ruled out."""
        return _regex(self.text)

    def match(self, key: str) -> Slots | None:
        """The numbers in `key`, if it is one of these."""
        found = self.regex.fullmatch(key)
        if found is None:
            return None
        offsets = {name: int(offset or 0) for name, offset in SLOT.findall(self.text)}
        slots = {name: int(number) - offsets[name] for name, number in found.groupdict().items()}
        return slots if min(slots.values(), default=0) >= 0 else None

    def fill(self, slots: Slots) -> str:
        """The key with these numbers."""
        return SLOT.sub(lambda slot: str(slots[slot[1]] + int(slot[2] or 0)), self.text)

    @property
    def skeleton(self) -> str:
        """The same for every key it could match, and quick to compare."""
        return skeleton(SLOT.sub("#", self.text))


def _regex(text: str) -> re.Pattern[str]:
    parts, end, seen = [], 0, set()
    for slot in SLOT.finditer(text):
        parts += [re.escape(text[end : slot.start()]), _slot(slot[1], slot[1] in seen)]
        seen.add(slot[1])
        end = slot.end()
    return re.compile("".join([*parts, re.escape(text[end:])]))


def _slot(name: str, again: bool) -> str:
    if name == "any":
        return ".*"
    return f"(?P={name})" if again else rf"(?P<{name}>0|[1-9]\d*)"


def skeleton(key: str) -> str:
    """A key with every number blotted out."""
    return re.sub(r"\d+", "#", key)


@dataclass(frozen=True)
class Row:
    """A rule with its keys parsed for one prefix."""

    rule: Rule
    theirs: tuple[Key, ...]
    ours: Key
    number: int  # its place in the table


class Compiled:
    """A table made ready for one prefix: finds the row of a key, from either side."""

    def __init__(self, table: Table, prefix: str) -> None:
        self.table, self.prefix = table, prefix
        self.rows = [
            Row(rule, tuple(Key.parse(key, prefix) for key in rule.theirs), Key.parse(rule.ours), number)
            for number, rule in enumerate(table.rules)
        ]
        self.ignored = [(Key.parse(pattern, prefix), what) for pattern, what in table.ignored]
        self.constants = [(Key.parse(pattern), value) for pattern, value in table.constants]
        self._theirs: dict[str, list[tuple[Row, int, Key]]] = {}
        self._ours: dict[str, list[Row]] = {}
        for row in self.rows:
            self._ours.setdefault(row.ours.skeleton, []).append(row)
            for part, key in enumerate(row.theirs):
                self._theirs.setdefault(key.skeleton, []).append((row, part, key))

    def find(self, key: str) -> tuple[Row, int, Slots] | None:
        """The row that claims this key of theirs, which of its parts it is, and the numbers in it."""
        hits = [
            (row, part, slots)
            for row, part, pattern in self._theirs.get(skeleton(key), ())
            if (slots := pattern.match(key)) is not None
        ]
        if len(hits) > 1:
            rows = " and ".join(repr(row.rule.ours) for row, _, _ in hits)
            raise CheckpointError(
                f"Two rows of '{self.table.name}' claim the key '{key}': {rows}.", "One row per key.", "Remove one."
            )
        return hits[0] if hits else None

    def knows(self, shape: str) -> bool:
        """Whether any row has keys with this skeleton."""
        return shape in self._theirs

    def find_ours(self, key: str) -> tuple[Row, Slots] | None:
        """The row that writes this key of ours, and the numbers in it."""
        for row in self._ours.get(skeleton(key), ()):
            if (slots := row.ours.match(key)) is not None:
                return row, slots
        return None

    def constant(self, key: str) -> float:
        """The number a key of ours always has where the table leaves it out; NaN where it does not."""
        return next((value for pattern, value in self.constants if pattern.match(key) is not None), math.nan)

    def reason(self, key: str) -> str | None:
        """What an ignored key is; None where the table does not say so."""
        return next((what for pattern, what in self.ignored if pattern.regex.fullmatch(key)), None)


@lru_cache(maxsize=512)
def compiled(table: Table, prefix: str = "") -> Compiled:
    """The table, ready to use."""
    return Compiled(table, prefix)


@dataclass(frozen=True)
class Step:
    """One tensor of ours and where it comes from: keys of theirs, each with a row number or none."""

    row: Row
    ours: str
    sources: tuple[tuple[str, int | None], ...]

    def run(self, tensors: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
        """Our tensor."""
        parts = [self._part(tensors[key], number, key, sizes) for key, number in self.sources]
        return transforms.joined(parts).contiguous()

    def _part(self, tensor: Tensor, number: int | None, key: str, sizes: Sizes) -> Tensor:
        try:
            # A row is copied, so that one layer does not hold the stack of all layers in memory.
            return transforms.read(self.row.rule.how, tensor if number is None else tensor[number].clone(), sizes)
        except CheckpointError as error:
            raise CheckpointError(
                f"'{key}': {error.found}.", f"{error.expected or 'Another layout was expected'}.", error.fix
            ) from None


@dataclass(frozen=True)
class Plan:
    """Which tensor of ours comes from which of theirs, and what is left over on either side."""

    steps: tuple[Step, ...] = ()
    unused: tuple[str, ...] = ()
    ignored: dict[str, str] = field(default_factory=dict)
    incomplete: dict[str, tuple[str, ...]] = field(default_factory=dict)  # ours: those of its sources that are absent

    def run(self, tensors: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
        """Our tensors. From a dict, each source is let go of as soon as it is used up."""
        uses = Counter(key for step in self.steps for key, _ in step.sources)
        state = {}
        for step in self.steps:
            state[step.ours] = step.run(tensors, sizes)
            for key, _ in step.sources:
                uses[key] -= 1
                if not uses[key] and isinstance(tensors, dict):
                    del tensors[key]
        return state


def plan(table: Table, tensors: Mapping[str, Tensor], prefix: str = "") -> Plan:
    """What `translate` would do, from names and shapes alone."""
    index = compiled(table, prefix)
    sources: dict[str, dict[int, tuple[str, int | None]]] = {}
    rows: dict[str, tuple[Row, Slots]] = {}
    unused, ignored = [], {}
    for key, tensor in tensors.items():
        hit = index.find(key)
        if hit is None:
            reason = index.reason(key)
            ignored.update({key: reason} if reason is not None else {})
            unused += [key] if reason is None else []
            continue
        row, part, slots = hit
        for number, numbered in _numbered(row.theirs[part], slots, tensor):
            ours = row.ours.fill(numbered)
            rows[ours] = row, numbered
            _claim(sources.setdefault(ours, {}), part, (key, number), ours)
    steps, incomplete = [], {}
    for ours, parts in sources.items():
        row, slots = rows[ours]
        absent = [key.fill(slots) for part, key in enumerate(row.theirs) if part not in parts]
        if absent:
            incomplete[ours] = tuple(absent)
        else:
            steps.append(Step(row, ours, tuple(parts[part] for part in range(len(row.theirs)))))
    return Plan(tuple(sorted(steps, key=lambda step: step.row.number)), tuple(unused), ignored, incomplete)


def _numbered(key: Key, slots: Slots, tensor: Tensor) -> Iterator[tuple[int | None, Slots]]:
    if key.row is None:
        yield None, slots
        return
    for number in range(min(tensor.shape[0], MAX_STACKED) if tensor.ndim else 0):
        yield number, slots | {key.row: number}


def _claim(parts: dict[int, tuple[str, int | None]], part: int, source: tuple[str, int | None], ours: str) -> None:
    if part in parts:
        raise CheckpointError(
            f"'{parts[part][0]}' and '{source[0]}' both stand for '{ours}'.", "One key for each of ours.", ""
        )
    parts[part] = source


@dataclass(frozen=True)
class Translation:
    """Our tensors, and what became of every key: used, unused, ignored (with the reason), missing."""

    state: dict[str, Tensor]
    kept: dict[str, Tensor]  # of no use to our model, but somebody's: written back where a format has a place
    used: tuple[str, ...]
    unused: tuple[str, ...]
    ignored: dict[str, str]
    missing: tuple[str, ...]


def translate(
    table: Table,
    tensors: Mapping[str, Tensor],
    *,
    prefix: str = "",
    sizes: Sizes | None = None,
    expected: Iterable[str] = (),
) -> Translation:
    """Their tensors as ours. `expected` are the keys our model has; those that nothing gives are `missing`."""
    planned = plan(table, tensors, prefix)
    used = tuple(dict.fromkeys(key for step in planned.steps for key, _ in step.sources))
    everything = planned.run(tensors, sizes or Sizes())
    state = {key: tensor for key, tensor in everything.items() if not key.startswith(KEPT)}
    kept = {key.removeprefix(KEPT): tensor for key, tensor in everything.items() if key.startswith(KEPT)}
    missing = dict.fromkeys([*planned.incomplete, *(key for key in expected if key not in state)])
    return Translation(state, kept, used, planned.unused, planned.ignored, tuple(missing))


def untranslate(
    table: Table, state: Mapping[str, Tensor], *, prefix: str = "", sizes: Sizes | None = None
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Our tensors as theirs, from the same rows; and the keys of ours that no row has a place for."""
    index = compiled(table, prefix)
    tensors: dict[str, Tensor] = {}
    stacks: dict[str, dict[str, tuple[int, Tensor]]] = {}
    left = []
    for ours, tensor in state.items():
        hit = index.find_ours(ours)
        if hit is None:
            left += [] if bool((tensor == index.constant(ours)).all()) else [ours]
            continue
        row, slots = hit
        for key, part in zip(row.theirs, _shares(tensor, row), strict=True):
            written = transforms.write(row.rule.how, part, sizes or Sizes()).contiguous()
            if key.row is None:
                tensors[key.fill(slots)] = written
            else:
                stacks.setdefault(key.fill(slots), {})[ours] = slots[key.row], written
    for key_text, layers in stacks.items():
        in_order = [tensor for _, tensor in sorted(layers.values(), key=lambda layer: layer[0])]
        if len({tensor.shape for tensor in in_order}) == 1:
            tensors[key_text] = torch.stack(in_order)
        else:  # layers with different numbers of heads do not stack
            left += layers
    return tensors, tuple(dict.fromkeys(left))


def _shares(tensor: Tensor, row: Row) -> tuple[Tensor, ...]:
    if len(row.theirs) == 1:
        return (tensor,)
    unit = tensor.shape[0] // sum(key.shares for key in row.theirs)
    ends = accumulate(unit * key.shares for key in row.theirs[:-1])
    return tensor.tensor_split(list(ends))
