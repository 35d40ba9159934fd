"""Rules a user brings for names nobody else uses: a TOML file in the language of rules.py (docs/formats.md)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from vitrail.checkpoint import transforms
from vitrail.checkpoint.native import OURS
from vitrail.checkpoint.rules import KEPT, Key, Rule, Table, skeleton
from vitrail.config import Preprocess, ViTConfig
from vitrail.errors import CheckpointError, ConfigError, UsageError, did_you_mean


@dataclass(frozen=True)
class Custom:
    """A user's table, and what they say about the model besides."""

    table: Table
    config: dict[str, Any] = field(default_factory=dict)
    preprocess: dict[str, Any] | None = None
    labels: list[str] | None = None

    @property
    def beside(self) -> dict[str, Any]:
        """The same as a config.json of ours would say it."""
        block: dict[str, Any] = {"config": self.config}
        block |= {"preprocess": self.preprocess} if self.preprocess else {}
        block |= {"labels": self.labels} if self.labels else {}
        return {"model_type": "vitrail", "vitrail": block}


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A [[rule]] of the file."""

    theirs: str | list[str]
    ours: str
    how: str = "same"


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The file as it is written."""

    rule: list[Row]
    name: str = "custom rules"
    prefixes: tuple[str, ...] = ("",)
    ignored: dict[str, str] = {}
    zeros: list[str] = []
    ones: list[str] = []
    config: dict[str, Any] = {}
    preprocess: dict[str, Any] | None = None
    labels: list[str] | None = None


def rules_from_toml(path: Path | str) -> Custom:
    """The rules in a file, checked."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"Cannot read the rules {path}: {error.strerror}.", "A TOML file.", "Check the path."
        ) from None
    return rules_from_text(text, str(path))


def rules_from_text(text: str, where: str = "rules") -> Custom:
    """The rules a text spells out, checked."""
    try:
        file = msgspec.convert(tomllib.loads(text), File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{where}: {error}.", "A file as docs/formats.md describes it.", "") from None
    for row in file.rule:
        _check(row, where)
    _check_fields(file, where)
    table = Table(
        name=file.name,
        rules=tuple(
            Rule(tuple([row.theirs] if isinstance(row.theirs, str) else row.theirs), row.ours, row.how)
            for row in file.rule
        ),
        prefixes=file.prefixes,
        ignored=tuple(file.ignored.items()),
        constants=(*((key, 0.0) for key in file.zeros), *((key, 1.0) for key in file.ones)),
        covers=("class", "patches", "all"),
        may_compute_positions=True,
    )
    _check_unique(table, where)
    return Custom(table, file.config, file.preprocess, file.labels)


def _check(row: Row, where: str) -> None:
    known = {skeleton(Key.parse(key).skeleton) for key in OURS}
    if not row.ours.startswith(KEPT) and Key.parse(row.ours).skeleton not in known:
        raise ConfigError(
            f"{where}: {row.ours!r} is no key of ours.",
            did_you_mean(row.ours, OURS),
            "Every key is in docs/formats.md.",
        )
    try:
        transforms.chain(row.how)
    except CheckpointError as error:
        raise ConfigError(f"{where}: {error.found}", error.expected, error.fix) from None


def _check_fields(file: File, where: str) -> None:
    for kind, fields in ((ViTConfig, file.config), (Preprocess, file.preprocess or {})):
        unknown = set(fields) - set(kind.__struct_fields__)
        if unknown:
            word = min(unknown)
            raise ConfigError(
                f"{where}: {kind.__name__} has no field {word!r}.", did_you_mean(word, kind.__struct_fields__)
            )
    if file.preprocess is not None:
        _preprocess(file.preprocess, where)


def _preprocess(said: dict[str, Any], where: str) -> None:
    try:
        msgspec.convert(said, Preprocess)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{where}: [preprocess]: {error}.", "Fields as docs/guide/config.md lists them.", ""
        ) from None


def _check_unique(table: Table, where: str) -> None:
    for side, keys in (
        ("ours", [rule.ours for rule in table.rules]),
        ("theirs", [key for rule in table.rules for key in rule.theirs]),
    ):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ConfigError(f"{where}: {twice[0]!r} is in two rows ({side}).", "Each key is in one row.", "")
