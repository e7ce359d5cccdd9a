"""Measures how well a decoder reconstructs public sentences from their embeddings."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import regex

from palimpsest.models.decoder.decoding import Decoder, Encode
from palimpsest.models.settings import DecodeSettings
from palimpsest.records.segment import WORD

_WORD = regex.compile(rf"(?V1){WORD}|[^\w\s\p{{M}}]")
_ORDERS = 4  # word sequences that BLEU compares are up to this long
_BLOCK = 256  # embeddings compared with all training embeddings at once
_SHOWN = 10  # samples kept


@dataclass(frozen=True)
class Reconstructed:
    """A held-out sentence and the text decoded from its embedding."""

    sentence: str
    text: str
    cosine: float


@dataclass(frozen=True)
class Reconstruction:
    """A decoder's reconstruction of sentences that it has not seen from their embeddings.

    Attributes:
        cosine: mean cosine of the texts' embeddings with the given ones.
        nearest: mean cosine of the nearest training sentence with them: what copying would reach.
        token_f1: mean harmonic mean of the shares of words that a text and its sentence have in common.
        bleu: BLEU-4 of all texts together.
    """

    sentences: int
    cosine: float
    nearest: float
    token_f1: float
    bleu: float
    exact: float
    texts: tuple[str, ...]
    samples: tuple[Reconstructed, ...]


def reconstruction(
    decoder: Decoder,
    sentences: Sequence[str],
    embeddings: np.ndarray,
    settings: DecodeSettings,
    encode: Encode,
    seed: int,
    training: np.ndarray,
) -> Reconstruction:
    """Decode the embeddings of public held-out sentences and compare.

    Args:
        sentences: public sentences, of documents that the decoder was not trained on.
        embeddings: those of the sentences, shape (n, d).
        training: embeddings of the sentences that the decoder was trained on, shape (m, d).

    Raises:
        ModelError: see `Decoder.decode`.
    """
    decoded = decoder.decode(embeddings, settings, encode, seed)
    pairs = list(zip(decoded.texts, sentences, strict=True))
    shown = [
        Reconstructed(truth, text, float(cosine)) for (text, truth), cosine in zip(pairs, decoded.cosines, strict=True)
    ]
    return Reconstruction(
        sentences=len(pairs),
        cosine=float(decoded.cosines.mean()),
        nearest=float(nearest_cosines(embeddings, training).mean()),
        token_f1=sum(token_f1(text, truth) for text, truth in pairs) / len(pairs),
        bleu=bleu(*zip(*pairs, strict=True)),
        exact=sum(_words(text) == _words(truth) for text, truth in pairs) / len(pairs),
        texts=decoded.texts,
        samples=tuple(shown[:_SHOWN]),
    )


def nearest_cosines(embeddings: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Cosine of each unit vector (n, d) with the nearest of others (m, d): float32 (n,)."""
    blocks = (embeddings[start : start + _BLOCK] for start in range(0, len(embeddings), _BLOCK))
    return np.concatenate([(block @ training.T).max(axis=1) for block in blocks]).astype(np.float32)


def token_f1(text: str, truth: str) -> float:
    """Harmonic mean of precision and recall of words, each counted as often as it occurs; case does not matter.

    >>> token_f1("a dog barks", "A dog sleeps here")
    0.5714285714285714
    """
    written, wanted = Counter(_words(text)), Counter(_words(truth))
    total = written.total() + wanted.total()
    return 2.0 * (written & wanted).total() / total if total else 1.0


def bleu(texts: Sequence[str], truths: Sequence[str]) -> float:
    """BLEU-4 of a corpus with one reference each (Papineni et al. 2002), in [0, 1].

    The geometric mean of the clipped precisions of word sequences of length 1 to 4, of all texts together, times the
    brevity penalty. Sequences of two words and more get one match and one count more (Lin & Och 2004), so that few
    texts without a common sequence of four words do not make it 0.

    >>> round(bleu(["the cat sat on the mat"], ["The cat sat on the mat"]), 6)
    1.0
    """
    pairs = [(_words(text), _words(truth)) for text, truth in zip(texts, truths, strict=True)]
    length, wanted = sum(len(text) for text, _ in pairs), sum(len(truth) for _, truth in pairs)
    precisions = [_precision(pairs, order) for order in range(1, _ORDERS + 1)]
    if min(precisions) == 0.0:
        return 0.0
    brevity = min(0.0, 1.0 - wanted / length)
    return math.exp(brevity + sum(map(math.log, precisions)) / _ORDERS)


def _precision(pairs: Sequence[tuple[list[str], list[str]]], order: int) -> float:
    """Share of the word sequences of this length in the texts that the truths have too."""
    matches = counts = int(order > 1)
    for text, truth in pairs:
        own = _sequences(text, order)
        matches += (own & _sequences(truth, order)).total()
        counts += own.total()
    return matches / counts if counts else 0.0


def _sequences(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
