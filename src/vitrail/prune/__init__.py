"""Smaller models. `vitrail.prune(model, images)` is the verb; this package is also its home.

Callable for the reason vitrail.explain is: Python binds the name to the package once any module of it is imported.
"""

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from vitrail.prune.prune import prune

        return prune(*args, **options)


sys.modules[__name__].__class__ = _Verb
