"""Chromium and its driver, for the tests of pages and of the interface."""

import os
import shutil

import pytest
from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

_REDRAWN = (StaleElementReferenceException, ElementClickInterceptedException)  # on a page that draws its parts anew


def programs() -> tuple[str, str]:
    """Paths of the browser and of its driver; where one is missing the test fails, or is skipped if that is allowed."""
    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser and driver:
        return browser, driver
    if os.environ.get("PALIMPSEST_WITHOUT_BROWSER") == "1":
        pytest.skip("no Chromium, and PALIMPSEST_WITHOUT_BROWSER=1 allows that")
    pytest.fail("This is tested in Chromium. Install chromium and chromedriver, or set PALIMPSEST_WITHOUT_BROWSER=1.")


def press(browser: webdriver.Chrome, place: tuple[str, str]) -> None:
    """Press what stands at this place once it can be pressed; find it again where the page has drawn it anew since."""

    def found_and_pressed(browser: webdriver.Chrome) -> bool:
        element = element_to_be_clickable(place)(browser)
        if element:
            element.click()
        return bool(element)

    WebDriverWait(browser, 60, ignored_exceptions=_REDRAWN).until(found_and_pressed)
