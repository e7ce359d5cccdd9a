"""One real Prefect server for the session, and small DVC workspaces."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dvc.repo import Repo
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import element_to_be_clickable, presence_of_element_located
from selenium.webdriver.support.ui import WebDriverWait

from flows.environment import URL, WORD, apply_environment
from stages.warm import VARIABLE as WARM
from tests.chromium import programs

# Prefect reads the environment when it is imported, so this comes before any test module.
_HOME = tempfile.TemporaryDirectory(prefix="prefect-")
apply_environment(Path(_HOME.name))
os.environ["PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-software-rasterizer --force-prefers-reduced-motion "
    "--disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync "
    "--no-proxy-server --window-size=1400,1000"
)


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stage here needs the libraries that would be loaded for it."""
    monkeypatch.setenv(WARM, "")


@pytest.fixture(scope="package")
def api() -> Iterator[str]:
    """The URL of a running Prefect server's API, which every flow of these tests uses."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    from flows.ui import server

    with server(Path(_HOME.name)) as address, pytest.MonkeyPatch.context() as patch:
        for name, value in address.items():
            patch.setenv(name, value)
        with temporary_settings({PREFECT_API_URL: address[URL], PREFECT_API_AUTH_STRING: address[WORD]}):
            yield address[URL]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    chromium, chromedriver = programs()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield driver
    driver.quit()


def log_in(browser: webdriver.Chrome, place: str) -> None:
    """Give the interface the word of its server, as its own page asks for it."""
    browser.get(place)
    field = WebDriverWait(browser, 60).until(element_to_be_clickable((By.CSS_SELECTOR, "input[type=password]")))
    field.send_keys(os.environ[WORD], Keys.ENTER)
    WebDriverWait(browser, 60).until_not(presence_of_element_located((By.CSS_SELECTOR, "input[type=password]")))


@pytest.fixture(scope="session")
def make_workspace(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a DVC project: `make(dvc_yaml, **files)`, with the names of files as in file_ext."""

    def make(dvc_yaml: str, **files: str) -> Path:
        folder = tmp_path_factory.mktemp("workspace")
        Repo.init(str(folder), no_scm=True).close()
        (folder / "dvc.yaml").write_text(dvc_yaml)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return make


@pytest.fixture(scope="session")
def dvc() -> Callable[..., str]:
    """Run DVC: `dvc(folder, *arguments)` is what it prints."""
    return run_dvc


def run_dvc(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "dvc", *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
