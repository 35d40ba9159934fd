"""The token-wise half of a block: two linear maps with a bend between."""

import torch
import torch.nn.functional as F
from torch import nn

from vitrail.config import ViTConfig
from vitrail.model.probe import SILENT, Probe
from vitrail.model.shapes import Tokens


class MLP(nn.Module):
    """Two linear maps with a bend between; in the SwiGLU form the first also computes a gate."""

    def __init__(self, config: ViTConfig, name: str, dim: int) -> None:
        super().__init__()
        self.name, self.gated = name, config.mlp == "swiglu"
        self.act = ACTIVATIONS[config.hidden_act]
        self.fc1 = nn.Linear(dim, config.intermediate_size * (2 if self.gated else 1))
        self.fc2 = nn.Linear(config.intermediate_size, dim)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tokens, probe: Probe = SILENT) -> Tokens:
        hidden = probe.take(f"{self.name}.hidden", self.fc1(x))
        if self.gated:
            gate, hidden = hidden.chunk(2, dim=-1)
            hidden = self.act(gate) * hidden
        else:
            hidden = self.act(hidden)
        probe.take(f"{self.name}.activated", hidden)
        return probe.take(f"{self.name}.out", self.dropout(self.fc2(self.dropout(hidden))))


class DropPath(nn.Module):
    """In training, leaves a branch out for some images and scales the others up to make good."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tokens) -> Tokens:
        if not self.training or self.rate == 0.0:
            return x
        stays = torch.rand(len(x), 1, 1, device=x.device) >= self.rate
        return x * (stays / (1 - self.rate)).to(x.dtype)


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "silu": F.silu,
}
