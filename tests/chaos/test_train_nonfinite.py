"""A number that is not finite, anywhere: is it caught in its step, traced to its module, and kept off the disk? (A6)"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from chaos.figures import report
from torch import nn
from train.tiny import RICH, TINY, make_pictures, run_tiny

from vitrail.checkpoint import container
from vitrail.train import loop
from vitrail.train.guard import Diverged
from vitrail.train.state import TrainState

pytestmark = pytest.mark.chaos
DEEP = {**TINY, "model.num_hidden_layers": 3, "train.epochs": 2}
MODULES = (
    *("stem.proj", "head.classifier", "encoder.norm"),
    *(f"encoder.blocks.{i}.{part}" for i in range(3) for part in ("norm1", "norm2", "attn.proj", "mlp.fc1", "mlp.fc2")),
)
CASES = 60


def pictures_of(folder: Path) -> Path:
    return make_pictures(folder / "pictures")


@contextmanager
def poison(state: TrainState, module: str, kind: str, value: float) -> Iterator[None]:
    """For one step, a module has a bad weight, a bad result, or a bad gradient."""
    place = state.model.get_submodule(module)
    if kind == "weight":
        weight: Any = place.weight
        flat = weight.data.view(-1)
        before = flat[flat.numel() // 2].clone()
        flat[flat.numel() // 2] = value
        yield
        flat[flat.numel() // 2] = before
        return

    def spoil(of: nn.Module, given: Any, result: torch.Tensor) -> torch.Tensor:
        if kind == "result":
            result = result.clone()
            result.view(-1)[0] = value
        elif result.requires_grad:
            result.register_hook(lambda gradient: gradient * value)
        return result

    handle = place.register_forward_hook(spoil)
    yield
    handle.remove()


def test_the_step_the_module_and_no_bad_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, data, real = random.Random(0), pictures_of(tmp_path), loop.take_step
    same_step = named = bad_checkpoints = 0
    wrong: list[str] = []
    for case in range(CASES):
        step, module = dice.randrange(8), dice.choice(MODULES)
        kind, value = dice.choice(["weight", "result", "gradient"]), dice.choice([float("nan"), float("inf")])
        extra = dice.choice([{}, RICH])

        def poisoned(job: Any, state: Any, batches: Any, p: Any = (step, module, kind, value)) -> Any:
            if state.progress.step != p[0]:
                return real(job, state, batches)
            with poison(state, *p[1:]):
                return real(job, state, batches)

        monkeypatch.setattr(loop, "take_step", poisoned)
        out = tmp_path / f"run {case}"
        with pytest.raises(Diverged):
            run_tiny(data, out, {**DEEP, **extra})
        events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
        found = next(event for event in events if event["event"] == "not finite")
        same_step += found["step"] == step
        named += found["module"] == module
        if found["module"] != module:
            wrong.append(f"{kind} {value} in {module}: {found['module']}")
        assert json.loads((out / "run.json").read_text())["status"] == "nan"
        for checkpoint in (out / "checkpoints").glob("step-*"):
            tensors = container.read(checkpoint / "state.safetensors", allow_nonfinite=True).tensors
            bad_checkpoints += not all(torch.isfinite(tensor).all() for tensor in tensors.values())
    report(
        "numbers that are not finite",
        cases=CASES,
        caught_in_the_same_step=same_step,
        module_named=named,
        non_finite_checkpoints=bad_checkpoints,
        wrong=wrong,
    )
    assert (same_step, bad_checkpoints) == (CASES, 0)
    assert named >= 0.95 * CASES, wrong
