"""One library over one batch of pictures, in a process of its own: `python -m bench.forward LIBRARY FOLDER THREADS`.

The folder holds `pictures.npy` and the model in every form. A number on stdin asks for so many runs, whose seconds go
to stdout; what the library answers is in `LIBRARY.npy`.
"""

# Libraries are imported by whoever runs them: vitrail's process has no torch, as a user's has none.

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.config import Preprocess

if TYPE_CHECKING:
    import torch

Run = Callable[[], np.ndarray]
NATIVE, TIMM, EXPORT = "native", "timm", "timm.onnx"


def timm(folder: Path, threads: int, dtype: str = "float32") -> Run:
    """timm's model."""
    from bench.peers import peer

    (weights,) = (folder / TIMM).glob("*.safetensors")
    size = np.load(folder / "pictures.npy", mmap_mode="r").shape[1]
    model = peer("timm").create_model("vit_base_patch16_224", img_size=size, checkpoint_path=str(weights)).eval()
    return in_torch(model, folder, threads, dtype)


def transformers(folder: Path, threads: int) -> Run:
    """transformers' model."""
    from bench.peers import peer

    model = peer("transformers").ViTForImageClassification.from_pretrained(folder / NATIVE).eval()
    return in_torch(model, folder, threads, "float32", lambda answer: answer.logits)


def in_torch(
    model: torch.nn.Module, folder: Path, threads: int, dtype: str, logits: Callable[[Any], Any] = lambda answer: answer
) -> Run:
    """A torch model on images that are already normalised for it."""
    import torch

    torch.set_num_threads(threads)
    model, images = model.to(getattr(torch, dtype)), normalised(folder).to(getattr(torch, dtype))

    def run() -> np.ndarray:
        with torch.inference_mode():
            return logits(model(images)).float().numpy()

    return run


def openvino(folder: Path, threads: int, precision: str) -> Run:
    """OpenVINO as its manual says: timm's exported graph, of fixed shape, all threads on one request."""
    from vitrail.engines.openvino_runtime import runtime

    core, images = runtime().Core(), normalised(folder).numpy()
    model = core.read_model(folder / EXPORT)
    model.reshape(list(images.shape))
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", **settings})
    return lambda: compiled(images)[0]


def vitrail(folder: Path, threads: int, precision: Any) -> Run:
    """The engine that --engine auto chose before, on pictures as they come from the resize."""
    from vitrail.engines.for_model import engine_for

    pictures = np.load(folder / "pictures.npy")
    engine = engine_for(str(folder / NATIVE), precision=precision, batch=len(pictures), threads=threads)
    return lambda: engine.run(pictures).logits  # type: ignore[return-value]


def without_trial(folder: Path, threads: int, precision: Any) -> Run:
    """The engine that wins the trial at 224; at 1,024 pixels the trial itself takes minutes."""
    import vitrail
    from vitrail.engines.base import Job, card_of
    from vitrail.engines.fold import fold
    from vitrail.engines.openvino_engine import build

    pictures, model = np.load(folder / "pictures.npy"), vitrail.load(str(folder / NATIVE))
    job = Job(precision=precision, size=model.preprocess.size, batch=len(pictures), threads=threads)
    engine = build(fold(model, job.size), card_of(model), job)
    return lambda: engine.run(pictures).logits  # type: ignore[return-value]


def normalised(folder: Path) -> torch.Tensor:
    """The pictures as everybody but vitrail wants them; this is done before the clock runs."""
    from vitrail.images.transforms import normalise

    return normalise(np.load(folder / "pictures.npy"), Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3))


LIBRARIES: dict[str, Callable[[Path, int], Run]] = {
    "timm fp32": timm,
    "transformers fp32": transformers,
    "OpenVINO f32, timm's export": partial(openvino, precision="f32"),
    "timm bf16": partial(timm, dtype="bfloat16"),
    "OpenVINO bf16, timm's export": partial(openvino, precision="bf16"),
    "vitrail exact": partial(vitrail, precision="exact"),
    "vitrail balanced": partial(vitrail, precision="balanced"),
    "vitrail exact, openvino": partial(without_trial, precision="exact"),
    "vitrail balanced, openvino": partial(without_trial, precision="balanced"),
}


def main() -> None:
    library, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    run = LIBRARIES[library](folder, threads)
    np.save(folder / f"{library}.npy", run())
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        print(*seconds, flush=True)


if __name__ == "__main__":
    main()
