"""Runs a model with ONNX Runtime: one graph of standard operators, for any number of pictures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.engines import folded as f
from vitrail.engines.base import Card, Job, Outputs, Pictures, batches, check_pictures, extra, outputs_of

GRAPH, WEIGHTS = "graph.onnx", "graph.weights"
PAGE = 4096  # constants begin on a page, so that they can be mapped
AXES = {
    "logits": ["batch", "classes"],
    "token": ["batch", "dim"],
    "mean": ["batch", "dim"],
    "grid": ["batch", "patches", "dim"],
}
SMALL = 1024  # bytes; a smaller constant stays inside the graph


class OnnxEngine:
    """A session over a graph."""

    name = "onnxruntime"

    def __init__(self, session: Any, card: Card, job: Job, graph: OnnxGraph | None = None) -> None:
        self.session, self.card, self.job, self._graph = session, card, job, graph

    def run(self, pictures: Pictures) -> Outputs:
        """Pictures to what the job asks for, a batch at a time."""
        pictures = check_pictures(pictures, self.card, self.job)
        names = list(self.job.outputs)
        found = [self.session.run(names, {"pictures": batch}) for batch in batches(pictures, self.job.batch)]
        arrays = [np.concatenate(parts)[: len(pictures)] for parts in zip(*found, strict=True)]
        return outputs_of(dict(zip(self.job.outputs, arrays, strict=True)), self.card, self.job)

    def save(self, folder: Path) -> None:
        """Write the graph into a folder, for `load`."""
        assert self._graph, "an engine that was loaded is already saved"
        self._graph.write(folder / GRAPH, folder / WEIGHTS)


@dataclass(frozen=True)
class OnnxGraph:
    """A graph whose large constants are beside it: one file of a protocol buffer ends at 2 GB."""

    proto: Any
    outside: dict[str, f.Array]

    def write(self, path: Path, weights: Path) -> None:
        """Two files; the graph finds the other under the name given to `describe`."""
        path.write_bytes(self.proto.SerializeToString())
        with weights.open("wb") as file:
            for array in self.outside.values():
                file.write(bytes(-file.tell() % PAGE))
                file.write(array.data)


def build(model: f.Folded, card: Card, job: Job) -> OnnxEngine:
    """The engine for a folded model."""
    runtime, graph = onnxruntime(), describe(model, card, job, WEIGHTS)
    options = session_options(job)
    values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in graph.outside.values()]
    options.add_external_initializers(list(graph.outside), values)
    return OnnxEngine(session(graph.proto.SerializeToString(), options), card, job, graph)


def load(folder: Path, card: Card, job: Job) -> OnnxEngine:
    """The engine from a saved graph."""
    return OnnxEngine(session(str(folder / GRAPH), session_options(job)), card, job)


def describe(model: f.Folded, card: Card, job: Job, location: str) -> OnnxGraph:
    """A folded model as an ONNX graph: `pictures` in, the job's outputs out; large constants in the file `location`."""
    from vitrail.engines.graph import run
    from vitrail.engines.onnx_ops import IR_VERSION, OPSET, OnnxOps, onnx

    ops, proto = OnnxOps(), onnx().TensorProto
    named = run(ops, model, "pictures", job.outputs)
    nodes = [*ops.nodes, *(onnx().helper.make_node("Identity", [named[name]], [name]) for name in job.outputs)]
    kind, shape = (proto.UINT8 if job.depth == 8 else proto.UINT16), ["batch", *job.size, card.config.num_channels]
    graph = onnx().helper.make_graph(
        nodes,
        "vitrail",
        [onnx().helper.make_tensor_value_info("pictures", kind, shape)],
        [onnx().helper.make_tensor_value_info(name, proto.FLOAT, AXES[name]) for name in job.outputs],
    )
    outside = {name: array for name, array in ops.constants.items() if array.nbytes > SMALL}
    graph.initializer.extend(
        onnx().numpy_helper.from_array(array, name) for name, array in ops.constants.items() if name not in outside
    )
    graph.initializer.extend(pointers(outside, location))
    opset = onnx().helper.make_opsetid("", OPSET)
    return OnnxGraph(onnx().helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION), outside)


def pointers(arrays: dict[str, f.Array], location: str) -> list[Any]:
    """Constants that say where in another file they are."""
    from vitrail.engines.onnx_ops import onnx

    offset, found = 0, []
    for name, array in arrays.items():
        offset += -offset % PAGE
        tensor = onnx().TensorProto(name=name, dims=array.shape, data_type=onnx().TensorProto.FLOAT)
        tensor.data_location = onnx().TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        found.append(tensor)
        offset += array.nbytes
    return found


def session_options(job: Job) -> Any:
    """What ONNX Runtime is told."""
    options = onnxruntime().SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    options.log_severity_level = 3
    # Between two runs its threads would spin, on the cores that read the next pictures.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def session(model: bytes | str, options: Any) -> Any:
    """An open session on the CPU."""
    return onnxruntime().InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnxruntime() -> Any:
    """The onnxruntime module, told to keep to itself before it is imported: everything of ours gets it here.

    Its Linux and macOS builds from 1.29 on write an identifier into the home folder at import and report sessions and
    a hash of the weights to their maker (microsoft/onnxruntime#27379). The variable stops both; the function does not.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime as module
    except ImportError as error:
        raise extra("onnxruntime", error) from error
    return module
