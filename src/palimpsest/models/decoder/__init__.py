"""From a sentence embedding back to a text: a small language model, trained once on public text."""

from palimpsest.models.decoder.decoding import Decoded, Decoder
from palimpsest.models.decoder.measure import (
    Reconstruction,
    Sample,
    bleu,
    nearest_cosines,
    reconstruction,
    token_f1,
)
from palimpsest.models.decoder.sentences import sentences_of, split_sentences
from palimpsest.models.decoder.training import train_decoder

__all__ = [
    "Decoded",
    "Decoder",
    "Reconstruction",
    "Sample",
    "bleu",
    "nearest_cosines",
    "reconstruction",
    "sentences_of",
    "split_sentences",
    "token_f1",
    "train_decoder",
]
