"""The model card: README.md beside the weights, for people and, in its first lines, for model hubs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitrail.config import ViTConfig
from vitrail.train.config import TrainConfig
from vitrail.train.data import TrainingData

MOST_LABELS = 10


@dataclass(frozen=True)
class Score:
    """One line of the table: a name people know, a number, its interval, and what a hub calls it."""

    name: str
    value: str
    interval: str = ""
    type: str = ""  # the hub's own word, such as accuracy; without one it is not told to hubs
    number: float = 0.0


def card(
    config: ViTConfig,
    labels: Sequence[str],
    train: TrainConfig,
    data: TrainingData,
    epoch: int,
    scores: Sequence[Score],
) -> str:
    """README.md of a trained model: how good it is, what it was trained on, how to use it and to make it again."""
    on = f"{len(data.val):,} validation pictures" if data.val else "its training pictures: there were no others"
    return "\n".join(
        [
            *front_matter(data, scores),
            "",
            f"# Vision Transformer: {', '.join(shown(labels))}",
            "",
            f"{config.hidden_size} wide, {config.num_hidden_layers} blocks, {config.num_attention_heads} heads, "
            f"{'a convolutional stem, ' if config.resnet else ''}pictures of {config.image_size[0]} x "
            f"{config.image_size[1]}, {len(labels)} classes. Whatever a picture shows, the answer is one of them.",
            "",
            "```python",
            "import vitrail",
            "",
            'vitrail.predict("this folder", "picture.jpg")',
            "```",
            "",
            f"## After epoch {epoch} of {train.epochs}, on {on}",
            "",
            "| measure | value | 95% interval |",
            "|---|---|---|",
            *(f"| {score.name} | {score.value} | {score.interval} |" for score in scores),
            "",
            "## Made from",
            "",
            f"- {len(data.train):,} training pictures; fingerprint of the data `{data.fingerprint}`",
            f"- {'weights' if Path(train.model).exists() else 'the shape'} `{Path(train.model).name or train.model}`, "
            f"seed {train.seed}",
            "- made again by `vitrail train --config config.toml` with the config.toml of its run directory",
            "",
        ]
    )


def front_matter(data: TrainingData, scores: Sequence[Score]) -> Iterator[str]:
    """What hubs read. JSON strings are YAML strings too."""
    yield from ("---", "library_name: vitrail", "pipeline_tag: image-classification")
    yield "tags: [vision-transformer, image-classification]"
    told = [score for score in scores if score.type]
    if told:
        name = json.dumps(Path(data.root).resolve().stem)
        metrics = ", ".join(f"{{type: {score.type}, value: {score.number:.6g}}}" for score in told)
        yield from ("model-index:", f"- name: {name}", "  results:", "  - task: {type: image-classification}")
        yield f"    dataset: {{type: imagefolder, name: {name}}}"
        yield f"    metrics: [{metrics}]"
    yield "---"


def shown(labels: Sequence[str]) -> list[str]:
    """The first names, on one line."""
    names = [" ".join(label.split()) for label in labels[:MOST_LABELS]]
    return [*names, f"and {len(labels) - MOST_LABELS} more"] if len(labels) > MOST_LABELS else names


def epoch_scores(row: Mapping[str, float]) -> list[Score]:
    """The table of an epoch that has just ended; the report at the end of the run has more."""
    names = {"val_top1": "top-1", "val_top5": "top-5", "val_loss": "loss", "train_loss": "training loss"}
    return [Score(name, f"{row[key]:.4f}") for key, name in names.items() if row.get(key) is not None]
