"""Pictures in, features out. `vitrail.embed(model, pictures)` is the verb; this package is also its home."""

from vitrail.verb import answers_as

answers_as(__name__, "vitrail.embed.embed")
