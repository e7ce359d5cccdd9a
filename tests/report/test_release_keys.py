"""The key that signs: where it is, who may read it, and what is refused."""

import hashlib
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from palimpsest.errors import DataError
from palimpsest.report.release.keys import VARIABLE, fingerprint, key_path, load_key, load_public, new_key, public_pem


def test_a_new_key_is_its_owners_alone_and_can_sign(tmp_path: Path):
    path = tmp_path / "deep" / "own.pem"
    name = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    key = load_key(path)
    assert fingerprint(key.public_key()) == name
    key.public_key().verify(key.sign(b"text"), b"text")


def test_two_keys_differ(tmp_path: Path):
    assert new_key(tmp_path / "a.pem") != new_key(tmp_path / "b.pem")


def test_a_key_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "own.pem"
    path.write_text("precious")
    with pytest.raises(DataError, match="never overwritten"):
        new_key(path)
    assert path.read_text() == "precious"


def test_a_key_does_not_follow_a_link(tmp_path: Path):
    (tmp_path / "link.pem").symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(DataError):
        new_key(tmp_path / "link.pem")
    assert not (tmp_path / "elsewhere.pem").exists()


@pytest.mark.parametrize("below", ["", "data/keys"])
def test_a_key_never_lies_in_a_workspace(tmp_path: Path, below: str):
    for name in ("params.yaml", "dvc.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="workspace"):
        new_key(tmp_path / below / "own.pem")
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    (tmp_path / below / "moved.pem").write_bytes(pem(Ed25519PrivateKey.generate()))
    (tmp_path / below / "moved.pem").chmod(0o600)
    with pytest.raises(DataError, match="workspace"):
        load_key(tmp_path / below / "moved.pem")


def pem(key: object, password: bytes | None = None) -> bytes:
    lock = NoEncryption() if password is None else BestAvailableEncryption(password)
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff not a key", pem(generate_private_key(SECP256R1())), pem(Ed25519PrivateKey.generate(), b"word")],
    ids=["nothing", "no text", "another curve", "locked"],
)
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "own.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(DataError, match="no ed25519 key"):
        load_key(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_reach_is_refused(tmp_path: Path, mode: int):
    new_key(tmp_path / "own.pem")
    (tmp_path / "own.pem").chmod(mode)
    with pytest.raises(DataError, match="chmod 600"):
        load_key(tmp_path / "own.pem")


def test_where_there_is_no_key_one_is_told_how_to_make_it(tmp_path: Path):
    with pytest.raises(DataError) as caught:
        load_key(tmp_path / "none.pem")
    assert "palimpsest keys new" in caught.value.remedy
    assert VARIABLE in caught.value.remedy


def test_the_place_is_named_then_the_environments_then_the_users(tmp_path: Path):
    named = {VARIABLE: str(tmp_path / "env.pem")}
    assert key_path(tmp_path / "own.pem", named) == tmp_path / "own.pem"
    assert key_path(None, named) == tmp_path / "env.pem"
    assert key_path(None, {}).name == "release.pem"
    assert key_path(None, {}).parent.name == "palimpsest"


def test_the_fingerprint_is_the_one_that_openssl_gives(tmp_path: Path):
    key = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "key.pub").write_bytes(public_pem(key))
    command = ["openssl", "pkey", "-pubin", "-in", str(tmp_path / "key.pub"), "-outform", "DER"]
    der = subprocess.run(command, capture_output=True, check=True).stdout
    assert fingerprint(key) == f"SHA256:{hashlib.sha256(der).hexdigest()}"


def test_a_public_key_has_one_way_of_writing():
    key = Ed25519PrivateKey.generate().public_key()
    assert fingerprint(load_public(public_pem(key))) == fingerprint(key)
    for other in (b"", b" " + public_pem(key), public_pem(key) + b"\n", public_pem(key).replace(b"\n", b"\r\n")):
        with pytest.raises(DataError):
            load_public(other)
