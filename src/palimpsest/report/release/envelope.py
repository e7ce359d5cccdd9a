"""The signed list of a release's files: an in-toto Statement v1 in a DSSE v1 envelope, under an ed25519 signature.

DSSE signs the payload together with its type (secure-systems-lab, DSSE 1.0.2, protocol). The envelope can be written
in only one way, so no byte of it can change unseen, including its key's name and its line breaks.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from palimpsest.errors import DataError
from palimpsest.report.release.keys import SigningKey, fingerprint

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "urn:palimpsest:release:2"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REMEDY = "Do not use this release; ask the releaser for it again."


@dataclass(frozen=True)
class Signed:
    """The content that a key has signed.

    Attributes:
        files: name -> SHA-256 of every file, in hexadecimal digits.
        predicate: the statement about them as a whole.
    """

    files: Mapping[str, str]
    predicate: Mapping[str, Any]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding, the bytes that are signed.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(signed: Signed, key: SigningKey) -> bytes:
    """Sign and return the envelope as the bytes of its file."""
    payload = _payload(signed)
    return _encode_envelope(payload, fingerprint(key.public_key()), key.sign(pae(PAYLOAD_TYPE, payload)))


def unseal(data: bytes, key: Ed25519PublicKey) -> Signed:
    """Return the content that the key has signed in this envelope.

    Raises:
        DataError: it is no such envelope, its signature is not this key's, or the signed content is no list of files.
    """
    try:
        body = json.loads(data)
        (signature,) = body["signatures"]
        payload, proof = (base64.b64decode(part, validate=True) for part in (body["payload"], signature["sig"]))
        whole = data == _encode_envelope(payload, fingerprint(key), proof)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        whole = False
    if not whole:
        raise DataError("The envelope is not one of this key's: it was changed, or another key signed it.", _REMEDY)
    try:
        key.verify(proof, pae(PAYLOAD_TYPE, payload))
    except InvalidSignature:
        raise DataError("The signature does not fit: the list of files was changed.", _REMEDY) from None
    return _read_signed(payload)


def _payload(signed: Signed) -> bytes:
    body = {
        "_type": _STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": signed.files[name]}} for name in sorted(signed.files)],
        "predicateType": _PREDICATE_TYPE,
        "predicate": signed.predicate,
    }
    return json.dumps(body, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def _encode_envelope(payload: bytes, keyid: str, proof: bytes) -> bytes:
    encoded, sig = (base64.b64encode(part).decode() for part in (payload, proof))
    body = {"payloadType": PAYLOAD_TYPE, "payload": encoded, "signatures": [{"keyid": keyid, "sig": sig}]}
    return (json.dumps(body, indent=2) + "\n").encode()


def _read_signed(payload: bytes) -> Signed:
    """Read the signed list and check its names.

    A signature says who wrote the list, not that its names are harmless: they are checked like anybody's.
    """
    try:
        body = json.loads(payload)
        pairs = [(subject["name"], subject["digest"]["sha256"]) for subject in body["subject"]]
        kinds = body["_type"], body["predicateType"]
        known = kinds == (_STATEMENT_TYPE, _PREDICATE_TYPE) and isinstance(body["predicate"], dict)
        fit = known and all(_NAME.fullmatch(name) and _DIGEST.fullmatch(digest) for name, digest in pairs)
        twice = len({name.lower() for name, _ in pairs}) < len(pairs)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fit, twice = False, False
    if not fit or twice:
        raise DataError(
            "What is signed is no list of a release's files: a name leads elsewhere, occurs twice, or has no hash.",
            _REMEDY,
        )
    return Signed(dict(pairs), body["predicate"])
