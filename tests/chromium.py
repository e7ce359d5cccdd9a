"""Chromium and its driver, for the tests of pages and of the interface."""

import os
import shutil

import pytest


def programs() -> tuple[str, str]:
    """Paths of the browser and of its driver; where one is missing the test fails, or is skipped if that is allowed."""
    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser and driver:
        return browser, driver
    if os.environ.get("PALIMPSEST_WITHOUT_BROWSER") == "1":
        pytest.skip("no Chromium, and PALIMPSEST_WITHOUT_BROWSER=1 allows that")
    pytest.fail("This is tested in Chromium. Install chromium and chromedriver, or set PALIMPSEST_WITHOUT_BROWSER=1.")
