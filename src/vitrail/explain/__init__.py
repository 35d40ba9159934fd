"""See through a model. `vitrail.explain(model, images)` is the verb; this package is also its home.

Python binds a package's name to the package once any module of it is imported, `vitrail.explain.trace` say. Being
callable, the package answers as the function of the same name does.
"""

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from vitrail.explain.explain import explain

        return explain(*args, **options)


sys.modules[__name__].__class__ = _Verb
