"""Tokens to logits: pool, represent, classify."""

import torch
import torch.nn.functional as F
from torch import nn

from vitrail.config import ViTConfig
from vitrail.model.encoder import attend, layer_norm
from vitrail.model.mlp import ACTIVATIONS, MLP
from vitrail.model.probe import SILENT, Probe
from vitrail.model.shapes import Kept, Logits, Pooled, Represented


class Head(nn.Module):
    """One vector per image, then one number per class."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size * (2 if config.pooling == "token_and_mean" else 1)
        self.pool = AttentionPool(config) if config.pooling == "map" else None
        self.norm = layer_norm(config) if config.final_norm == "pooled" else nn.Identity()
        self.representation = nn.Linear(width, config.representation_size) if config.representation_size else None
        self.bend = {"tanh": torch.tanh, **ACTIVATIONS}[config.representation_act]
        width = config.representation_size or width
        self.classifier = nn.Linear(width, config.num_classes) if config.num_classes else nn.Identity()
        self.classifier_distilled = (
            nn.Linear(width, config.num_classes) if config.distillation_token and config.num_classes else None
        )

    @property
    def reads(self) -> int | None:
        """How many leading tokens decide the result; None: all of them."""
        return 1 + self.config.distillation_token if self.config.pooling == "token" else None

    def forward(self, x: Kept, probe: Probe = SILENT) -> Logits:
        logits = self.classify(self.classifier, x, probe)
        if self.classifier_distilled is not None:  # DeiT: the two classifiers' mean
            logits = (logits + self.classifier_distilled(self.represent(self.norm(x[:, 1])))) / 2
        return probe.take("logits", logits)

    def classify(self, classifier: nn.Module, x: Kept, probe: Probe) -> Logits:
        pooled = probe.take("head.pooled", self.norm(self.pooled(x)))
        return classifier(probe.take("head.representation", self.represent(pooled)))

    def represent(self, pooled: Pooled) -> Represented:
        """Google's pre_logits, Hugging Face's pooler: dense and tanh, where the model has it."""
        return pooled if self.representation is None else self.bend(self.representation(pooled))

    def pooled(self, x: Kept) -> Pooled:
        if self.pool is not None:
            return self.pool(x)
        if self.config.pooling == "token":
            return x[:, 0]
        patches = x[:, self.config.prefix_tokens :].mean(dim=1)
        return patches if self.config.pooling == "mean" else torch.cat([x[:, 0], patches], dim=1)


class AttentionPool(nn.Module):
    """A learned query gathers from all tokens, then passes through an MLP (big_vision's MAP head, SigLIP)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Parameter(torch.zeros(1, 1, dim))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = layer_norm(config)
        self.mlp = MLP(config, "head.pool.mlp", dim)

    def forward(self, x: Kept) -> Pooled:
        weight_q, weight_kv = self.qkv.weight.tensor_split([x.shape[-1]])
        bias_q, bias_kv = self.qkv.bias.tensor_split([x.shape[-1]])
        q = F.linear(self.query.expand(len(x), -1, -1), weight_q, bias_q)
        k, v = F.linear(x, weight_kv, bias_kv).chunk(2, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        gathered = self.proj(attend(q, k, v).transpose(1, 2).flatten(2))
        return (gathered + self.mlp(self.norm(gathered)))[:, 0]
