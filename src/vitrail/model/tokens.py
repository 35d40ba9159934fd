"""A grid of patches to the sequence the encoder reads: prefix tokens, patches, positions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config import Pair, Resampling, ViTConfig
from vitrail.model.probe import SILENT, Probe
from vitrail.model.shapes import Angles, Grid, Resampled, Table, Tokens


class TokenEmbedding(nn.Module):
    """[class, distillation, registers, patches] plus their positions."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.config = config
        self.class_token = _tokens(1, dim) if config.class_token else None
        self.distillation_token = _tokens(1, dim) if config.distillation_token else None
        self.register_tokens = _tokens(config.num_register_tokens, dim) if config.num_register_tokens else None
        self.position = PositionTable(config) if config.position == "learned" else None
        self.norm = nn.LayerNorm(dim, eps=config.layer_norm_eps) if config.pre_norm else nn.Identity()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, grid: Grid, probe: Probe = SILENT) -> Tokens:
        patches = probe.take("tokens.patches", grid.flatten(2).transpose(1, 2))
        x = probe.take("tokens.concat", torch.cat([*self.prefix(len(patches), probe), patches], dim=1))
        positions = self.positions((grid.shape[2], grid.shape[3]), x)
        if positions is not None:
            x = probe.take("tokens.positioned", x + probe.take("tokens.positions", positions))
        return probe.take("tokens.out", self.dropout(self.norm(x)))

    def prefix(self, batch: int, probe: Probe = SILENT) -> list[Tokens]:
        """The learned tokens before the patches, one copy per image."""
        named = {"class": self.class_token, "distillation": self.distillation_token, "registers": self.register_tokens}
        return [
            probe.take(f"tokens.{name}", token.expand(batch, -1, -1))
            for name, token in named.items()
            if token is not None
        ]

    def positions(self, grid: Pair, like: Tensor) -> Table | None:
        """One row per token; zero for the prefix tokens without a position of their own."""
        if self.position is not None:
            table, covered = self.position(grid), self.config.positioned_prefix
        elif self.config.position == "sincos":
            table, covered = sincos_table(grid, self.config.hidden_size).to(like), 0
        else:
            return None
        bare = self.config.prefix_tokens - covered
        if not bare:
            return table
        return torch.cat([table[:, :covered], table.new_zeros(1, bare, table.shape[2]), table[:, covered:]], dim=1)


class PositionTable(nn.Module):
    """A learned row per position. It knows the grid it was learned on, so no size is ever guessed from a count."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.grid, self.prefix, self.method = config.table_grid, config.positioned_prefix, config.position_resampling
        self.table = _tokens(self.prefix + self.grid[0] * self.grid[1], config.hidden_size)

    def forward(self, grid: Pair) -> Table:
        if grid == self.grid:
            return self.table
        patches = resample(self.table[:, self.prefix :], self.grid, grid, self.method)
        return torch.cat([self.table[:, : self.prefix], patches], dim=1)


# How each library stretches a position table to another grid (measured differences: docs/formats.md).
RESAMPLING: dict[Resampling, dict[str, object]] = {
    "google": {"mode": "bilinear", "align_corners": True},  # scipy.ndimage.zoom(order=1)
    "hf": {"mode": "bicubic", "align_corners": False},
    "timm": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "torchvision": {"mode": "bicubic", "align_corners": True},
}


def resample(table: Table, old: Pair, new: Pair, method: Resampling) -> Resampled:
    """A table of `old` rows and columns, read off at the points of a `new` grid."""
    grid = table.float() if table.dtype in (torch.bfloat16, torch.float16) else table
    grid = grid.unflatten(1, old).permute(0, 3, 1, 2)  # 1 x dim x rows x cols
    grid = F.interpolate(grid, size=new, **RESAMPLING[method])  # type: ignore[arg-type]
    return grid.flatten(2).transpose(1, 2).to(table.dtype)


def sincos_table(grid: Pair, dim: int, base: float = 10_000.0) -> Table:
    """Fixed positions: sines and cosines of the column, then of the row, in dim/4 wavelengths (big_vision)."""
    rows, cols = (axis.flatten() for axis in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    wavelengths = base ** (torch.arange(dim // 4, dtype=torch.float64) / max(dim // 4 - 1, 1))
    x, y = (axis[:, None] / wavelengths for axis in (cols, rows))
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)[None]


def rotary_angles(grid: Pair, head_dim: int, base: float) -> tuple[Angles, Angles]:
    """Cosines and sines that turn each patch's queries and keys by its place (DINOv3: centres in [-1, 1])."""
    centres = [(torch.arange(n, dtype=torch.float64) + 0.5) / n * 2 - 1 for n in grid]
    places = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)  # patches x (row, col)
    periods = base ** (torch.arange(head_dim // 4, dtype=torch.float64) * 4 / head_dim)
    angles = (2 * torch.pi * places[:, :, None] / periods).flatten(1).tile(2)
    return angles.cos(), angles.sin()


def _tokens(count: int, dim: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(1, count, dim))
