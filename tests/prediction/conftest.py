"""Every test has models of its own: one that was tried is packed."""

from collections.abc import Iterator

import pytest

from tests.prediction.tiny import model


@pytest.fixture(autouse=True)
def own_models() -> Iterator[None]:
    """Forget models that a test may have packed."""
    yield
    model.cache_clear()
