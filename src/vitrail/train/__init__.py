"""From a folder of pictures to a model. `vitrail.train(data, model)` is the verb; this package is also its home."""

from vitrail.verb import answers_as

answers_as(__name__, "vitrail.train.run")
