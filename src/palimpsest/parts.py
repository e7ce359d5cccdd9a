"""Imports only the part of a large package that a command needs."""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any


def import_in_parts(name: str) -> None:
    """Let a package's modules be imported one by one; its own code runs when something else is asked of it.

    `dp_accounting` imports all of its accountants, and with them most of scipy. Its events, which are everywhere, need
    none of that. Only our own programs do this: code that imports palimpsest finds other packages as they are.
    """
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def part(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if find_spec(f"{name}.{attribute}") is not None:
            return import_module(f"{name}.{attribute}")
        del vars(package)["__getattr__"]
        loader.exec_module(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = part
    sys.modules[name] = package
