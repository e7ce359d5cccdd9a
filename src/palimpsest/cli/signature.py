"""Options that several commands share, declared once."""

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import Any


def take_options(given: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of a function or a class: what it makes becomes the first argument."""
    shared = signature(given).parameters

    def taking(command: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(command).parameters.values())[1:]

        @wraps(command)
        def called(**values: Any) -> None:
            command(given(**{name: values.pop(name) for name in shared}), **values)

        both = [*shared.values(), *own]
        vars(called).pop("__wrapped__")  # typer asks the outer one
        called.__annotations__ = {each.name: each.annotation for each in both}
        called.__signature__ = Signature(both)  # type: ignore[attr-defined]
        return called

    return taking
