"""vitrail: Vision Transformers, from a folder of images to a model that is trained, understood, fast and served."""

__version__ = "0.1.0.dev0"
