"""Scores a decoder's reconstruction of texts from public embeddings: no private row is read."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from palimpsest.plain import At, Plain


@dataclass(frozen=True)
class DecodedText(Plain):
    """One public text, and the text decoded from its embedding."""

    given: str
    decoded: str
    cosine: float


@dataclass(frozen=True)
class DecoderScores(Plain):
    """Scores of a decoder on public embeddings; `models.decoder.measure` explains each measure."""

    keys: ClassVar = (
        *("rows", "cosine", "nearest", "token_f1", "bleu", "exact"),
        *("encoder", "parameters", "readable_share", "samples"),
    )
    encoder: str  # whose embeddings
    parameters: float  # of the decoder
    rows: Annotated[int, At("reconstruction", "rows")]  # sentences that were written down
    cosine: Annotated[float, At("reconstruction", "cosine")]  # of what was written with what was given
    nearest: Annotated[float, At("reconstruction", "nearest")]  # of the nearest training sentence: what copying reaches
    token_f1: Annotated[float, At("reconstruction", "token_f1")]  # how many words come back
    bleu: Annotated[float, At("reconstruction", "bleu")]
    exact: Annotated[float, At("reconstruction", "exact")]  # share that is right word for word
    readable_share: float  # share that the public model finds likely enough
    samples: tuple[DecodedText, ...]
