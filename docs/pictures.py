"""Draw the pictures of the guides from the model and the photographs inside the package: `make docs`.

tests/surface/test_pictures.py draws them again and compares, so that a page cannot show what the code no longer does.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import vitrail
from vitrail.explain.draw import drawn
from vitrail.explain.explain import Explained
from vitrail.explain.figures import Figures, figures
from vitrail.images.loader import batches
from vitrail.images.transforms import normalise
from vitrail.model.vit import VisionTransformer

GUIDE = Path(__file__).parent / "guide"
SAMPLES = Path(vitrail.__file__).parent / "samples"
SIDE, GAP = 256, 8  # pixels of a panel, and between panels
CROPS = 44  # of each of three photographs: 132 pictures to average attention distances over

# What stands beside the photograph: one panel for each set of options. `target` is the class that is explained.
BOTH = [{"target": "cat"}, {"target": "dog"}]
PANELS: dict[str, list[dict[str, Any]]] = {
    "attention": [{}, {"layer": 0}, {"layer": 0, "query": (8, 9)}],
    "mass": [{"keep": 0.6}, {"keep": 0.3}],
    "rollout": [{}, {"discard": 0.9}, {"query": (8, 9)}],
    "gradient_rollout": BOTH,
    "relevance": BOTH,
    "attention_grad_cam": BOTH,
    "grad_cam": BOTH,
    "layer_cam": BOTH,
    "integrated_gradients": BOTH,
    "occlusion": [*BOTH, {"target": "cat", "window": 4, "stride": 2}],
    "pca": [{}, {"layer": 0}],
    "norms": [{}, {"layer": 0}],
}


@cache
def model() -> VisionTransformer:
    """The model that ships."""
    found: VisionTransformer = vitrail.load("demo")
    return found


def strip(method: str) -> NDArray[np.uint8]:
    """The photograph, then the method's view of it for each set of options, side by side."""
    found = [one_view(method, **options) for options in PANELS[method]]
    return side_by_side([found[0].picture, *(drawn(one.views[method], one.picture) for one in found)])


def one_view(method: str, **options: Any) -> Explained:
    """The cat, by one method."""
    (found,) = vitrail.explain(model(), SAMPLES / "cat.jpg", method, **options)
    return found


def side_by_side(pictures: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Panels of one size on white."""
    canvas = np.full((SIDE, len(pictures) * (SIDE + GAP) - GAP, 3), 255, np.uint8)
    for number, picture in enumerate(pictures):
        left = number * (SIDE + GAP)
        canvas[:, left : left + SIDE] = Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BOX)
    return canvas


def lens() -> NDArray[np.uint8]:
    """The chance of the final answer after every block, for each photograph."""
    figure = Figure(figsize=(6.4, 2.8), layout="constrained", dpi=120)
    axis = figure.subplots()
    for photograph in sorted(SAMPLES.glob("*.jpg")):
        (found,) = vitrail.explain(model(), photograph, "lens")
        view = found.views["lens"]
        chances = [
            dict(zip(names, row, strict=True)).get(found.label, 0.0)
            for names, row in zip(view.notes["labels"], view.values, strict=True)
        ]
        axis.plot(range(len(chances)), chances, "o-", markersize=4, label=f"{photograph.stem}: {found.label}")
    axis.set(xlabel="after block", ylabel="probability of the final answer", ylim=(0, 1.02))
    axis.set_xticks(range(len(chances)))
    axis.legend(fontsize=8)
    return pixels_of(figure)


@cache
def paper() -> Figures:
    """The paper's figures of the model that ships, over crops of its three photographs."""
    crops = [crop for path in sorted(SAMPLES.glob("*.jpg")) for crop in crops_of(path)]
    how = model().preprocess
    images = torch.cat([normalise(batch.pixels, how) for batch in batches(crops, how, batch_size=32)])
    return figures(model(), images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))])


def crops_of(path: Path) -> list[Image.Image]:
    """Squares of a photograph, of many sizes at many places."""
    picture, draw = Image.open(path).convert("RGB"), np.random.default_rng(0)
    found = []
    for side in draw.uniform(0.5, 1.0, CROPS) * min(picture.size):
        left, top = (draw.uniform(0, length - side) for length in picture.size)
        found.append(picture.crop((round(left), round(top), round(left + side), round(top + side))))
    return found


def pixels_of(figure: Figure) -> NDArray[np.uint8]:
    """A figure as it would be saved."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


PICTURES: dict[str, Callable[[], NDArray[np.uint8]]] = {
    **{f"explain/{method}.webp": partial(strip, method) for method in PANELS},
    "explain/lens.webp": lens,
    **{
        f"figures/{name}.webp": lambda name=name: pixels_of(paper().drawn()[name])  # type: ignore[misc]
        for name in ("filters", "positions", "distances", "examples")
    },
}


def main() -> None:
    """Draw the pictures named on the command line, or all."""
    for name in sys.argv[1:] or PICTURES:
        path = GUIDE / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(PICTURES[name]()))


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    """A picture as a guide's file; small, and not quite what was drawn."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", quality=90, method=6)
    return file.getvalue()


if __name__ == "__main__":
    main()
