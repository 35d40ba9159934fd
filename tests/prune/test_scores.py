"""Do scores of heads, blocks and neurons say what the model would miss?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import translate, vit_numpy
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid
from torch import Tensor

from vitrail.config import ViTConfig, replace
from vitrail.errors import DataError
from vitrail.model.probe import Probe
from vitrail.model.vit import VisionTransformer
from vitrail.prune.scores import (
    SCORES,
    ablation,
    block_scores,
    distance,
    embedded,
    entropy,
    finished,
    gate_gradients,
    gradient,
    head_scores,
    neuron_scores,
    taylor,
)
from vitrail.prune.smaller import prune_layers, prune_neurons
from vitrail.prune.surgery import prune_heads
from vitrail.prune.task import Task, answers, neighbour_agrees, task_for

KINDS: dict[str, ViTConfig] = {
    "plain": tiny_config(),
    "hybrid": tiny_hybrid(),
    "registers": tiny_config(num_register_tokens=2),
    "distilled": tiny_config(distillation_token=True),
    "mean pooling": tiny_config(pooling="mean", class_token=False),
    "attention pooling": tiny_config(pooling="map"),
    "no classes": tiny_config(num_classes=0),
    "pruned": tiny_config(kept_heads=((1, 3), ())),
    "rotary": tiny_config(position="rotary"),
}


def model_and_task(config: ViTConfig, batch: int = 6) -> tuple[VisionTransformer, Task]:
    model, images = random_model(config), random_images(config, batch=batch)
    labels = torch.arange(batch) % config.num_classes if config.num_classes else None
    return model, task_for(model, images, labels, batch_size=4)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_ablation_is_the_loss_of_the_model_without_that_head_minus_its_own(config: ViTConfig) -> None:
    model, task = model_and_task(config)

    def loss(some: VisionTransformer) -> float:
        return float(task.losses(answers(some, task), slice(None)).mean())

    scores = ablation(model, task)
    for layer in range(2):
        for head in range(4):
            if head in config.heads_in(layer):
                expected = loss(prune_heads(model, {layer: [head]})) - loss(model)
                assert scores[layer, head] == pytest.approx(expected, abs=2e-6)
            else:
                assert scores[layer, head].isnan()


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_going_on_from_any_block_gives_the_same_outputs(config: ViTConfig) -> None:
    model, task = model_and_task(config)
    with torch.inference_mode():
        x, grid = embedded(model, task.images)
        whole = model(task.images)
        for layer, block in enumerate(model.encoder.blocks):
            assert torch.allclose(finished(model, x, grid, layer), whole, atol=1e-5)
            x = block(x, model.encoder.rotary(grid, x))
        assert torch.allclose(finished(model, x, grid, 2), whole, atol=1e-5)


@pytest.mark.parametrize("config", [KINDS["plain"], KINDS["pruned"], KINDS["distilled"]])
def test_gate_gradients_are_the_slopes_of_the_loss_over_the_oracles_head_mask(config: ViTConfig) -> None:
    """Finite differences of a NumPy model that shares no code with ours."""
    model, task = model_and_task(config)
    ours = gate_gradients(model, task, seed=0)
    weights, images = translate.google_weights(model), translate.rows_cols_channels(task.images)
    assert task.labels is not None

    def losses(layer: int, head: int, gate: float) -> np.ndarray:
        mask = np.ones((2, 4))
        mask[layer, head] = gate
        per_layer = [mask[number, list(config.heads_in(number))] for number in range(2)]
        how = vit_numpy.How(**{**vars(translate.how(config)), "head_mask": per_layer})
        logits = vit_numpy.forward(weights, images, how)["logits"]
        logits = logits - logits.max(axis=1, keepdims=True)
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return -np.log(chances[np.arange(len(images)), task.labels.numpy()])

    for layer in range(2):
        for head in config.heads_in(layer):
            slopes = (losses(layer, head, 1 + 1e-5) - losses(layer, head, 1 - 1e-5)) / 2e-5
            assert np.allclose(ours[:, layer, head], slopes, atol=1e-4)
        gone = [head for head in range(4) if head not in config.heads_in(layer)]
        assert not ours[:, layer, gone].any()


def test_gate_gradients_equal_those_of_gates_in_the_probe() -> None:
    model, task = model_and_task(tiny_config(num_register_tokens=1))
    ours = gate_gradients(model, task, seed=0)
    for image in range(len(task.images)):
        gates = {layer: torch.ones(4, requires_grad=True) for layer in range(2)}
        outputs = model(task.images[image : image + 1], Probe(scale_heads=gates))
        task.losses(outputs, slice(image, image + 1)).sum().backward()
        assert torch.allclose(ours[image], torch.stack([gates[layer].grad for layer in range(2)]), atol=1e-6)


def test_gradient_and_taylor_scores_are_their_equations() -> None:
    model, task = model_and_task(tiny_config())
    slopes = gate_gradients(model, task, seed=0).double().numpy()
    michel = np.abs(slopes).mean(axis=0)
    assert np.allclose(gradient(model, task), michel / np.sqrt((michel**2).sum(axis=1, keepdims=True)), atol=1e-6)
    assert np.allclose(taylor(model, task), -slopes.mean(axis=0) + (slopes**2).mean(axis=0) / 2, atol=1e-6)


def test_features_have_a_slope_although_their_loss_is_at_its_minimum() -> None:
    model, task = model_and_task(tiny_config(num_classes=0), batch=8)
    outputs = model(task.images)
    assert task.losses(outputs, slice(None)).abs().max() < 1e-5
    assert gate_gradients(model, task, seed=0).abs().min() > 0
    # the mean square over random directions is how far the features move, by autograd's own Jacobian
    squares = torch.stack([gate_gradients(model, task, seed).square().mean(0) for seed in range(300)]).mean(0)
    gates = torch.ones(2, 4)

    def features(gates: Tensor) -> Tensor:
        return model(task.images, Probe(scale_heads={0: gates[0], 1: gates[1]}))

    jacobian = torch.autograd.functional.jacobian(features, gates)
    moved = (jacobian / task.features.norm(dim=1)[:, None, None, None]).square().sum(1).mean(0)
    assert torch.allclose(squares, moved, rtol=0.25)


@pytest.mark.parametrize("config", [KINDS["plain"], KINDS["registers"], KINDS["pruned"], KINDS["mean pooling"]])
def test_entropy_and_distance_are_those_of_the_oracles_attention(config: ViTConfig) -> None:
    model, task = model_and_task(config)
    seen = vit_numpy.forward(
        translate.google_weights(model), translate.rows_cols_channels(task.images), translate.how(config)
    )
    places = [(4 * row, 4 * col) for row in range(3) for col in range(2)]
    apart = np.array([[np.hypot(a - c, b - d) for c, d in places] for a, b in places])
    prefix = config.prefix_tokens
    for layer in range(2):
        weights = seen[f"attn_{layer}"][:, :, prefix:]
        heads = list(config.heads_in(layer))
        even = np.log(weights.shape[-1])
        theirs = 1 - (-(weights * np.log(weights)).sum(-1) / even).mean((0, 2))
        assert np.allclose(entropy(model, task)[layer, heads], theirs, atol=1e-5)
        inside = weights[..., prefix:] / weights[..., prefix:].sum(-1, keepdims=True)
        assert np.allclose(distance(model, task)[layer, heads], (inside * apart).sum(-1).mean((0, 2)), atol=1e-4)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_every_score_ranks_every_head_that_is_there(score: Any, config: ViTConfig) -> None:
    model, task = model_and_task(config)
    found = head_scores(model.train(), task, score)
    assert model.training
    there = torch.tensor([[head in config.heads_in(layer) for head in range(4)] for layer in range(2)])
    assert torch.equal(~found.isnan(), there)
    again = head_scores(model, task, score)
    assert torch.equal(again.nan_to_num(-1), found.nan_to_num(-1))


def test_a_head_that_does_nothing_scores_lowest_and_one_that_decides_highest() -> None:
    model, images = random_model(tiny_config()), random_images(tiny_config(), batch=8)
    with torch.no_grad():
        model.encoder.blocks[0].attn.proj.weight[:, 8:16] = 0
        model.encoder.blocks[1].attn.proj.weight[:, 24:] *= 6
    task = task_for(model, images)
    for score in ("ablation", "gradient", "taylor"):
        found = head_scores(model, task, score)  # type: ignore[arg-type]
        assert found[0, 1].abs() < 1e-6
    assert ablation(model, task).argmax() == 7
    assert ablation(model, task).argmin() != 7


# Blocks and neurons ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [KINDS["plain"], KINDS["pruned"], KINDS["mean pooling"], KINDS["rotary"]])
def test_a_model_without_a_block_computes_what_skipping_it_does(config: ViTConfig) -> None:
    config = replace(
        config, num_hidden_layers=3, kept_heads=None if config.kept_heads is None else (*config.kept_heads, (0, 2))
    )
    model, task = model_and_task(config)
    scores = block_scores(model, task)
    for layer in range(3):
        shallow = prune_layers(model, [layer])
        assert shallow.config.num_hidden_layers == 2
        assert [shallow.config.heads_in(i) for i in range(2)] == [config.heads_in(i) for i in range(3) if i != layer]
        x, grid = embedded(model, task.images)
        for number, block in enumerate(model.encoder.blocks):
            x = x if number == layer else block(x, model.encoder.rotary(grid, x))
        outputs = model.head(model.encoder.norm(x))
        assert torch.allclose(shallow(task.images), outputs, atol=1e-5)
        rise = (
            task.losses(shallow(task.images), slice(None)).mean() - task.losses(model(task.images), slice(None)).mean()
        )
        assert scores[layer] == pytest.approx(rise.item(), abs=1e-5)


@pytest.mark.parametrize("mlp", ["dense", "swiglu"])
def test_a_model_without_neurons_computes_what_silencing_them_does(mlp: str) -> None:
    config = tiny_config(mlp=mlp, hidden_act="silu" if mlp == "swiglu" else "gelu")
    model, task = model_and_task(config)
    gone = [[0, 5, 23], [7, 8, 9]]
    narrow = prune_neurons(model, gone)
    assert narrow.config.intermediate_size == 21
    before = model(task.images)
    with torch.no_grad():
        for block, neurons in zip(model.encoder.blocks, gone, strict=True):
            block.mlp.fc2.weight[:, neurons] = 0
    assert not torch.allclose(before, model(task.images))
    assert torch.allclose(narrow(task.images), model(task.images), atol=1e-5)


def test_scores_of_neurons_are_slopes_over_their_gates() -> None:
    model, task = model_and_task(tiny_config(), batch=4)
    ours = neuron_scores(model, task)
    assert [one.shape for one in ours] == [(24,), (24,)]
    assert task.labels is not None
    for layer in range(2):
        slopes = []
        for image in range(4):
            gate = torch.ones(24, requires_grad=True)
            handle = model.encoder.blocks[layer].mlp.fc2.register_forward_pre_hook(
                lambda module, args, gate=gate: (args[0] * gate,)
            )
            F.cross_entropy(model(task.images[image : image + 1]), task.labels[image : image + 1]).backward()
            handle.remove()
            slopes.append(gate.grad)
        assert torch.allclose(ours[layer], torch.stack(slopes).abs().mean(0), atol=1e-6)


# Tasks -------------------------------------------------------------------------------------------------------------


def test_without_labels_a_models_own_answers_are_what_it_should_keep() -> None:
    model, images = random_model(tiny_config()), random_images(tiny_config(), batch=6)
    task = task_for(model, images)
    assert task.measure == "same answer as before"
    assert task.quality(answers(model, task)) == 1.0
    assert torch.equal(task.labels, model(images).argmax(1))


def test_features_are_measured_by_how_far_they_move_or_by_their_neighbours() -> None:
    model, images = random_model(tiny_config(num_classes=0)), random_images(tiny_config(), batch=6)
    bare = task_for(model, images)
    assert bare.quality(answers(model, bare)) == pytest.approx(1.0)
    assert 0 < bare.losses(answers(prune_heads(model, {0: [0], 1: [1]}), bare), slice(None)).mean() < 2
    labelled = task_for(model, images, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert labelled.measure == "nearest neighbour has the same label"
    features = torch.tensor([[1.0, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
    assert neighbour_agrees(features, torch.tensor([0, 0, 1, 1])).tolist() == [1, 1, 1, 1]
    assert neighbour_agrees(features, torch.tensor([0, 1, 0, 1])).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("images", "labels"), [(2, None), (6, [0, 1]), (6, [0, 1, 2, 3, 4, 9]), (6, [0, 1, 2, 3, 4, -1])]
)
def test_too_few_images_or_labels_that_do_not_fit_are_refused(images: int, labels: Any) -> None:
    model = random_model(tiny_config())
    with pytest.raises(DataError):
        task_for(model, random_images(model.config, batch=images), None if labels is None else torch.tensor(labels))
