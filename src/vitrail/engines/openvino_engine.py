"""Runs a model with OpenVINO: one graph for one picture, on as many streams as pictures come at once.

A graph of fixed shape for a single picture is the fastest form on a CPU for any batch: several pictures run side by
side on streams of fewer threads each, which share the weights (measurements: docs/experiments.md).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from vitrail.engines import folded as f
from vitrail.engines.base import Card, Job, Outputs, Pictures, check_pictures, outputs_of
from vitrail.engines.openvino_runtime import core, runtime

PRECISION = {"exact": "f32", "balanced": "bf16"}
GRAPH = "openvino.blob"
GIVE_BACK = 0.005  # seconds


class OpenVinoEngine:
    """A compiled graph and the requests that run it, one per stream."""

    name = "openvino"

    def __init__(self, compiled: Any, card: Card, job: Job, held: object = None) -> None:
        """`held` is memory the compiled graph reads without owning it."""
        self.compiled, self.card, self.job, self._held = compiled, card, job, held
        self.requests = [compiled.create_infer_request() for _ in range(streams(job))]
        self._inputs = [request.input_tensors[0].data for request in self.requests]
        self._outputs = [[tensor.data for tensor in request.output_tensors] for request in self.requests]

    def run(self, pictures: Pictures) -> Outputs:
        """Pictures to what the job asks for; each stream takes every so-manyth picture."""
        pictures = check_pictures(pictures, self.card, self.job)
        count, lanes = len(pictures), len(self.requests)
        results = [np.empty((count, *view.shape[1:]), np.float32) for view in self._outputs[0]]
        for index in range(count + lanes):
            lane, before = index % lanes, index - lanes
            if 0 <= before < count:
                self.requests[lane].wait()
                for result, view in zip(results, self._outputs[lane], strict=True):
                    result[before] = view[0]
            if index < count:
                self._inputs[lane][0] = pictures[index]
                self.requests[lane].start_async()
        return outputs_of(dict(zip(self.job.outputs, results, strict=True)), self.card, self.job)

    def save(self, folder: Path) -> None:
        """Write the compiled graph into a folder, for `load`."""
        (folder / GRAPH).write_bytes(self.compiled.export_model().getbuffer())


def build(model: f.Folded, card: Card, job: Job) -> OpenVinoEngine:
    """The engine for a folded model."""
    from vitrail.engines.graph import run
    from vitrail.engines.openvino_ops import OpenVinoOps

    ov, ops = runtime(), OpenVinoOps(half=job.precision == "balanced")
    pictures = ops.op.parameter([1, *job.size, card.config.num_channels], ov.Type.u8 if job.depth == 8 else ov.Type.u16)
    named = run(ops, model, pictures, job.outputs)
    graph = ov.Model([ops.op.result(named[name]) for name in job.outputs], [pictures], "vitrail")
    return OpenVinoEngine(core().compile_model(graph, "CPU", settings(job)), card, job)


def load(folder: Path, card: Card, job: Job) -> OpenVinoEngine:
    """The engine from a compiled graph, mapped rather than read."""
    ov = runtime()
    with (folder / GRAPH).open("rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    blob = ov.Tensor(np.frombuffer(held, np.uint8), shared_memory=True)
    with given_back(held):
        compiled = core().import_model(blob, "CPU", settings(job))
    return OpenVinoEngine(compiled, card, job, blob)


@contextmanager
def given_back(held: mmap.mmap) -> Iterator[None]:
    """While a runtime packs a file's weights elsewhere, the pages it has read leave memory every few milliseconds.

    A model is then in memory once, not twice: B/16 in bfloat16 peaks at 274 MB instead of 430. A page that is read
    again comes back from the file, since nobody writes to it.
    """
    done = Event()

    def give_back() -> None:
        while not done.wait(GIVE_BACK):
            held.madvise(mmap.MADV_DONTNEED)
        held.madvise(mmap.MADV_DONTNEED)

    thread = Thread(target=give_back, name="vitrail-pages")
    if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.is_alive():
            thread.join()


def streams(job: Job) -> int:
    """How many pictures run side by side."""
    return max(1, min(job.batch, job.threads))


def settings(job: Job) -> dict[str, str | int]:
    """What the CPU plugin is told."""
    return {
        "INFERENCE_PRECISION_HINT": PRECISION[job.precision],
        "PERFORMANCE_HINT": "LATENCY" if streams(job) == 1 else "THROUGHPUT",
        "NUM_STREAMS": streams(job),
        "INFERENCE_NUM_THREADS": job.threads,
    }
