"""A browser for the pages; and `report_world` importable from the tests beside it, however pytest imports them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from tests.chromium import programs

sys.path.insert(0, str(Path(__file__).parent))

pytest.register_assert_rewrite("in_browser")

from in_browser import Open  # noqa: E402

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    chromium, driver = programs()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    yield running
    running.quit()


@pytest.fixture
def opened(chrome: webdriver.Chrome, tmp_path: Path) -> Open:
    def show(html: str, width: int = 1280, scheme: str = "light") -> webdriver.Chrome:
        path = tmp_path / "internal.html"
        path.write_text(html, encoding="utf-8")
        chrome.get_log("browser")
        chrome.get_log("performance")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chrome.get(path.as_uri())
        WebDriverWait(chrome, 20).until(
            lambda shown: shown.execute_script("return document.documentElement.dataset.drawn")
        )
        return chrome

    return show
