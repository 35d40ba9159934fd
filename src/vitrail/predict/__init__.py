"""Pictures in, answers out. `vitrail.predict(model, pictures)` is the verb; this package is also its home."""

from vitrail.verb import answers_as

answers_as(__name__, "vitrail.predict.predict")
