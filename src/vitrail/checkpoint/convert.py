"""From one format to another, with a proof: what came out is read again and held against what went in.

Two things are compared: every tensor of the source, written back by its own table from the result, bit for bit; and
the logits of both models on a picture made by formula and on noise. Where the target's own software computes with
other numbers (docs/formats.md), the logits it would give are compared too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.checkpoint import files
from vitrail.checkpoint.capacity import as_computed_by, deviations
from vitrail.checkpoint.custom import Custom
from vitrail.checkpoint.load import assemble
from vitrail.checkpoint.reading import Reading, read
from vitrail.checkpoint.report import ConversionReport
from vitrail.checkpoint.rules import KEPT, untranslate
from vitrail.checkpoint.save import write
from vitrail.checkpoint.transforms import Sizes
from vitrail.checkpoint.writing import Parts, written
from vitrail.config import ViTConfig
from vitrail.errors import CheckpointError, UsageError
from vitrail.model.vit import VisionTransformer, build_empty


def convert(
    source: Path | str,
    target: Path | str,
    to: str = "native",
    *,
    lossy: bool = False,
    from_pickle: bool = False,
    allow_nonfinite: bool = False,
    rules: Custom | Path | str | None = None,
    **config_fields: Any,
) -> ConversionReport:
    """Write the checkpoint at `source` as `to` at `target`, in its own number format, and prove it."""
    reading = read(source, rules=rules, asked=config_fields, from_pickle=from_pickle, allow_nonfinite=allow_nonfinite)
    if Path(reading.report.path).resolve() == Path(target).resolve():
        raise UsageError(f"{source} is both source and target.", "What is proved is still there afterwards.", "")
    result = written(_parts(reading), to, lossy=lossy)
    paths = write(result, Path(target))
    again = read(target, allow_nonfinite=allow_nonfinite)
    report = ConversionReport(
        source=reading.report,
        result=again.report,
        format=to,
        files=[str(path) for path in paths],
        tensors_equal=False,
        dropped=result.dropped,
        lossy=lossy,
        deviations=[
            f"{name}={_shown(ours)} here; {to}'s own software computes with {_shown(theirs)}"
            for name, (ours, theirs) in deviations(again.config, to).items()
        ],
    )
    reduced = result.parts.config != reading.config
    _compare_states(report, result.parts, again)
    if not reduced and not reading.report.adaptations:
        original = files.find(source, from_pickle=from_pickle, allow_nonfinite=allow_nonfinite)
        _compare_files(report, reading, again, original.tensors)
    _compare_logits(report, reading, again, to)
    _refuse_a_failed_proof(report, reduced)
    return report


def _parts(reading: Reading) -> Parts:
    return Parts(
        reading.config,
        reading.state,
        reading.kept,
        reading.preprocess,
        reading.labels,
        reading.report.table,
        reading.report.prefix,
    )


def _compare_states(report: ConversionReport, parts: Parts, again: Reading) -> None:
    """Our tensors before and after."""
    report.tensors_equal = parts.state.keys() == again.state.keys() and all(
        same_bits(tensor, again.state[key]) for key, tensor in parts.state.items()
    )
    report.tensors_compared = len(parts.state)


def _compare_files(report: ConversionReport, reading: Reading, again: Reading, source: Mapping[str, Tensor]) -> None:
    """The source's own tensors, written back by its own table from what was read out of the result."""
    kept = {KEPT + name: tensor for name, tensor in again.kept.items()}
    config = reading.config
    sizes = Sizes(config.head_dim, config.patch_size, config.num_channels, config.table_grid)
    back, _ = untranslate(reading.match.table, {**again.state, **kept}, prefix=reading.match.prefix, sizes=sizes)
    used = {key for step in reading.match.plan.steps for key, _ in step.sources}
    lost = {key for step in reading.match.plan.steps if step.ours.startswith(KEPT) for key, _ in step.sources}
    expected = {key for key in used if key in back or key not in lost}  # what nobody uses may have been left behind
    expected -= {key for key in expected if not source[key].numel()}
    report.tensors_compared = len(expected)
    report.tensors_equal &= all(key in back and same_bits(source[key], back[key]) for key in expected)


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Equal shape, number format and bytes; a NaN equals itself."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)))


def _compare_logits(report: ConversionReport, reading: Reading, again: Reading, to: str) -> None:
    before, after = assemble(reading), assemble(again)
    report.logits_difference = logits_difference(before, after)
    theirs = as_computed_by(again.config, to)
    if theirs != again.config:
        again.empty = build_empty(theirs)
        report.native_logits_difference = logits_difference(before, assemble(again))


@torch.inference_mode()
def logits_difference(first: VisionTransformer, second: VisionTransformer) -> dict[str, float]:
    """The largest absolute difference of two models' outputs, for each of the proof's pictures."""
    found = {}
    for name, images in pictures(first.config).items():
        ours, theirs = first(images), second(images)
        found[name] = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else math.inf
    return found


def pictures(config: ViTConfig) -> dict[str, Tensor]:
    """One picture of waves in [-1, 1], the same on every machine, and one of noise."""
    rows, cols = config.image_size
    y, x = torch.meshgrid(torch.arange(rows) / rows, torch.arange(cols) / cols, indexing="ij")
    waves = [torch.sin(2 * math.pi * ((c + 1) * x + (c + 2) * y) + c) for c in range(config.num_channels)]
    noise = torch.randn(1, config.num_channels, rows, cols, generator=torch.Generator().manual_seed(0))
    return {"formula": torch.stack(waves)[None], "noise": noise}


def _refuse_a_failed_proof(report: ConversionReport, reduced: bool) -> None:
    """Where something was taken out on request, the logits may differ; the tensors that are left may not."""
    same_logits = reduced or all(difference <= 1e-6 for difference in report.logits_difference.values())
    if not (report.tensors_equal and same_logits):
        raise CheckpointError(
            f"What was written to {report.files[0]} is not what was read: tensors equal: {report.tensors_equal}, "
            f"logits differ by {max(report.logits_difference.values()):.1e}.",
            "The same bits and the same logits.",
            "This is a bug of vitrail: please report it with the output of vitrail inspect.",
        )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
