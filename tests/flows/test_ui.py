"""The interface in a real browser, and the server around a run."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from flows import ui
from flows.ui import ServerError, _wait_until_healthy, run_with_server

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --no-proxy-server --window-size=1400,1000"
)
DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.mark.skipif(not (DRIVER and BROWSER), reason="needs Chromium and its driver")
def test_the_page_of_a_run_names_its_stages(
    api: str, make_workspace: Callable[..., Path], browser: webdriver.Chrome, tmp_path: Path
) -> None:
    from flows.build import build

    folder = make_workspace(
        "stages:\n  prepare-rows: {cmd: touch rows.txt, outs: [rows.txt]}\n"
        "  train: {matrix: {who: [one, two]}, cmd: 'touch ${item.who}', deps: [rows.txt], outs: ['${item.who}']}\n"
    )
    run = build(folder, return_state=True).state_details.flow_run_id
    browser.get(f"{api.removesuffix('/api')}/runs/flow-run/{run}")
    wait = WebDriverWait(browser, 60)
    for stage in ("prepare-rows", "train@one", "train@two"):
        wait.until(lambda page, stage=stage: stage in page.find_element(By.TAG_NAME, "body").text)
    browser.save_screenshot(str(tmp_path / "run.png"))


def test_a_given_server_is_used(
    api: str, make_workspace: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make_workspace(
        "stages:\n  a: {cmd: 'echo \"$PALIMPSEST_RELEASE\" > a.txt', outs: [a.txt]}\n  b: {cmd: touch b, outs: [b]}\n"
    )
    said = {"PALIMPSEST_RELEASE": "yes"}
    assert run_with_server(folder, stay=True, targets=["a"], variables=said) == 0  # not ours to keep open: it returns
    assert f"Prefect UI: {api.removesuffix('/api')}" in capfd.readouterr().out
    assert (folder / "a.txt").read_text() == "yes\n"  # a stage of the flow has the owner's word
    assert not (folder / "b").exists()
    assert not (folder / ".palimpsest").exists()


def test_courses_are_flows_on_one_server_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(ui, "_run", lambda command, *_: begun.append(command[5:]) or 0)
    assert run_with_server(tmp_path, stay=False, workers=2, courses=lambda bring: bring(["a"]) + bring(["b", "c"])) == 0
    assert begun == [["a", "--workers", "2"], ["b", "c", "--workers", "2"]]


def test_a_server_that_ends_is_an_error(tmp_path: Path) -> None:
    process = subprocess.Popen(["false"])
    process.wait()
    with pytest.raises(ServerError, match=r"server\.log"):
        _wait_until_healthy(process, "http://127.0.0.1:9/", tmp_path / "server.log")
