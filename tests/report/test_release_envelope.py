"""The signed list: what it signs is what DSSE and in-toto say, and nothing in it can change unseen."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.errors import DataError
from palimpsest.report.release.keys import PAYLOAD_TYPE, Signed, fingerprint, pae, seal, unseal

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
SIGNED = Signed({"b/two.json": "0f" * 32, "a.txt": "1e" * 32}, {"asset": "demo", "epsilon": 2.5})
SEALED = seal(SIGNED, KEY)


def body() -> dict[str, Any]:
    return dict(json.loads(SEALED))


def payload() -> dict[str, Any]:
    return dict(json.loads(base64.b64decode(body()["payload"])))


def signed(document: dict[str, Any]) -> bytes:
    """An envelope that the key's holder signed over any payload, in its one form."""
    raw = json.dumps(document, separators=(",", ":")).encode()
    one = {"keyid": fingerprint(KEY.public_key()), "sig": base64.b64encode(KEY.sign(pae(PAYLOAD_TYPE, raw))).decode()}
    whole = {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(raw).decode(), "signatures": [one]}
    return (json.dumps(whole, indent=2) + "\n").encode()


def test_lengths_count_bytes():
    """The vector of the DSSE protocol is in the docstring; a name beyond ASCII is longer in bytes than in letters."""
    assert pae("é", b"\x00\xff") == b"DSSEv1 2 \xc3\xa9 2 \x00\xff"


def test_what_was_sealed_comes_out():
    assert unseal(SEALED, KEY.public_key()) == SIGNED


def test_the_payload_is_an_in_toto_statement():
    assert body()["payloadType"] == "application/vnd.in-toto+json"
    assert payload()["_type"] == "https://in-toto.io/Statement/v1"
    assert payload()["subject"] == [
        {"name": "a.txt", "digest": {"sha256": "1e" * 32}},
        {"name": "b/two.json", "digest": {"sha256": "0f" * 32}},
    ]
    assert signed(payload()) == SEALED


def test_another_key_does_not_open_it():
    with pytest.raises(DataError, match="another key"):
        unseal(SEALED, OTHER.public_key())


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_no_byte_can_change(place: int, change: int):
    damaged = bytearray(SEALED)
    damaged[place] ^= change
    with pytest.raises(DataError):
        unseal(bytes(damaged), KEY.public_key())


@given(st.integers(0, len(SEALED) - 1))
def test_no_part_is_enough(length: int):
    with pytest.raises(DataError):
        unseal(SEALED[:length], KEY.public_key())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        SEALED + b" ",
        SEALED.replace(b"\n", b"\r\n"),
        b"[" * 100_000,
        SEALED.replace(b'"sig"', b'"x"'),
    ],
)
def test_other_forms_are_refused(data: bytes):
    with pytest.raises(DataError):
        unseal(data, KEY.public_key())


def test_a_signature_over_another_payload_is_refused():
    other = body() | {"payload": json.loads(seal(Signed({"a.txt": "2f" * 32}, {}), KEY))["payload"]}
    with pytest.raises(DataError, match="signature does not fit"):
        unseal((json.dumps(other, indent=2) + "\n").encode(), KEY.public_key())


def test_a_signature_over_the_bare_payload_is_refused():
    """DSSE signs the payload's type too."""
    bare = body()
    proof = KEY.sign(base64.b64decode(bare["payload"]))
    bare["signatures"][0]["sig"] = base64.b64encode(proof).decode()
    with pytest.raises(DataError, match="signature does not fit"):
        unseal((json.dumps(bare, indent=2) + "\n").encode(), KEY.public_key())


@pytest.mark.parametrize(
    "name",
    ["../a", "a/../b", "/a", "a//b", "a/", ".hidden", "a/.b", "a\\b", "", ".", "..", "C:a", "a\nb", "a\x00", "é"],
)
def test_a_name_that_leads_elsewhere_is_refused_even_where_it_is_signed(name: str):
    document = payload()
    document["subject"][0]["name"] = name
    with pytest.raises(DataError, match="no list of a release's files"):
        unseal(signed(document), KEY.public_key())


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "urn:other"},
        {"predicate": []},
        {"subject": [{"name": "a.txt", "digest": {"sha256": "1E" * 32}}]},
        {"subject": [{"name": "a.txt", "digest": {"md5": "1e" * 16}}]},
        {"subject": [{"name": name, "digest": {"sha256": "1e" * 32}} for name in ("a.txt", "A.TXT")]},
        {"subject": [{"name": 7, "digest": {"sha256": "1e" * 32}}]},
        {"subject": 3},
    ],
)
def test_what_is_no_list_of_files_is_refused_even_where_it_is_signed(change: dict[str, Any]):
    with pytest.raises(DataError, match="no list of a release's files"):
        unseal(signed(payload() | change), KEY.public_key())
