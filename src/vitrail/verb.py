"""A package that is also a verb: `vitrail.explain(model, images)` beside `vitrail.explain.trace`.

Python binds a package's name to the package once any module of it is imported. Being callable, the package answers as
the function of the same name does, and that function's module is imported only when it is called.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def answers_as(package: str, home: str) -> None:
    """Make a package callable: `vitrail.explain` as the `explain` of the module `home`."""
    verb = package.rpartition(".")[2]

    class Verb(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return getattr(import_module(home), verb)(*args, **options)

    sys.modules[package].__class__ = Verb
