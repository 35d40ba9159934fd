"""Do Grad-CAM, LayerCAM, integrated gradients and occlusion compute their equations, where gradients are not zero?"""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle_numpy
import pytest
import torch
from hypothesis import given, settings
from oracle.tiny import any_config, random_images, random_model, tiny_config, tiny_hybrid
from torch import Tensor

from vitrail.config import ViTConfig
from vitrail.errors import UsageError
from vitrail.explain.gradient import cam_place, grad_cam, integrated_gradients, layer_cam, start_picture
from vitrail.explain.perturb import blurred, occlusion, to_cells, to_pixels, window_masks
from vitrail.explain.target import target_of
from vitrail.model.vit import VisionTransformer

few = settings(max_examples=10, deadline=None, derandomize=True)


def double_model(config: ViTConfig) -> tuple[VisionTransformer, Tensor]:
    return random_model(config).double(), random_images(config, batch=3)[:2].double()


CAM_PLACES = {
    "class token": (tiny_config(), "blocks.1.norm1"),
    "last layer without heads": (tiny_config(kept_heads=((1,), ())), "blocks.0.norm1"),
    "mean pooling": (tiny_config(pooling="mean", class_token=False), "norm.out"),
    "attention pooling": (tiny_config(pooling="map"), "norm.out"),
    "hybrid": (tiny_hybrid(), "blocks.1.norm1"),
    "distilled": (tiny_config(distillation_token=True, num_register_tokens=2), "blocks.1.norm1"),
}


@pytest.mark.parametrize(("config", "place"), CAM_PLACES.values(), ids=CAM_PLACES)
def test_cams_are_their_equations_at_the_last_place_that_still_matters(config: ViTConfig, place: str) -> None:
    assert cam_place(config) == place
    model, images = double_model(config)
    activations, gradients = measured_at(model, images, place)
    assert np.abs(gradients).max() > 0
    for method, equation in ((grad_cam, oracle_numpy.grad_cam), (layer_cam, oracle_numpy.layer_cam)):
        theirs = [equation(a, g).reshape(config.grid) for a, g in zip(activations, gradients, strict=True)]
        assert np.allclose(method(model, images), np.stack(theirs), atol=1e-12)


def measured_at(model: VisionTransformer, images: Tensor, place: str) -> tuple[np.ndarray, np.ndarray]:
    """Patch activations and gradients by torch's own hooks, not by the probe."""
    modules = {"norm.out": model.encoder.norm}
    modules |= {f"blocks.{i}.norm1": block.norm1 for i, block in enumerate(model.encoder.blocks)}
    seen: dict[str, Tensor] = {}
    handle = modules[place].register_forward_hook(lambda module, args, out: seen.update(out=out))
    tokens = model.features(images.clone().requires_grad_())
    handle.remove()
    outputs = model.head(tokens)
    score = target_of(model, outputs).score(outputs).sum()
    (gradient,) = torch.autograd.grad(score, [seen["out"]])
    prefix = model.config.prefix_tokens
    return seen["out"][:, prefix:].detach().numpy(), gradient[:, prefix:].numpy()


@given(config=any_config(num_classes=5))
@few
def test_the_chosen_place_has_a_gradient_in_every_model_whose_patches_can_matter(config: ViTConfig) -> None:
    reads_patches = config.pooling != "token"
    if not reads_patches and not any(config.heads_in(layer) for layer in range(config.num_hidden_layers)):
        with pytest.raises(UsageError, match="no attention heads left"):
            cam_place(config)
        return
    model = random_model(config)
    _, gradients = measured_gradient(model, random_images(config)[:1])
    assert gradients.abs().max() > 0


def measured_gradient(model: VisionTransformer, images: Tensor) -> tuple[Tensor, Tensor]:
    from vitrail.explain.gradient import patch_gradients

    return patch_gradients(model, images, None, None)


def test_the_last_block_output_has_no_gradient_which_is_why_the_layer_is_not_left_to_the_user() -> None:
    model, images = double_model(tiny_config())
    out = torch.zeros(())
    handle = model.encoder.blocks[-1].register_forward_hook(
        lambda module, args, result: vars(handle).update(out=result)
    )
    outputs = model.head(model.features(images.clone().requires_grad_()))
    out = vars(handle)["out"]
    handle.remove()
    (gradient,) = torch.autograd.grad(outputs[:, 0].sum(), [out])
    assert not gradient[:, 1:].any()  # what a tool that targets blocks[-1] works with
    assert grad_cam(model, images).shape == (2, 3, 2)


def test_a_layer_above_the_last_that_matters_is_refused() -> None:
    model = random_model(tiny_config(kept_heads=((1,), ())))
    with pytest.raises(UsageError, match="zero in layer 1"):
        grad_cam(model, random_images(model.config), layer=-1)


# Integrated gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [tiny_config(), tiny_hybrid(), tiny_config(num_classes=0)], ids=["plain", "hybrid", "features"]
)
def test_integrated_gradients_add_up_to_the_change_of_the_score(config: ViTConfig) -> None:
    model, images = double_model(config)
    images = 4 * blurred(images, 1 / 10)  # smooth, as photos are
    outputs = model(images).detach()
    target = target_of(model, outputs)
    start = start_picture(config, images, None)
    change = target.score(outputs) - target.score(model(start)).detach()
    ours = integrated_gradients(model, images, steps=200)
    assert ours.shape == (2, *config.image_size)
    assert torch.allclose(ours.sum((1, 2)), change, atol=0.02 * float(change.abs().max()) + 1e-3)


def test_from_an_even_picture_a_hybrid_jumps_which_is_why_it_starts_from_the_blurred_one() -> None:
    model, images = double_model(tiny_hybrid())
    even, faint = (model(images[:1] * brightness).detach() for brightness in (0.0, 0.01))
    assert (faint - model(images[:1])).abs().max() < 0.05 * (faint - even).abs().max()
    assert torch.equal(start_picture(model.config, images, None), blurred(images))
    assert not start_picture(model.config, images, 0.0).any()
    assert not start_picture(tiny_config(), images, None).any()


def test_integrated_gradients_are_the_midpoint_sum_of_slopes() -> None:
    model, images = double_model(tiny_config())
    image, total = images[:1], torch.zeros_like(images[:1])
    for step in range(4):
        point = (image * (step + 0.5) / 4).requires_grad_()
        total += torch.autograd.grad(model(point)[0, 3], [point])[0]
    theirs = (total / 4 * image).sum(1)
    assert torch.allclose(integrated_gradients(model, image, target=3, steps=4), theirs, atol=1e-12)


# Occlusion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_occlusion_is_the_loss_of_confidence_under_each_window_shared_out(window: int, stride: int) -> None:
    config = tiny_config(num_register_tokens=1)
    model, images = double_model(config)
    rows, cols = config.grid
    ours = occlusion(model, images, target=2, window=window, stride=stride, fill=0.25)
    for image, found in zip(images, ours, strict=True):
        before = model(image[None]).softmax(1)[0, 2].item()
        total, count = np.zeros((rows, cols)), np.zeros((rows, cols))
        for top in range(-window * 3, rows):
            for left in range(-window * 3, cols):
                inside = np.zeros((rows, cols), bool)
                inside[max(top, 0) : max(top + window, 0), max(left, 0) : max(left + window, 0)] = True
                if top % stride or left % stride or not inside.any():
                    continue
                covered = image.clone()
                covered[:, np.kron(inside, np.ones((4, 4), bool))] = 0.25
                total[inside] += before - model(covered[None]).softmax(1)[0, 2].item()
                count[inside] += 1
        assert np.allclose(found, total / count, atol=1e-12)


def test_occlusion_and_integrated_gradients_find_the_quarter_with_the_digit(reader: Any, digits: Any) -> None:
    images, labels = digits[0][1400:1440], digits[1][1400:1440]
    right = reader(images).argmax(1) == labels
    quarter = images.unflatten(2, (2, 8)).unflatten(4, (2, 8)).amax((1, 3, 5)).flatten(1).argmax(1)
    for maps in (
        occlusion(reader, images, fill=-1.0),
        to_cells(integrated_gradients(reader, images, baseline=-1.0), reader.config),
    ):
        share = maps.unflatten(1, (2, 2)).unflatten(3, (2, 2)).sum((2, 4)).flatten(1)
        assert (share.argmax(1) == quarter)[right].float().mean() > 0.9


def test_every_patch_lies_under_some_window() -> None:
    for window in range(1, 6):
        for stride in range(1, window + 1):
            assert window_masks((4, 3), window, stride).any(0).all()
            assert window_masks((4, 3), window, stride).flatten(1).any(1).all()
    with pytest.raises(UsageError, match="no patch is left out"):
        window_masks((4, 3), 1, 2)


@pytest.mark.parametrize("config", [tiny_config(), tiny_hybrid(), tiny_config(patch_size=(4, 2))])
def test_pixels_belong_to_the_patch_they_are_cut_into(config: ViTConfig) -> None:
    cells = torch.arange(config.grid[0] * config.grid[1], dtype=torch.float64).reshape(1, *config.grid)
    pixels = to_pixels(cells, config, config.image_size)
    assert pixels.shape == (1, *config.image_size)
    counts = to_cells(torch.ones_like(pixels), config)
    assert counts.sum() == pixels.numel()
    assert torch.equal(to_cells(pixels, config), cells * counts)
    if config.resnet is None:
        theirs = np.kron(cells[0].numpy(), np.ones(config.patch_size))
        assert np.array_equal(pixels[0].numpy(), theirs)


@pytest.mark.parametrize(("size", "windows"), [(64, 64), (256, 256), (592, 169)])
def test_large_grids_are_covered_in_larger_windows_so_that_occlusion_ends(size: int, windows: int) -> None:
    config = tiny_config(image_size=(size, size), patch_size=(size // 8, size // 8) if size == 64 else 16)
    covered: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "vitrail.explain.perturb.lost",
            lambda model, image, target, before, masks, fill: covered.append(len(masks)) or masks[0].float(),  # type: ignore[func-returns-value]
        )
        occlusion(random_model(config), random_images(config, batch=1))
    assert covered == [windows]
