"""Does a Vision Transformer somebody wrote by hand, with names of its own, load by rules of its own?"""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.checkpoint import container, convert, load, rules_from_toml
from vitrail.checkpoint.custom import rules_from_text
from vitrail.checkpoint.propose import propose_rules
from vitrail.checkpoint.rules import KEPT
from vitrail.errors import CheckpointError, ConfigError


class Packed(nn.Module):
    """torch's own encoder layers, normed first, on a convolution: 32 px, LayerNorm eps 1e-5, packed q, k, v."""

    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, 24, 8, stride=8)
        self.summary = nn.Parameter(torch.zeros(24))
        self.where = nn.Parameter(torch.zeros(17, 24))
        layer = nn.TransformerEncoderLayer(24, 3, 40, activation="gelu", batch_first=True, norm_first=True)
        self.tower = nn.ModuleList(
            [layer, *[type(layer)(24, 3, 40, activation="gelu", batch_first=True, norm_first=True)]]
        )
        self.last_norm = nn.LayerNorm(24)
        self.answer = nn.Linear(24, 7)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.summary.expand(len(x), 1, -1), x], dim=1) + self.where
        for layer in self.tower:
            x = layer(x)
        return self.answer(self.last_norm(x)[:, 0])


class Behind(Packed):
    """The same with an MLP for a head."""

    def __init__(self):
        super().__init__()
        self.answer = nn.Sequential(nn.Linear(24, 18), nn.GELU(), nn.Linear(18, 7))


class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.offer, self.tell = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.mix = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.ask, self.offer, self.tell))
        return self.mix(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Separate(nn.Module):
    """One channel, 28 px, a linear map over unfolded patches, separate and bias-free q, k, v, no class token."""

    def __init__(self):
        super().__init__()
        self.to_patch_embedding = nn.Linear(49, 16)
        self.pos_embedding = nn.Parameter(torch.zeros(1, 16, 16))
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm_a": nn.LayerNorm(16),
                    "att": Attend(16, 2),
                    "norm_m": nn.LayerNorm(16),
                    "mlp": nn.Sequential(nn.Linear(16, 33), nn.GELU(), nn.Linear(33, 16)),
                }
            )
            for _ in range(3)
        )
        self.mlp_head = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 10))

    def forward(self, x):
        x = F.unfold(x, 7, stride=7).transpose(1, 2)
        x = self.to_patch_embedding(x) + self.pos_embedding
        for block in self.layers:
            x = x + block["att"](block["norm_a"](x))
            x = x + block["mlp"](block["norm_m"](x))
        return self.mlp_head(x.mean(dim=1))


SEPARATE = """
name = "separate"
zeros = ["encoder.blocks.{i}.attn.proj.bias"]
[config]
num_attention_heads = 2
num_channels = 1
patch_size = 7
layer_norm_eps = 1e-5
pooling = "mean"
hidden_act = "gelu"
[preprocess]
mean = [0.1307]
std = [0.3081]
[[rule]]
theirs = "to_patch_embedding.weight"
ours = "stem.proj.weight"
how = "patch_chw"
[[rule]]
theirs = "to_patch_embedding.bias"
ours = "stem.proj.bias"
[[rule]]
theirs = "pos_embedding"
ours = "tokens.position.table"
[[rule]]
theirs = ["layers.{i}.att.ask.weight", "layers.{i}.att.offer.weight", "layers.{i}.att.tell.weight"]
ours = "encoder.blocks.{i}.attn.qkv.weight"
[[rule]]
theirs = "layers.{i}.att.mix.weight"
ours = "encoder.blocks.{i}.attn.proj.weight"
""" + "".join(
    f'[[rule]]\ntheirs = "{theirs}.{leaf}"\nours = "{ours}.{leaf}"\n'
    for theirs, ours in {
        "layers.{i}.norm_a": "encoder.blocks.{i}.norm1",
        "layers.{i}.norm_m": "encoder.blocks.{i}.norm2",
        "layers.{i}.mlp.0": "encoder.blocks.{i}.mlp.fc1",
        "layers.{i}.mlp.2": "encoder.blocks.{i}.mlp.fc2",
        "mlp_head.0": "head.norm",
        "mlp_head.1": "head.classifier",
    }.items()
    for leaf in ("weight", "bias")
)


def random_weights(module):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.2, generator=generator)
    return module.eval()


@pytest.fixture
def separate(tmp_path):
    model = random_weights(Separate())
    container.write_safetensors(tmp_path / "mine.safetensors", model.state_dict())
    (tmp_path / "mine.toml").write_text(SEPARATE)
    return model, tmp_path / "mine.safetensors", tmp_path / "mine.toml"


def test_rules_of_ones_own_reproduce_a_hand_written_model(separate):
    theirs, file, rules = separate
    ours = load(file, rules=rules)
    x = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (ours(x) - theirs(x)).abs().max() < 2e-6
    assert ours.preprocess.mean == (0.1307,)
    assert ours.config.image_size == (28, 28)
    assert ours.origin.origin == "separate"


def test_a_hand_written_model_converts_with_the_same_proof_as_any_other(separate, tmp_path):
    _, file, rules = separate
    report = convert(file, tmp_path / "out", "native", rules=rules)
    assert report.tensors_equal
    assert report.tensors_compared == len(container.read(file).tensors)
    assert max(report.logits_difference.values()) == 0


def test_without_rules_the_refusal_shows_both_sides_and_the_way_on(separate):
    _, file, _ = separate
    with pytest.raises(CheckpointError) as refused:
        load(file)
    assert "< layers.0.att.ask.weight [16, 16]" in refused.value.found
    assert "nearest known format" in refused.value.expected
    assert "--propose-rules" in refused.value.fix


@pytest.mark.parametrize(
    ("kind", "size", "heads"), [(Packed, (3, 32, 32), 3), (Behind, (3, 32, 32), 3), (Separate, (1, 28, 28), 2)]
)
def test_a_draft_of_rules_needs_only_its_doubts_settled(kind, size, heads, tmp_path):
    theirs = random_weights(kind())
    container.write_safetensors(tmp_path / "mine.safetensors", theirs.state_dict())
    draft = propose_rules(theirs.state_dict())
    assert "# UNSURE: " in draft
    assert re.search(r"num_attention_heads = .*UNSURE", draft)
    assert ("norm_first=True" in draft) == issubclass(kind, Packed)  # no shape tells torch's two kinds of layer apart
    draft = re.sub(r"num_attention_heads = .*", f"num_attention_heads = {heads}", draft)
    if (
        kind is Separate
    ):  # "ask", "offer", "tell", "mix": no word says what these are, and the draft does not pretend to
        assert "#   layers.{i}.att.ask.weight" in draft
        return
    (tmp_path / "draft.toml").write_text(draft)
    ours = load(tmp_path / "mine.safetensors", rules=tmp_path / "draft.toml")
    x = torch.randn(2, *size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (ours(x) - theirs(x)).abs().max() < 3e-6


def test_a_draft_of_a_known_format_is_complete_and_right(tmp_path):
    """timm's names are plain words, so a draft must place every key of a file in them, and place it right."""
    from vitrail.checkpoint import save

    from .tiny import CONFIGS, picture, random_model

    model = random_model(CONFIGS["plain"])
    save(model, tmp_path / "timm.safetensors", "timm")
    tensors = container.read(tmp_path / "timm.safetensors").tensors
    draft = propose_rules(tensors)
    assert "Not placed" not in draft
    draft = re.sub(r"num_attention_heads = .*", "num_attention_heads = 3", draft).replace("1e-05", "1e-6")
    container.write_safetensors(tmp_path / "bare.safetensors", tensors)
    (tmp_path / "draft.toml").write_text(draft)
    again = load(tmp_path / "bare.safetensors", rules=tmp_path / "draft.toml")
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))


BAD_RULES = {
    "no such key": ('[[rule]]\ntheirs = "a"\nours = "stem.projj.weight"', "stem.proj"),
    "no such transform": ('[[rule]]\ntheirs = "a"\nours = "stem.proj.weight"\nhow = "transposed"', "transpose"),
    "no such field": ('[config]\nheads = 3\n[[rule]]\ntheirs = "a"\nours = "stem.proj.weight"', "heads"),
    "twice": (
        '[[rule]]\ntheirs = "a"\nours = "stem.proj.weight"\n[[rule]]\ntheirs = "a"\nours = "stem.proj.bias"',
        "two rows",
    ),
    "no toml": ("[[rule", "rules"),
    "no rules": ("name = 'x'", "rule"),
}


@pytest.mark.parametrize("name", BAD_RULES)
def test_rules_that_cannot_work_are_refused_with_the_nearest_that_can(name):
    text, hint = BAD_RULES[name]
    with pytest.raises(ConfigError) as refused:
        rules_from_text(text)
    assert hint in str(refused.value)


def test_a_key_of_no_use_can_be_ignored_or_kept(separate):
    theirs, file, rules = separate
    extra = {"optimizer.step": torch.ones(1), "mask": torch.ones(2)}
    container.write_safetensors(file, {**theirs.state_dict(), **extra})
    with pytest.raises(CheckpointError, match=r"optimizer\.step"):
        load(file, rules=rules)
    text = rules.read_text().replace("[config]", '[ignored]\n"optimizer.{any}" = "optimizer state"\n[config]')
    rules.write_text(text + f'[[rule]]\ntheirs = "mask"\nours = "{KEPT}mask"\n')
    report = load(file, rules=rules_from_toml(rules)).origin
    assert report.ignored == {"optimizer.step": "optimizer state"}
    assert report.kept == ["mask"]
