"""palimpsest: differentially private synthetic text, with a metered privacy budget and an audit.

`create` and `open` give a workspace to work with from Python; docs/python.md shows both. With types they are in
`palimpsest.api`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the interface for Python when it is asked for, so that importing a part of the package does not load it."""
    if name in ("RunFailed", "Workspace", "create", "open"):
        return getattr(import_module("palimpsest.api"), name)
    if name == "PalimpsestError":
        return import_module("palimpsest.errors").PalimpsestError
    raise AttributeError(f"module 'palimpsest' has no attribute {name!r}")
