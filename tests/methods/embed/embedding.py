"""A small world of texts that name things: encoder, decoder and language model of its own, and a metered view."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.methods.embed.declaration import Eda, EmbedMeans, EmbedSettings, Readable
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.means import Candidates
from palimpsest.models.settings import DecodeSettings
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.means import Encode
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.methods.tickets import FILTERS, SECRET, THINGS, ledger_of_tickets, opened_by, tickets

LABELS = {"refund": "lamp kettle", "praise": "stove fridge"}
LENGTH = 24  # things that a text names
AIM = EmbedMeans(share=0.25, domain=1.0, pool=2)
LIMITED = {"kind": "limited_domain", "domain": 12, "delta_share": 0.5}
_DECODE = DecodeSettings(samples=1, corrections=0, temperature=1.0, top_p=1.0, max_tokens=9, batch=8)
_SETTINGS = {
    "rows": 6, "label_counts": "prior", "prior": None, "histogram_share": 0.05, "batch": 1, "rounds": 3, "start": 20,
    "offspring": 16, "parents": 4, "selection": {"kind": "gaussian", "neighbours": 1},
    "eda": Eda(smoothing=0.1, best=3, components=1), "readable": None, "class_means": None, "decode": _DECODE,
    "filters": FILTERS,
}  # fmt: skip
READABLE = Readable(quantile=None, perplexity=50.0)
# Rows of a label name its own things most, and one other, which is seldom one of the last.
ROWS = [
    PrivateRow(f"{SECRET} {number}: {own} {own} {own} {other}", label)
    for label, things in (("refund", THINGS[:2]), ("praise", THINGS[3:5]))
    for own in things
    for other, often in zip(THINGS, (20, 14, 10, 8, 5, 3), strict=True)
    for number in range(often)
]
PUBLIC = [" ".join(found) for found in combinations_with_replacement(THINGS, 3)]  # 56 texts


def schema_of(n_public: int = 240, labels: Mapping[str, str] = LABELS) -> PublicSchema:
    return tickets(n_public, labels)


def embed_settings(**changes: Any) -> EmbedSettings:
    return EmbedSettings(**{**_SETTINGS, **changes})


def encode(texts: Sequence[str]) -> np.ndarray:
    """How often a text names each thing, as a vector of length 1; zero for a text that names nothing."""
    named = np.array([[text.split().count(thing) for thing in THINGS] for text in texts], dtype=np.float64)
    named = named.reshape(-1, len(THINGS))
    return (named / np.maximum(np.linalg.norm(named, axis=1, keepdims=True), 1.0)).astype(np.float32)


def public() -> Candidates:
    return Candidates(PUBLIC, encode(PUBLIC))


def descriptions() -> np.ndarray:
    return encode(list(LABELS.values()))


@dataclass(frozen=True)
class Spelt:
    """Texts and their embeddings."""

    texts: list[str]
    embeddings: np.ndarray


@dataclass
class Speller:
    """A decoder of these embeddings: it names each thing as often as its coordinate says, and notes what it is given.

    A vector without a coordinate above 0 becomes a blank text.
    """

    given: list[np.ndarray] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def decode(self, vectors: np.ndarray, settings: DecodeSettings, encode: Encode, seed: int) -> Spelt:
        """One text of `LENGTH` things for each vector."""
        self.given.append(np.array(vectors))
        self.seeds.append(seed)
        texts = [_spelt(vector) for vector in vectors]
        return Spelt(texts, encode(texts))


@dataclass(frozen=True)
class Nearest:
    """A decoder that knows the public texts alone, and answers the nearest."""

    known: Candidates

    def decode(self, vectors: np.ndarray, settings: DecodeSettings, encode: Encode, seed: int) -> Spelt:
        """The public text with the largest cosine."""
        places = (vectors @ self.known.embeddings.T).argmax(axis=1)
        return Spelt([self.known.texts[place] for place in places], self.known.embeddings[places])


def _spelt(vector: np.ndarray) -> str:
    shares = np.maximum(vector.astype(np.float64), 0.0)
    if not shares.any():
        return ""
    exact = LENGTH * shares / shares.sum()
    counts = np.floor(exact + 1e-6).astype(int)
    for place in np.argsort(counts - exact, kind="stable")[: LENGTH - counts.sum()]:
        counts[place] += 1
    return " ".join(thing for thing, count in zip(THINGS, counts, strict=True) for _ in range(count))


def losses(texts: Sequence[str]) -> np.ndarray:
    """Mean loss of a word, in nats, by a model of single words that hardly knows the last two things."""
    likely = Counter(dict(zip(THINGS, (0.3, 0.25, 0.25, 0.18, 0.015, 0.005), strict=True)))
    return np.array([np.mean([-np.log(likely[word]) for word in text.split()]) for text in texts])


def new_ledger(folder: Path, epsilon: float = 90.0) -> Ledger:
    return ledger_of_tickets(folder, epsilon, 240)


def opened(
    ledger: Ledger, schema: PublicSchema, plan: Plan, purpose: str = "release", rows: Sequence[PrivateRow] = ROWS
) -> AbstractContextManager[PrivateView]:
    return opened_by("eda_evolve", rows, ledger, schema, plan, purpose)
