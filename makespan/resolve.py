"""Resolve: from the name of an extension to its module or object, found by scanning its folder.

An extension is one module in its folder. Its name is the module's, with hyphens for underscores. The object
that it offers is the module's public one of the same name: `tensor_fusion.py` offers `TensorFusion`, or
`tensor_fusion`. Code from outside is named `package.module:Name`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

from makespan.errors import MakespanError


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: the nearest of the `known` ones, or all of them."""
    choices = sorted(known)
    near = get_close_matches(word, choices, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; expected one of {', '.join(choices)}" if choices else "; there is none to choose from"


def member_names(package: str) -> list[str]:
    """Names of all modules in the folder of `package`, hyphenated and sorted; private ones (_x) are not members."""
    paths = import_module(package).__path__
    return sorted(
        found.name.replace("_", "-") for found in pkgutil.iter_modules(paths) if not found.name.startswith("_")
    )


def find_module(package: str, name: str) -> ModuleType:
    """The module that `name` stands for in the folder of `package`; hyphens and underscores are the same.

    Raises MakespanError with the nearest known name.
    """
    wanted = name.replace("_", "-")
    known = member_names(package)
    if wanted not in known:
        raise MakespanError(f"{package} has no {name!r}{did_you_mean(wanted, known)}")
    return import_module(f"{package}.{wanted.replace('-', '_')}")


def offered(module: ModuleType) -> Any:
    """The object that `module` offers: its own public one of the same name, letter case and underscores aside.

    None where there is none: then the module only helps the members of its folder.
    """
    plain = module.__name__.rpartition(".")[2].replace("_", "").lower()
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if own and not name.startswith("_") and name.replace("_", "").lower() == plain:
            return value
    return None


def offering_names(package: str) -> list[str]:
    """Names of the members of `package` that offer an object; imports them all."""
    return [name for name in member_names(package) if offered(find_module(package, name)) is not None]


def resolve(package: str, name: str, *, outside: bool = True) -> Any:
    """The object called `name`: one that a member of `package` offers, or `package.module:Name`.

    Names that come from a file, not from the user, are resolved with `outside=False`: a file must not choose
    which code is run. Raises MakespanError for a name that leads nowhere, and says which was meant.
    """
    if ":" in name:
        if not outside:
            raise MakespanError(f"{name!r} is outside code, which a file may not name; give it on the command line")
        return _outside(name)
    wanted = name.replace("_", "-")
    if wanted not in member_names(package):
        raise MakespanError(f"{package} has no {name!r}{did_you_mean(wanted, offering_names(package))}")
    value = offered(find_module(package, wanted))
    if value is None:
        known = offering_names(package)
        raise MakespanError(f"{package}'s module {name!r} offers nothing by itself{did_you_mean(name, known)}")
    return value


def _outside(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    parts = [*module_name.split("."), *attribute.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise MakespanError(f"{name!r}: expected package.module:Name, made of identifiers")
    try:
        value: Any = import_module(module_name)
    except ImportError as error:
        raise MakespanError(f"{name!r}: module {module_name} can't be imported ({error})") from None
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [known for known in vars(value) if not known.startswith("_")]
            raise MakespanError(f"{name!r}: {module_name} has no {part}{did_you_mean(part, public)}")
        value = getattr(value, part)
    return value
