"""From flags, environment, files and presets to one checked config, remembering where each value came from.

Later layers win: defaults, checkpoint, preset, `--config`, `--set`, environment, flag. Keys are dotted struct names
such as `model.image_size`; there are no hidden user-level settings.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from vitrail.config import Frozen, build
from vitrail.errors import ConfigError, UsageError, did_you_mean

Sections = Mapping[str, type[Frozen]]  # "model" -> ViTConfig


@dataclass(frozen=True)
class Layer:
    """Values by dotted key, all from one place."""

    origin: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """One checked record per section, and the place each value came from."""

    records: Mapping[str, Frozen]
    origins: Mapping[str, str]

    def lines(self) -> list[str]:
        """What `--print-config` shows: key, value, origin."""
        rows = [(key, repr(_value(self.records, key)), self.origins.get(key, "default")) for key in self.keys()]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return [f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}" for key, value, origin in rows]

    def keys(self) -> list[str]:
        """Every top-level field of every section, and the nested ones somebody set."""
        fields = {
            f"{name}.{field}": None for name, record in self.records.items() for field in record.__struct_fields__
        }
        return [key for key in (fields | dict.fromkeys(self.origins)) if _value(self.records, key) is not _ABSENT]


def resolve(sections: Sections, layers: Sequence[Layer]) -> Settings:
    """Merge layers, lowest first, and build every section."""
    known = set(known_keys(sections))
    merged: dict[str, Any] = {name: {} for name in sections}
    origins: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            if key not in known:
                raise ConfigError(
                    f"{layer.origin} sets {key!r}, which is no setting here.",
                    did_you_mean(key, known),
                    "--print-config lists them all.",
                )
            _put(merged, key.split("."), value)
            origins[key] = layer.origin
    return Settings({name: build(kind, merged[name]) for name, kind in sections.items()}, origins)


def user_layers(
    sections: Sections, *, config: Path | None = None, assignments: Iterable[str] = (), flags: Mapping[str, Any]
) -> list[Layer]:
    """What the user said, from the weakest to the strongest way of saying it. A flag that is None was not given."""
    layers = [Layer(f"--config {config}", read_toml(config, sections))] if config else []
    layers += [Layer(f"--set {text}", dict([parse_assignment(text)])) for text in assignments]
    layers += from_environment(sections, os.environ)
    given = {key: value for key, value in flags.items() if value is not None}
    return [*layers, Layer("flag", given)] if given else layers


def parse_assignment(text: str) -> tuple[str, Any]:
    """`model.image_size=[224, 320]` as key and value; the right side is TOML, or a bare word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {text!r} assigns nothing.", "Written as key=value.", "For example --set model.image_size=384"
        )
    return key.strip(), _toml_value(value.strip())


def read_toml(path: Path, sections: Sections) -> dict[str, Any]:
    """A config file's values by dotted key."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"Cannot read the config {path}: {error.strerror}.", "A TOML file.", "Check the path."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.", "Tables such as [model].", "Correct that line.") from None
    return dict(_flatten(tables, set(known_keys(sections))))


def from_environment(sections: Sections, environment: Mapping[str, str]) -> list[Layer]:
    """VITRAIL_MODEL_IMAGE_SIZE=384 sets model.image_size."""
    spelled = {"VITRAIL_" + key.upper().replace(".", "_"): key for key in known_keys(sections)}
    prefixes = tuple(f"VITRAIL_{name.upper()}_" for name in sections)
    layers = []
    for name in sorted(environment):
        if name in spelled:
            layers.append(Layer(f"environment {name}", {spelled[name]: _toml_value(environment[name])}))
        elif name.startswith(prefixes):
            raise ConfigError(f"The environment sets {name}, which names no setting.", did_you_mean(name, spelled))
    return layers


def known_keys(sections: Sections) -> Iterator[str]:
    """Every dotted key: model.image_size, model.resnet.layers, ..."""
    for name, kind in sections.items():
        yield from _keys(name, kind)


def stored(section: str, record: Frozen, origin: str) -> Layer:
    """A record's values that differ from the defaults, as the layer of the checkpoint or variant they came from."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    return Layer(origin, {f"{section}.{name}": value for name, value in fields.items() if value != defaults[name]})


_ABSENT = object()


def _keys(prefix: str, kind: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        yield f"{prefix}.{field.name}"
        for part in getattr(field.type, "__args__", ()):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from _keys(f"{prefix}.{field.name}", part)


def _flatten(tables: Mapping[str, Any], known: set[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tables.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and (key not in known or any(other.startswith(f"{key}.") for other in known)):
            yield from _flatten(value, known, f"{key}.")
        else:
            yield key, value


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, leaf = path
    for name in parents:
        inner = tree.get(name)
        if isinstance(inner, msgspec.Struct):  # a nested record of a weaker layer: open it up
            inner = {field: getattr(inner, field) for field in inner.__struct_fields__}
        tree[name] = inner if isinstance(inner, dict) else {}
        tree = tree[name]
    tree[leaf] = value


def _value(records: Mapping[str, Any], key: str) -> Any:
    section, *path = key.split(".")
    value = records[section]
    for name in path:
        value = getattr(value, name, _ABSENT)
    return value


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return {"none": None, "null": None}.get(text.lower(), text)
