"""vitrail: Vision Transformers, from a folder of images to a model that is trained, understood, fast and served.

    import vitrail
    model = vitrail.load("path/to/checkpoint")      # or vitrail.create("B/16", num_classes=100)
    logits = model(images)

Names are looked up on first use, so `import vitrail` (and `vitrail --help`) stays quick and imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from vitrail.checkpoint import convert as convert
    from vitrail.checkpoint import inspect as inspect
    from vitrail.checkpoint import load as load
    from vitrail.checkpoint import save as save
    from vitrail.config import Preprocess as Preprocess
    from vitrail.config import ViTConfig as ViTConfig
    from vitrail.doctor.examine import doctor as doctor
    from vitrail.embed.embed import embed as embed
    from vitrail.errors import VitrailError as VitrailError
    from vitrail.evaluate.evaluate import evaluate as evaluate
    from vitrail.explain.explain import explain as explain
    from vitrail.explain.figures import figures as figures
    from vitrail.explain.trace import trace as trace
    from vitrail.model.probe import Probe as Probe
    from vitrail.model.variants import create as create
    from vitrail.model.vit import VisionTransformer as VisionTransformer
    from vitrail.predict.predict import predict as predict
    from vitrail.prune.prune import prune as prune
    from vitrail.prune.surgery import prune_heads as prune_heads
    from vitrail.train.run import train as train

HOMES = {
    "Preprocess": "vitrail.config",
    "Probe": "vitrail.model.probe",
    "ViTConfig": "vitrail.config",
    "VisionTransformer": "vitrail.model.vit",
    "VitrailError": "vitrail.errors",
    "convert": "vitrail.checkpoint",
    "create": "vitrail.model.variants",
    "doctor": "vitrail.doctor.examine",
    "embed": "vitrail.embed.embed",
    "evaluate": "vitrail.evaluate.evaluate",
    "explain": "vitrail.explain.explain",
    "figures": "vitrail.explain.figures",
    "inspect": "vitrail.checkpoint",
    "load": "vitrail.checkpoint",
    "predict": "vitrail.predict.predict",
    "prune": "vitrail.prune.prune",
    "prune_heads": "vitrail.prune.surgery",
    "save": "vitrail.checkpoint",
    "trace": "vitrail.explain.trace",
    "train": "vitrail.train.run",
}

__all__ = [
    "Preprocess",
    "Probe",
    "ViTConfig",
    "VisionTransformer",
    "VitrailError",
    "convert",
    "create",
    "doctor",
    "embed",
    "evaluate",
    "explain",
    "figures",
    "inspect",
    "load",
    "predict",
    "prune",
    "prune_heads",
    "save",
    "trace",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'vitrail' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
