"""How good a model is on labelled pictures. `vitrail.evaluate(model, data)` is the verb, this package its home."""

from vitrail.verb import answers_as

answers_as(__name__, "vitrail.evaluate.evaluate")
