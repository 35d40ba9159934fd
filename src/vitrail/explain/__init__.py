"""See through a model. `vitrail.explain(model, images)` is the verb; this package is also its home."""

from vitrail.verb import answers_as

answers_as(__name__, "vitrail.explain.explain")
