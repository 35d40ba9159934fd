"""What this machine is, what of vitrail works on it, and what to do about the rest. `vitrail.doctor()` is the verb."""

from vitrail.verb import answers_as

answers_as(__name__, "vitrail.doctor.examine")
