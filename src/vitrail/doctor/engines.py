"""Each engine, tried for real on a tiny model, in a process of its own: one that crashes takes only that process down.

python -m vitrail.doctor.engines openvino      # what the child runs: JSON on stdout
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from importlib import import_module

import msgspec

from vitrail.doctor.report import Attempt
from vitrail.engines.base import HOMES, ONLY_EXACT, Job, Precision, card_of, cores
from vitrail.errors import VitrailError

SECONDS = 120  # an engine that has not answered a tiny model by then hangs
TINY = {
    "image_size": (32, 48),
    "patch_size": (8, 8),
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "num_classes": 10,
}
PICTURES, REPEATS = 4, 5


def in_a_child(name: str) -> list[Attempt]:
    """An engine tried in another process."""
    try:
        child = subprocess.run(command(name), capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [failed(name, f"no answer within {SECONDS} seconds")]
    if child.returncode:
        return [failed(name, how_it_ended(child.returncode, child.stderr))]
    return msgspec.json.decode(child.stdout.splitlines()[-1], type=list[Attempt])


def command(name: str) -> list[str]:
    """What the child is started with."""
    return [sys.executable, "-m", "vitrail.doctor.engines", name]


def how_it_ended(code: int, errors: str) -> str:
    """The signal that ended a process, or the last line it wrote."""
    if code < 0:
        return f"its process died of {signal.Signals(-code).name}"
    return (errors.strip().splitlines() or [f"exit code {code}"])[-1]


def try_engine(name: str) -> list[Attempt]:
    """An engine in this process, in each precision it has."""
    precisions: tuple[Precision, ...] = ("exact",) if name in ONLY_EXACT else ("exact", "balanced")
    return [try_precision(name, precision) for precision in precisions]


def try_precision(name: str, precision: Precision) -> Attempt:
    """An engine's answers for the sample photos, beside those of the model in float32."""
    from vitrail.config import ViTConfig, build
    from vitrail.engines.fold import fold
    from vitrail.engines.samples import sample_pictures
    from vitrail.engines.trust import agreement, reference
    from vitrail.model.vit import create

    model = create(build(ViTConfig, TINY | {"initializer": "timm"}), seed=0)
    job = Job(precision=precision, size=model.config.image_size, batch=PICTURES, threads=cores())
    pictures = sample_pictures(job.size, model.config.num_channels, job.depth, PICTURES)
    try:
        engine = import_module(HOMES[name]).build(fold(model, job.size, job.outputs, job.depth), card_of(model), job)
        near = agreement(engine, reference(model, job, pictures))
        start = time.perf_counter()
        for _ in range(REPEATS):
            engine.run(pictures)
        milliseconds = 1000 * (time.perf_counter() - start) / REPEATS / PICTURES
    except VitrailError as error:
        return failed(name, error.found, precision)
    except Exception as error:  # runtimes raise what they like
        return failed(name, f"{type(error).__name__}: {error}", precision)
    works, reason = near.enough(precision), "" if near.enough(precision) else f"not the model's answers: {near}"
    return Attempt(
        engine=name, precision=precision, works=works, error=near.error, milliseconds=milliseconds, reason=reason
    )


def failed(name: str, reason: str, precision: str = "exact") -> Attempt:
    """An engine that gave no answer."""
    return Attempt(engine=name, precision=precision, works=False, reason=reason)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(try_engine(sys.argv[1])).decode() + "\n")
