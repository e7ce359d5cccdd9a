"""A signing key that stays in a token or a key service: securesystemslib's signers ask it to sign.

`PALIMPSEST_KEY` is then the key's URI, and `PALIMPSEST_PUBLIC_KEY` a file with its public half. Only ed25519 keys are
taken, so that checking a release needs nothing new: a TKey, HashiCorp Vault (`hv:`) and Google's service have them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from palimpsest.errors import DataError, ParamsError
from palimpsest.report.release.keys import VARIABLE, fingerprint, key_path, load_key, load_public

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

PUBLIC_VARIABLE = "PALIMPSEST_PUBLIC_KEY"


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
    public = _public(environment)
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


def _public(environment: Mapping[str, str]) -> Ed25519PublicKey:
    path = Path(environment.get(PUBLIC_VARIABLE, "")).expanduser()
    if not path.is_file():
        raise DataError(
            f"{VARIABLE} is a URI, and {PUBLIC_VARIABLE} names no file with the public half of that key.",
            f"Set {PUBLIC_VARIABLE} to its place, a public ed25519 key in PEM.",
        )
    return load_public(path.read_bytes())
