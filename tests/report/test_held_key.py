"""A key that never leaves its holder signs a release, and whoever checks it needs nothing new."""

from pathlib import Path
from typing import Any

import pytest
import securesystemslib.signer as signers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import stages.release
from palimpsest.errors import DataError
from palimpsest.report.release.bundle import ENVELOPE
from palimpsest.report.release.keys import PUBLIC_VARIABLE, VARIABLE, load_key, new_key, public_pem, signing_key, unseal
from tests.report.release_world import copied, inside, released

KEYS = {"own": Ed25519PrivateKey.generate(), "other": Ed25519PrivateKey.generate()}


class Token(signers.CryptoSigner):
    """A holder of the keys of this test."""

    @classmethod
    def from_priv_key_uri(cls, uri: str, public_key: Any, _secrets: Any = None) -> "Token":
        name = uri.partition(":")[2]
        if name == "gone":
            return Gone(KEYS["own"], public_key)
        if name == "other":
            return cls(KEYS[name], signers.SSlibKey.from_crypto(KEYS[name].public_key()))
        return cls(KEYS[name], public_key)


class Gone(Token):
    """One that was pulled out."""

    def sign(self, payload: bytes) -> Any:
        raise OSError("no token")


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setitem(signers.SIGNER_FOR_URI_SCHEME, "token", Token)
    public = tmp_path / "own.pub.pem"
    public.write_bytes(public_pem(KEYS["own"].public_key()))
    return {VARIABLE: "token:own", PUBLIC_VARIABLE: str(public)}


def test_a_release_is_signed_by_who_holds_the_key(
    named: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copied(released(), tmp_path)
    with inside(made):
        for name, value in named.items():
            monkeypatch.setenv(name, value)
        stages.release.run()
        assert unseal((made.folder / "release" / ENVELOPE).read_bytes(), KEYS["own"].public_key()).files


def test_a_file_stays_the_default(tmp_path: Path) -> None:
    new_key(tmp_path / "release.pem")
    found = signing_key({VARIABLE: str(tmp_path / "release.pem")})
    assert found.public_key() == load_key(tmp_path / "release.pem").public_key()


@pytest.mark.parametrize(
    ("uri", "said"),
    [("token:other", "another key"), ("token:gone", "did not sign"), ("token:none", "no key at the URI")],
)
def test_what_does_not_sign_is_an_error_with_a_remedy(named: dict[str, str], uri: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        signing_key({**named, VARIABLE: uri}).sign(b"files")
    assert error.value.remedy


def test_an_unknown_scheme_and_a_missing_public_half_are_told(named: dict[str, str]) -> None:
    with pytest.raises(DataError, match="scheme 'vaults'"):
        signing_key({**named, VARIABLE: "vaults:key"})
    with pytest.raises(DataError, match=PUBLIC_VARIABLE):
        signing_key({VARIABLE: "token:own"})
