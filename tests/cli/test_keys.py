"""`palimpsest keys new`, as a function; the command line calls it."""

from pathlib import Path

import pytest

from palimpsest.cli.release import make_key
from palimpsest.errors import DataError
from palimpsest.report.release.keys import VARIABLE, fingerprint, load_key


def test_a_key_is_made_where_it_is_named_and_its_fingerprint_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_key(tmp_path / "own.pem")
    told = capsys.readouterr().out
    assert f"key: {tmp_path / 'own.pem'}" in told
    assert f"fingerprint: {fingerprint(load_key(tmp_path / 'own.pem').public_key())}" in told
    assert "PRIVATE KEY" not in told


def test_a_key_that_is_there_is_kept_where_that_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for _ in range(2):
        make_key(tmp_path / "own.pem", keep=True)
    first, second = (line for line in capsys.readouterr().out.splitlines() if line.startswith("fingerprint"))
    assert first == second
    (tmp_path / "own.pem").write_text("no key")
    with pytest.raises(DataError, match="no ed25519 key"):
        make_key(tmp_path / "own.pem", keep=True)


def test_without_a_name_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "env.pem"))
    make_key(None)
    assert load_key(tmp_path / "env.pem")


def test_without_either_it_is_in_the_users_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    make_key(None)
    assert load_key(tmp_path / "palimpsest" / "release.pem")
    with pytest.raises(DataError, match="never overwritten"):
        make_key(None)
