"""What every test starts from."""

import os
import signal

import pytest

# Fixtures that take seconds to make: a trained model, a server.
COSTLY = ("base", "api")

# The workers of one run share the cores: threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that runs us in the background lets us ignore Ctrl-C, and every child inherits that: the tests that interrupt
# a run would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests of a costly fixture to one worker, so that the others need not make it again."""
    for item in items:
        for name in set(COSTLY) & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(name))
