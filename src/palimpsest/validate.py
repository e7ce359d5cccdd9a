"""Argument checks whose messages name the argument."""

import math


def require_positive(**values: float) -> None:
    """Raise ValueError unless every value is finite and > 0.

    >>> require_positive(noise=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: noise must be > 0, got -1.0
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be > 0, got {value!r}")


def require_in_range(low: float, high: float, **values: float) -> None:
    """Raise ValueError unless low <= value <= high for every value."""
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{name} must be between {low!r} and {high!r}, got {value!r}")


def require_one_of(allowed: tuple[str, ...], **values: str) -> None:
    """Raise ValueError unless every value is one of the allowed names."""
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
