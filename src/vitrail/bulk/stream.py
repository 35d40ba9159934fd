"""Sources to answers, in order: pictures are read ahead in threads while the engine works on those before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from vitrail.bulk.rows import name_of
from vitrail.bulk.settings import PictureConfig
from vitrail.engines.base import Engine, Outputs
from vitrail.errors import CheckpointError
from vitrail.images.decode import Source
from vitrail.images.loader import Batch, batches

NOTHING = Outputs()


def stream(
    engine: Engine, sources: Iterable[Source], pictures: PictureConfig, *, batch_size: int | None = None
) -> Iterator[tuple[Batch, Outputs]]:
    """Every source in exactly one batch, with a row of each output per good file.

    The engine runs in a thread of its own, so that whoever takes the answers may write while it computes the next.
    """
    found = batches(
        sources,
        engine.card.preprocess,
        batch_size=batch_size or engine.job.batch,
        workers=pictures.workers or None,
        depth=pictures.depth,
        options=pictures.decoding,
    )
    with ThreadPoolExecutor(1, thread_name_prefix="vitrail-engine") as pool:
        waiting: tuple[Batch, Future[Outputs]] | None = None
        for batch in found:
            running = pool.submit(answered, engine, batch)
            if waiting:
                yield waiting[0], waiting[1].result()
            waiting = batch, running
        if waiting:
            yield waiting[0], waiting[1].result()


def answered(engine: Engine, batch: Batch) -> Outputs:
    """The engine's outputs for the good files of a batch; what is no number is an error, not an answer."""
    if not batch.good:
        return NOTHING
    outputs = engine.run(batch.pixels)
    for name in engine.job.outputs:
        values = getattr(outputs, name)
        bad = ~np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if bad.any():
            raise CheckpointError(
                f"The model's {name} for {name_of(batch.good[int(bad.argmax())])} are not finite.",
                "Numbers.",
                "Try --precision exact; if that is no better, the weights are damaged: vitrail inspect.",
            )
    return outputs
