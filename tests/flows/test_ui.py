"""The server around a run."""

import base64
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from flows import ui
from flows.environment import URL, WORD
from flows.ui import ServerError, _tell, _wait_until_healthy, run_with_server


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
    assert not (folder / ".palimpsest" / "prefect").exists()


def test_courses_are_flows_on_one_server_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(ui, "require_answer", lambda url: None)
    monkeypatch.setattr(ui, "_run", lambda command, *_: begun.append(command[5:]) or 0)
    assert run_with_server(tmp_path, stay=False, workers=2, courses=lambda bring: bring(["a"]) + bring(["b", "c"])) == 0
    assert begun == [["a", "--workers", "2"], ["b", "c", "--workers", "2"]]


def test_the_own_server_answers_those_alone_who_have_its_word(api: str) -> None:
    def asked(word: str | None) -> int:
        headers = {} if word is None else {"Authorization": f"Basic {base64.b64encode(word.encode()).decode()}"}
        return httpx.post(f"{api}/deployments/filter", json={}, headers=headers).status_code

    assert [asked(word) for word in (None, "palimpsest:", os.environ[WORD])] == [401, 401, 200]


def test_the_own_server_s_word_is_told_and_a_team_s_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    address = {URL: "http://127.0.0.1:1/api", WORD: "palimpsest:once"}
    _tell("/deployments", address, is_ours=True)
    _tell("", address, is_ours=False)
    assert capsys.readouterr().out == (
        "Prefect UI: http://127.0.0.1:1/deployments, whose word is palimpsest:once\nPrefect UI: http://127.0.0.1:1\n"
    )


def test_a_server_that_ends_is_an_error(tmp_path: Path) -> None:
    process = subprocess.Popen(["false"])
    process.wait()
    with pytest.raises(ServerError, match=r"server\.log"):
        _wait_until_healthy(process, "http://127.0.0.1:9/", tmp_path / "server.log")
