"""The methods of `explain`, one row each: the function, what its values are, and one sentence about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

import msgspec
from numpy.typing import NDArray
from torch import Tensor

from vitrail.errors import UsageError, did_you_mean
from vitrail.explain import attention, features, gradient, perturb, relevance
from vitrail.explain.faithfulness import Scores
from vitrail.explain.record import Recording, record
from vitrail.explain.target import Asked, Target
from vitrail.model.vit import VisionTransformer

Kind = Literal["map", "signed", "colours", "blocks"]  # rows x cols; with a sign; rows x cols x 3; blocks x top


@dataclass(frozen=True)
class View:
    """What one method says about one picture. `notes` holds what is not an array, ready for JSON.

    Where it was measured (scored.py): how faithful the map is, and its rank correlation with a shuffled model's map.
    """

    method: str
    kind: Kind
    values: NDArray[Any]
    scores: Scores | None = None
    agreement: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A row of the table. `by_class`: whether the map depends on the class that is explained."""

    compute: Callable[..., Any]
    kind: Kind
    by_class: bool
    says: str


METHODS: dict[str, Method] = {
    "attention": Method(attention.attention, "map", False, "Where one layer looks from the token the head reads."),
    "mass": Method(
        attention.mass, "map", False, "In how many heads a patch belongs to the few that hold most attention."
    ),
    "rollout": Method(attention.rollout, "map", False, "Attention multiplied through all layers, half of it staying."),
    "gradient_rollout": Method(
        relevance.gradient_rollout, "map", True, "Rollout of the attention that raises the class score."
    ),
    "relevance": Method(
        relevance.relevance, "map", True, "Attention times its gradient, added up through all layers (Chefer)."
    ),
    "attention_grad_cam": Method(
        relevance.attention_grad_cam, "map", True, "The last layer's heads, each weighed by its mean gradient."
    ),
    "grad_cam": Method(gradient.grad_cam, "map", True, "Channels weighed by their mean gradient."),
    "layer_cam": Method(gradient.layer_cam, "map", True, "Channels weighed by their gradient at each patch."),
    "integrated_gradients": Method(
        gradient.integrated_gradients, "signed", True, "Each pixel's part in the change of the score from a baseline."
    ),
    "occlusion": Method(perturb.occlusion, "signed", True, "Confidence lost when a patch is covered."),
    "pca": Method(features.pca, "colours", False, "The three main directions of the patch features, as colours."),
    "norms": Method(features.norms, "map", False, "The length of each patch token: artifacts stand out."),
    "lens": Method(features.lens, "blocks", False, "What the head would answer after each block."),
}
TAKEN = ("target", "recording")  # what a method takes that is no option
RANKED = [name for name, method in METHODS.items() if method.kind in ("map", "signed") and name != "norms"]


def shared_pass(
    model: VisionTransformer, images: Tensor, names: Sequence[str], asked: Asked = None
) -> Recording | None:
    """One pass for all of the methods that start from one, there and back if any asks for gradients."""
    sharing = [name for name in names if "recording" in inspect.signature(METHODS[name].compute).parameters]
    gradients = any(METHODS[name].by_class for name in sharing)
    return record(model, images, asked, gradients) if sharing else None


def views(
    model: VisionTransformer,
    images: Tensor,
    names: Sequence[str],
    target: Target,
    options: Mapping[str, Any],
    recording: Recording | None = None,
) -> list[dict[str, View]]:
    """Every method on every image: one dict per image."""
    found: list[dict[str, View]] = [{} for _ in images]
    for name in names:
        result = run(name, model, images, target, options, recording)
        for view, values, notes in zip(found, *parts(name, model, images, result), strict=True):
            view[name] = View(name, METHODS[name].kind, values, notes=notes)
    return found


def run(
    name: str,
    model: VisionTransformer,
    images: Tensor,
    target: Target,
    options: Mapping[str, Any],
    recording: Recording | None = None,
) -> Tensor | features.Components | features.Lens:
    """One method's result for a batch, with those options that it takes."""
    method = METHODS[name]
    given = {option: value for option, value in options.items() if option in options_of(name)}
    if method.by_class and target.classes is not None:
        given["target"] = target.classes.tolist()
    if recording and "recording" in inspect.signature(method.compute).parameters:
        given["recording"] = recording
    result: Tensor | features.Components | features.Lens = method.compute(model, images, **given)
    return result


def parts(
    name: str, model: VisionTransformer, images: Tensor, result: Tensor | features.Components | features.Lens
) -> tuple[list[NDArray[Any]], list[dict[str, Any]]]:
    """A batch's result as one array per image, and what there is to say beside it."""
    if isinstance(result, features.Components):
        explained = [round(share, 4) for share in result.explained.tolist()]
        return list(result.colours.cpu().numpy()), [{"variance_explained": explained} for _ in images]
    if isinstance(result, features.Lens):
        return list(result.values.transpose(0, 1).cpu().numpy()), lens_notes(model, result, len(images))
    notes = artifact_notes(features.artifacts(model, images), images) if name == "norms" else [{} for _ in images]
    return list(result.cpu().numpy()), notes


def lens_notes(model: VisionTransformer, lens: features.Lens, images: int) -> list[dict[str, Any]]:
    """The labels after every block, best first."""
    if lens.classes is None:
        return [{"meaning": "cosine of the features after each block with the final ones"} for _ in range(images)]
    return [
        {"labels": [[model.labels[i] for i in top] for top in each.tolist()]} for each in lens.classes.transpose(0, 1)
    ]


def artifact_notes(found: features.Artifacts, images: Tensor) -> list[dict[str, Any]]:
    """Which tokens stand out: [layer, token] by norm, [layer, token, times an even share] by attention received."""
    notes = []
    for i in range(len(images)):
        sinks = found.sinks[:, i].nonzero().tolist()
        notes.append(
            {
                "prefix_tokens": found.prefix_tokens,
                "outliers": found.outliers[:, i].nonzero().tolist(),
                "sinks": [[*place, round(float(found.received[place[0], i, place[1]]), 1)] for place in sinks],
            }
        )
    return notes


def known_methods(asked: str | Sequence[str]) -> list[str]:
    """Method names, hyphens allowed; `all` is every one."""
    names = [asked] if isinstance(asked, str) else list(asked)
    names = list(METHODS) if names == ["all"] else [name.replace("-", "_") for name in names]
    for name in names:
        if name not in METHODS:
            raise UsageError(f"There is no method {name!r}.", did_you_mean(name, METHODS), "")
    return list(dict.fromkeys(names))


def check_options(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, checked. One that none of the methods takes is refused: it would change nothing."""
    takes = {option: kind for name in names for option, kind in options_of(name).items()}
    checked = {}
    for option, value in options.items():
        if option not in takes:
            raise UsageError(
                f"{' and '.join(names)} {'takes' if len(names) == 1 else 'take'} no option {option!r}.",
                did_you_mean(option, takes) if takes else "There are none to set.",
                "",
            )
        try:
            checked[option] = msgspec.convert(value, takes[option])
        except msgspec.ValidationError as error:
            raise UsageError(f"{option} is {value!r}.", f"{error}.", "") from None
    return checked


def options_of(name: str) -> dict[str, Any]:
    """The options a method takes beside the class, and their types."""
    compute = METHODS[name].compute
    hints = get_type_hints(compute)
    parameters = inspect.signature(compute).parameters.values()
    return {one.name: hints[one.name] for one in parameters if one.kind is one.KEYWORD_ONLY and one.name not in TAKEN}
