"""Explain a model's answers: pictures in, one Explained per picture out, with a view per method asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitrail.config import Pair, Preprocess
from vitrail.explain.faithfulness import Scores
from vitrail.explain.methods import METHODS, View, check_options, known_methods, shared_pass, views
from vitrail.explain.record import evaluating, size_of
from vitrail.explain.scored import with_scores
from vitrail.explain.target import Asked, asked_of, target_of
from vitrail.images.decode import Source
from vitrail.images.loader import File, batches
from vitrail.images.reading import BadPicture, shown
from vitrail.images.shards import Member
from vitrail.images.transforms import normalise
from vitrail.model.vit import VisionTransformer

DEFAULT = "relevance"
TOP = 5


@dataclass(frozen=True)
class Explained:
    """One picture: what the model saw (height x width x 3), what it answered, and each method's view of why.

    `target` and `label` are the class that is explained; None for a model without classes, whose own features are.
    `chance` is what a random order scores on this picture, where scores were asked for.
    """

    name: str
    picture: NDArray[np.uint8]
    grid: Pair
    target: int | None
    label: str | None
    confidence: float
    top: list[tuple[str, float]]
    views: dict[str, View]
    chance: Scores | None = None


def explain(
    model: VisionTransformer,
    images: Tensor | Source | Sequence[Source],
    method: str | Sequence[str] = DEFAULT,
    *,
    target: Asked = None,
    scores: bool = False,
    batch_size: int = 8,
    **options: Any,
) -> list[Explained]:
    """Explain each picture (normalised tensors, paths, Pillow pictures, arrays) by one or more methods, or "all".

    `target` is a class by number or label (None: the one predicted). `scores` measures how far to
    trust each map, beside a random order.
    `options` go to the methods that take them (layer, head, query, fuse, keep, discard, steps, window ...).
    """
    if isinstance(images, Tensor):
        return list(explained_tensors(model, images, method, target, scores, batch_size, options))
    one = isinstance(images, (str, bytes)) or not isinstance(images, Sequence)
    sources: Sequence[Source] = [images] if one else images  # type: ignore[assignment,list-item]
    found = []
    for file, result in explain_files(
        model, sources, method, target=target, scores=scores, batch_size=batch_size, **options
    ):
        if result is None:
            assert file.error is not None
            raise BadPicture(
                file.error.reason, f"{name_of(file)}: {file.error.found}", file.error.expected, file.error.fix
            )
        found.append(result)
    return found


def explain_files(
    model: VisionTransformer,
    sources: Iterable[Source],
    method: str | Sequence[str] = DEFAULT,
    *,
    target: Asked = None,
    scores: bool = False,
    batch_size: int = 8,
    **options: Any,
) -> Iterator[tuple[File, Explained | None]]:
    """Every file in order, with its explanation, or None where the file has an error; a few pictures at a time."""
    names = known_methods(method)
    options = check_options(names, options)
    done = 0
    for batch in batches(sources, model.preprocess, batch_size=batch_size):
        asked = asked_of(target, done, len(batch.files))
        done += len(batch.files)
        if isinstance(asked, Sequence) and not isinstance(asked, str):
            asked = [one for one, file in zip(asked, batch.files, strict=True) if file.error is None]
        images = normalise(batch.pixels, model.preprocess)
        pixels = [as_rgb(one) for one in batch.pixels]
        results = iter(
            explained(model, images, [name_of(file) for file in batch.good], pixels, names, asked, scores, options)
        )
        for file in batch.files:
            yield file, None if file.error else next(results)


def explained_tensors(
    model: VisionTransformer,
    images: Tensor,
    method: str | Sequence[str],
    target: Asked,
    scores: bool,
    batch_size: int,
    options: dict[str, Any],
) -> Iterator[Explained]:
    """Tensors that are already normalised; the picture shown is what they stand for."""
    names = known_methods(method)
    options = check_options(names, options)
    for start in range(0, len(images), batch_size):
        some = images[start : start + batch_size]
        asked = asked_of(target, start, len(some))
        labels = [f"image-{start + i}" for i in range(len(some))]
        yield from explained(model, some, labels, seen_pictures(some, model.preprocess), names, asked, scores, options)


def explained(
    model: VisionTransformer,
    images: Tensor,
    names: Sequence[str],
    pictures: Sequence[NDArray[np.uint8]],
    methods: Sequence[str],
    asked: Asked,
    scores: bool,
    options: dict[str, Any],
) -> list[Explained]:
    """One batch."""
    if not len(images):
        return []
    recording = shared_pass(model, images, methods, asked)
    with evaluating(model):
        outputs = recording.outputs if recording else model(images)
        target = recording.target if recording else target_of(model, outputs, asked)
        confidence, tops = target.confidence(outputs).tolist(), top_answers(model, outputs)
    found = views(model, images, methods, target, options, recording)
    chance: Sequence[Scores | None] = [None] * len(images)
    if scores:
        found, chance = with_scores(model, images, target, found, options)
    classes = [None] * len(images) if target.classes is None else target.classes.tolist()
    labels = [None if one is None else model.labels[one] for one in classes]
    grid = model.config.grid_for(size_of(images))
    rows = zip(names, pictures, classes, labels, confidence, tops, found, chance, strict=True)
    return [Explained(name, picture, grid, *rest) for name, picture, *rest in rows]


def top_answers(model: VisionTransformer, outputs: Tensor) -> list[list[tuple[str, float]]]:
    """The likeliest labels of each image with their probabilities; none without a classifier."""
    if not model.config.num_classes:
        return [[] for _ in outputs]
    chances = outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(1)
    values, classes = chances.topk(min(TOP, chances.shape[1]))
    return [
        [(model.labels[i], value) for i, value in zip(*both, strict=True)]
        for both in zip(classes.tolist(), values.tolist(), strict=True)
    ]


def seen_pictures(images: Tensor, preprocess: Preprocess) -> list[NDArray[np.uint8]]:
    """Normalised tensors back to pictures: height x width x 3."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (preprocess.mean, preprocess.std))
    levels = (images.detach().cpu().float() * std + mean).clamp(0, 1) * 255
    return [as_rgb(one) for one in levels.round().to(torch.uint8).permute(0, 2, 3, 1).numpy()]


def as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Any number of channels as something to look at: one is grey, of more than three the first three are shown."""
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    if pixels.shape[2] < 3:
        pixels = pixels[..., :1].repeat(3, axis=2)
    return np.ascontiguousarray(pixels[..., :3])


def name_of(file: File) -> str:
    """A file's path, its place in a tar, or in the list."""
    if isinstance(file.source, (str, os.PathLike)):
        return shown(file.source)
    return str(file.source) if isinstance(file.source, Member) else f"image-{file.index}"


__all__ = ["DEFAULT", "METHODS", "Explained", "explain", "explain_files"]
