"""The key that signs releases, and the signed list of a release's files.

The key is ed25519, in a file that only its owner may read, or held by a token or a key service. The list is an in-toto
Statement v1 in a DSSE v1 envelope. DSSE signs the payload together with its type (secure-systems-lab, DSSE 1.0.2,
protocol). The envelope can be written in only one way, so no byte of it can change unseen, including its key's name and
its line breaks.
"""

import base64
import binascii
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from platformdirs import user_config_path

from palimpsest.errors import DataError, ParamsError
from palimpsest.files import workspace_of

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

VARIABLE = "PALIMPSEST_KEY"
_FILE = "release.pem"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
PUBLIC_VARIABLE = "PALIMPSEST_PUBLIC_KEY"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "urn:palimpsest:release:2"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REMEDY = "Do not use this release; ask the releaser for it again."


def key_path(path: Path | str | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the key is: `path`, else PALIMPSEST_KEY, else the user's configuration folder."""
    given = path or environment.get(VARIABLE)
    return Path(given).expanduser().absolute() if given else user_config_path("palimpsest") / _FILE


def new_key(path: Path) -> str:
    """Make a key, write it so that only its owner can read it, and return its fingerprint.

    Raises:
        DataError: there is a file already, the place lies in a workspace, or it cannot be written.
    """
    _check_outside(path)
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(text)
    except FileExistsError:
        raise DataError(
            f"There is a file at {str(path)!r} already; a key is never overwritten.",
            "Sign with that key, or name another place by --path.",
        ) from None
    except OSError as error:
        raise DataError(
            f"No key can be written to {str(path)!r} ({type(error).__name__}).", "Name another place by --path."
        ) from None
    return fingerprint(key.public_key())


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read the key in a file.

    Raises:
        DataError: there is none, it is no ed25519 key, others may read it, or it lies in a workspace.
    """
    if not path.is_file():
        raise DataError(
            f"There is no key to sign the release with at {str(path)!r}.",
            f"Make one with `palimpsest keys new`, or set {VARIABLE} to the place of yours.",
        )
    _check_outside(path)
    if path.stat().st_mode & _OTHERS:
        raise DataError(f"Others than its owner may read the key at {str(path)!r}.", f"Run `chmod 600 {path}`.")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise DataError(
            f"{str(path)!r} is no ed25519 key in PEM without a password.", "Make one with `palimpsest keys new`."
        )
    return key


def public_pem(key: Ed25519PublicKey) -> bytes:
    """Return the public half as a PEM file."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def load_public(pem: bytes) -> Ed25519PublicKey:
    """Read the public half from its PEM file.

    Raises:
        DataError: it is no such file, or not written as `public_pem` writes it.
    """
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey) or public_pem(key) != pem:
        raise DataError("This is no public ed25519 key in PEM.", "Ask the releaser for the key again.")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of the public key in DER, as `openssl pkey -pubin -outform DER | sha256sum` prints it."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"SHA256:{hashlib.sha256(der).hexdigest()}"


def _check_outside(path: Path) -> None:
    inside = workspace_of(path)
    if inside is not None:
        raise DataError(
            f"The key's place {str(path)!r} lies in the workspace {str(inside)!r}, which may be shared or pushed.",
            f"Keep the key elsewhere: name a place by --path or {VARIABLE}.",
        )


class SigningKey(Protocol):
    """A key that signs: in a file, or held elsewhere."""

    def public_key(self) -> Ed25519PublicKey:
        """Return the public half."""

    def sign(self, data: bytes, /) -> bytes:
        """Return an ed25519 signature of the data."""


@dataclass(frozen=True)
class _HeldKey:
    """A key that signs where it is held, and never comes here."""

    signer: "Signer"
    public: Ed25519PublicKey

    def public_key(self) -> Ed25519PublicKey:
        """Return the public half, from the file."""
        return self.public

    def sign(self, data: bytes, /) -> bytes:
        """Return the holder's signature, after checking it against the public half.

        Raises:
            DataError: the holder does not answer, or another key signed.
        """
        try:
            proof = bytes.fromhex(self.signer.sign(data).signature)
            self.public.verify(proof, data)
        except InvalidSignature:
            raise DataError(
                f"What signs at {VARIABLE} is another key than {PUBLIC_VARIABLE} says.", "Name both halves of one key."
            ) from None
        except Exception as error:  # each holder has errors of its own
            raise DataError(
                f"The key at {VARIABLE} did not sign ({type(error).__name__}).",
                "See that its token or service is reached, and that you may use it. Nothing was released.",
            ) from None
        return proof


def signing_key(environment: Mapping[str, str] = os.environ) -> SigningKey:
    """Return the key that PALIMPSEST_KEY names, by a URI or as a file; the user's own file by default.

    Raises:
        ParamsError: securesystemslib, or what it needs for this URI, is not installed.
        DataError: there is no such key.
    """
    uri = environment.get(VARIABLE, "")
    scheme = uri.partition(":")[0]
    if not scheme or scheme == uri:
        return load_key(key_path(environment=environment))
    public = _read_public_key(environment)
    try:
        from securesystemslib.exceptions import UnsupportedLibraryError
        from securesystemslib.signer import Signer, SSlibKey
    except ModuleNotFoundError:
        raise ParamsError(
            "securesystemslib is not installed.", "Install the extra: pip install palimpsest[kms]."
        ) from None
    try:
        known = SSlibKey.from_crypto(public, keyid=fingerprint(public))
        return _HeldKey(Signer.from_priv_key_uri(uri, known), public)
    except (UnsupportedLibraryError, ImportError):
        raise ParamsError(
            f"securesystemslib lacks what it needs for keys of {scheme!r}.",
            "Install its own extra for them: its documentation lists these.",
        ) from None
    except Exception as error:  # each holder has errors of its own
        raise DataError(
            f"There is no key at the URI of scheme {scheme!r} in {VARIABLE} ({type(error).__name__}).",
            "Correct the URI: securesystemslib's documentation has the form of each.",
        ) from None


def _read_public_key(environment: Mapping[str, str]) -> Ed25519PublicKey:
    path = Path(environment.get(PUBLIC_VARIABLE, "")).expanduser()
    if not path.is_file():
        raise DataError(
            f"{VARIABLE} is a URI, and {PUBLIC_VARIABLE} names no file with the public half of that key.",
            f"Set {PUBLIC_VARIABLE} to its place, a public ed25519 key in PEM.",
        )
    return load_public(path.read_bytes())


@dataclass(frozen=True)
class Signed:
    """The content that a key has signed."""

    files: Mapping[str, str]  # name -> SHA-256 of every file, in hexadecimal digits
    predicate: Mapping[str, Any]  # the statement about them as a whole


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
