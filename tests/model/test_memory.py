"""Does looking at attention cost what was asked for, and not the whole score matrix?

test_attention.py asks the same of tensor sizes, in milliseconds; here it is the memory of the process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a fresh process each: the highest resident set is a mark that never goes down again. Not ru_maxrss, which begins
# with the mark of the process that started this one, and would hide both sides of the difference.
RUN = """
import sys
import torch
from vitrail.evaluate.answering import peak_memory
from vitrail.model.probe import Probe
from vitrail.model.variants import config_for
from vitrail.model.vit import create

torch.set_num_threads(2)
layers, pixels = int(sys.argv[2]), int(sys.argv[3])
model = create(config_for("B/16", image_size=pixels, num_hidden_layers=layers), seed=0)
images = torch.zeros(1, 3, pixels, pixels)
probe = Probe("blocks.*.attn.weights", queries=[0]) if sys.argv[1] == "watched" else Probe()
with torch.inference_mode():
    model(images, probe)
shapes = {tuple(weights.shape) for _, weights in probe.items()}
assert shapes == ({(1, 12, 1, (pixels // 16) ** 2 + 1)} if sys.argv[1] == "watched" else set()), shapes
assert len(probe.items()) == (layers if sys.argv[1] == "watched" else 0)
print(peak_memory())
"""


def peak_mb(how: str, layers: int, pixels: int) -> float:
    command = [sys.executable, "-c", RUN, how, str(layers), str(pixels)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 2**20


@pytest.mark.chaos
def test_the_class_tokens_rows_of_b16_at_1024_pixels_cost_less_than_200_mb() -> None:
    """4,097 tokens, twelve blocks: all weights would be 9.7 GB, those of one block 806 MB."""
    extra = peak_mb("watched", layers=12, pixels=1024) - peak_mb("plain", layers=12, pixels=1024)
    print(f"{extra:.0f} MB above the plain forward pass")  # noqa: T201
    assert extra < 200
