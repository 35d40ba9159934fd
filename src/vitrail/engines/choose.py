"""Which engine runs a model: the quickest on this machine whose answers are the model's own.

engine = open_engine(model)                    # tries the engines, checks their answers, says what it chose
engine = open_engine(load, files=[weights])    # a known model: no trial, no torch, `load` is never called
engine.run(pictures).logits
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from vitrail.config import Frozen, Pair
from vitrail.engines.base import (
    HOMES,
    ONLY_EXACT,
    Asked,
    Card,
    Engine,
    EngineName,
    Job,
    Output,
    Pictures,
    Precision,
    Saveable,
    card_of,
    cores,
)
from vitrail.engines.cache import Cache, Known, default_cache, key, stat_of
from vitrail.errors import EnvironmentProblem, UsageError, did_you_mean

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

PROOF = "proof.npy"
CLOSE = {"exact": 1e-3, "balanced": 2e-2}  # between an engine's answers before and after it was saved


class Choice(Frozen, frozen=True, kw_only=True):
    """What was chosen, and all that is needed to open it again."""

    engine: str
    job: Job
    card: Card
    graph: str
    why: tuple[str, ...]


def open_engine(
    model: VisionTransformer | Callable[[], VisionTransformer],
    *,
    engine: EngineName = "auto",
    precision: Precision | None = None,
    outputs: Sequence[Output] = ("logits",),
    size: Pair | None = None,
    depth: Literal[8, 16] = 8,
    batch: int = 1,
    threads: int | None = None,
    files: Iterable[Path] = (),
    pictures: Pictures | None = None,
    say: Callable[[str], None] = lambda line: None,
    cache: Cache | None = None,
) -> Engine:
    """An engine for a model (or for what loads it) and pictures of one size, of which `batch` come at once.

    `files` are what the model is loaded from: while they are unchanged, the choice made for them is used again.
    `pictures` are real ones to compare answers on; by default the photos that come with vitrail.
    """
    asked = Asked(
        engine=engine,
        precision=precision,
        outputs=tuple(outputs),
        size=size,
        depth=depth,
        batch=batch,
        threads=cores() if threads is None else threads,
    )
    check(asked)
    cache, files = cache or default_cache(), list(files)
    known = cache.read("weights", stat_of(files), Known) if files else None
    found = remembered(cache, known.weights, asked, model, say) if known else None
    if found:
        return found
    loaded = the_model(model)
    weights = identity(loaded)
    if files:
        cache.write("weights", stat_of(files), Known(weights))
    return remembered(cache, weights, asked, loaded, say) or choose(cache, weights, asked, loaded, pictures, say)


def check(asked: Asked) -> None:
    """Refuse a question that makes no sense."""
    for field, words in (("engine", get_args(EngineName)), ("precision", get_args(Precision))):
        word = getattr(asked, field)
        if word is not None and word not in words:
            raise UsageError(f"{field} is {word!r}.", did_you_mean(word, words), f"One of: {', '.join(words)}.")
    unknown = [name for name in asked.outputs if name not in get_args(Output)]
    if unknown or not asked.outputs:
        raise UsageError(f"outputs are {list(asked.outputs)}.", f"Some of {', '.join(get_args(Output))}.", "")
    if asked.precision == "balanced" and asked.engine in ONLY_EXACT:
        raise UsageError(f"{asked.engine} computes in float32.", "balanced is bfloat16.", "Use --precision exact.")
    if asked.batch < 1 or asked.threads < 1:
        raise UsageError(f"batch is {asked.batch}, threads is {asked.threads}.", "Each is 1 or more.", "")


def remembered(
    cache: Cache,
    weights: str,
    asked: Asked,
    model: VisionTransformer | Callable[[], VisionTransformer],
    say: Callable[[str], None],
) -> Engine | None:
    """The engine chosen before for this model and question, if it still answers as it did."""
    choice = cache.read("choices", key(weights, asked), Choice)
    if choice is None:
        return None
    torch_needs_the_model = choice.engine == "torch"
    found = built("torch", the_model(model), choice) if torch_needs_the_model else reopened(cache, choice)
    if found:
        say(f"{choice.why[-1]} Chosen before.")
    return found


def reopened(cache: Cache, choice: Choice) -> Engine | None:
    """A saved graph as an engine; a graph that no longer gives the answer it was saved with is dropped."""
    folder = cache.graph(choice.graph)
    if folder is None:
        return None
    try:
        engine: Engine = import_module(HOMES[choice.engine]).load(folder, choice.card, choice.job)
        expected, got = np.load(folder / PROOF), answer(engine)
        if np.abs(got - expected).max() <= CLOSE[choice.job.precision] * max(1.0, float(np.abs(expected).max())):
            return engine
    except EnvironmentProblem:  # the runtime has been removed since
        return None
    except Exception:  # whatever a runtime raises over a damaged file
        cache.forget(choice.graph)
        return None
    cache.forget(choice.graph)
    return None


def choose(
    cache: Cache,
    weights: str,
    asked: Asked,
    model: VisionTransformer,
    pictures: Pictures | None,
    say: Callable[[str], None],
) -> Engine:
    """Try the engines that can do it, keep the quickest that can be trusted, and remember it."""
    from vitrail.engines.trial import trial

    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        say(line)

    engine = trial(model, asked, pictures, tell)
    try:
        graph = saved(cache, weights, engine)
        choice = Choice(engine=engine.name, job=engine.job, card=engine.card, graph=graph, why=tuple(lines))
        cache.write("choices", key(weights, asked), choice)
    except OSError as error:
        say(f"The choice could not be kept for the next time: {error}.")
    return engine


def saved(cache: Cache, weights: str, engine: Engine) -> str:
    """Keep what an engine compiled, with its answer to one picture; the key it is found under."""
    if not isinstance(engine, Saveable):
        return ""
    # However many pictures come at once, the graph is the same.
    graph = key(weights, engine.name, msgspec.structs.replace(engine.job, batch=1, threads=1))
    if cache.graph(graph) is None:

        def write(folder: Path) -> None:
            engine.save(folder)
            np.save(folder / PROOF, answer(engine))

        cache.save(graph, write)
    return graph


def answer(engine: Engine) -> NDArray[np.float32]:
    """What an engine makes of one fixed picture: some thousand numbers that a damaged graph would not give again."""
    job, channels = engine.job, engine.card.config.num_channels
    shape = (1, *job.size, channels)
    pattern = np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(16)
    outputs = engine.run((pattern % 2**job.depth).astype(f"uint{job.depth}").reshape(shape))
    first = getattr(outputs, job.outputs[0])
    assert first is not None
    return np.asarray(first, np.float32).reshape(-1)[:4096]


def built(name: str, model: VisionTransformer, choice: Choice) -> Engine:
    """An engine from the model it was chosen for."""
    from vitrail.engines.fold import fold

    folded = fold(model, choice.job.size, choice.job.outputs, choice.job.depth)
    engine: Engine = import_module(HOMES[name]).build(folded, choice.card, choice.job)
    return engine


def identity(model: VisionTransformer) -> str:
    """A hash of everything that makes a model this model."""
    import torch

    digest = hashlib.sha256(msgspec.json.encode(card_of(model)))
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def the_model(source: VisionTransformer | Callable[[], VisionTransformer]) -> VisionTransformer:
    """A model as it is, or loaded now."""
    from vitrail.model.vit import VisionTransformer

    return source if isinstance(source, VisionTransformer) else source()
