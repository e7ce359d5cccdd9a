"""One text for one content, and the hashes that the ledger's chain is made of."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(body: Mapping[str, Any]) -> str:
    """One text for one content."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(text: str) -> str:
    """What the chain holds of a text that lies beside it: an asset's key, a stored answer."""
    return hashlib.sha256(text.encode()).hexdigest()


def linked(previous: str, *parts: object) -> str:
    """The hash of an entry's content and of the entry before it."""
    return digest_of(canonical({"previous": previous, "parts": [*parts]}))
