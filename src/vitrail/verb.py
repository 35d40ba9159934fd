"""A package that is also a verb: `vitrail.explain(model, images)` beside `vitrail.explain.trace`.

Python binds a package's name to the package once any module of it is imported. Being callable, the package answers as
the function of the same name does, and that function's module is imported only when it is called.
"""

import sys
from collections.abc import Callable, Mapping
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


def method(home: str) -> Callable[..., Any]:
    """A method that is a verb: `model.predict(pictures)` is `vitrail.predict(model, pictures)`."""
    verb = home.rpartition(".")[2]

    def call(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(import_module(home), verb)(self, *args, **options)

    call.__name__, call.__doc__ = verb, f"`vitrail.{verb}` of this model."
    return call


def looks_up(package: str, homes: Mapping[str, str]) -> None:
    """Import these names of a package on first use; they win over submodules of the same name."""

    def found_in(home: str, name: str) -> property:
        # Python sets a submodule as an attribute when it is imported; the name is taken, so that is let pass.
        return property(lambda _: getattr(import_module(home), name), lambda _, submodule: None)

    members = {name: found_in(home, name) for name, home in homes.items()}
    sys.modules[package].__class__ = type("Package", (ModuleType,), members)
