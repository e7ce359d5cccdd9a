"""What every test starts from."""

import os
import signal
import uuid
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import settings

from palimpsest.privacy.ledger.witness import VARIABLE

# Fixtures that take seconds to make: a trained model, a server, a browser.
COSTLY = ("base", "api", "chrome")

# How long an example takes hangs on what else the machine does.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# The workers of one run share the cores: threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that runs us in the background lets us ignore Ctrl-C, and every child inherits that: the tests that interrupt
# a run would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def witnesses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Heads of the tests' ledgers are never noted beside the keys of whoever runs them."""
    folder = tmp_path_factory.mktemp("witnesses")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "session"))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def _witnesses_of_a_module(witnesses: Path) -> Iterator[None]:
    """Modules, and in them tests, note heads in places of their own, as on other machines: they copy ledgers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(witnesses / uuid.uuid4().hex))
        yield


@pytest.fixture(autouse=True)
def _witnesses_of_a_test(witnesses: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(witnesses / uuid.uuid4().hex))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests of a costly fixture, or of one that their module makes, to one worker: no other makes it again."""
    for item in items:
        for name in set(COSTLY) & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(name))
        module = item.nodeid.partition("::")[0]
        if item.get_closest_marker("xdist_group") is None and module in _made_by(item):
            item.add_marker(pytest.mark.xdist_group(module))


def _made_by(item: pytest.Item) -> set[str]:
    """Where the fixtures of a test are defined that are made once for a module."""
    if not isinstance(item, pytest.Function):
        return set()
    found = chain.from_iterable(item._fixtureinfo.name2fixturedefs.values())  # noqa: SLF001
    return {fixture.baseid for fixture in found if fixture.scope == "module"}
