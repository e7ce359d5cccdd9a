"""What long texts lose on their way through an embedding: two decoders, one of sentences and one of passages.

    python -m bench.decoder_lengths --corpus <xz file> --lm <folder> --encodings <folder> --decoders <folder>
        --out <json> [--learn sentences passages]

Passages are one to six sentences in a row of a public document, of up to 128 tokens. The decoder of `sentences` learns
those of up to 32 tokens, as the measured one does; that of `passages` learns all. Both learn as many texts in as many
steps. 1,500 documents are held out; of their passages `--heldout` of each length are embedded and written down again:
by the decoder of sentences with at most 32 tokens, by that of passages with at most 128. A row has the mean cosine of
the embedding of what was written with the embedding it was given, the cosine of the nearest text of training, token F1
and BLEU-4. `kept` is the mean ratio of the words written to those of the text.

Feeds docs/lab/methods.md. `--corpus` is yours: bench/README.md. `--lm` is `models/base` of a workspace:
bench/README.md.
"""

import argparse
import lzma
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.decoder import HELD_DOCUMENTS, SEED
from palimpsest.files import write_json
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.measure import reconstruction
from palimpsest.models.decoder.training import split_sentences, train_decoder
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm
from palimpsest.models.settings import DecoderSettings, DecodeSettings
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.tokens import encode_texts
from palimpsest.models.vectors import KeptVectors
from palimpsest.records.vouched import fingerprint_of

LENGTHS = {"sentences": 32, "passages": 128}  # tokens that a decoder learns, at most
CLASSES = ((8, 16), (17, 32), (33, 64), (65, 128))  # tokens of a text that is measured
_MOST = 6  # sentences of a passage


def main() -> None:
    """Learn, measure, print."""
    options = arguments()
    torch.set_num_threads(1)
    source = resolve_encoder("embedded")
    encoder, mark = Encoder(source), fingerprint_of(source)
    encode = KeptVectors(encoder.encode_batch, encoder.dimension, options.encodings, mark, batch=64)
    training, held = passages(options.corpus, options.lm, options.texts, options.heldout)
    found: list[dict[str, Any]] = []
    for kind in options.learn:
        texts = [text for text, tokens in training if tokens <= LENGTHS[kind]][: options.texts]
        vectors, folder = encode(texts), options.decoders / kind
        if not folder.is_dir():
            told = train_decoder(options.lm, texts, vectors, settings(options, kind), SEED, folder, mark)
            print(kind, told, flush=True)
        decoder = Decoder.load(folder, mark)
        for least, most in CLASSES:
            own = held[least, most]
            row = {"decoder": kind, "tokens": f"{least} to {most}", **measured(decoder, own, kind, encode, vectors)}
            found.append(row)
            print(row, flush=True)
        write_json(options.out, found)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="public documents")
    parser.add_argument("--lm", type=Path, required=True, help="folder of the public language model")
    parser.add_argument("--encodings", type=Path, required=True, help="folder that keeps vectors of texts")
    parser.add_argument("--decoders", type=Path, required=True, help="folder of the decoders, made where missing")
    parser.add_argument("--learn", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--texts", type=int, default=6000, help="texts that each decoder learns")
    parser.add_argument("--epochs", type=float, default=0.5)
    parser.add_argument("--heldout", type=int, default=60, help="held-out texts of each length")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def passages(
    corpus: Path, lm: Path, wanted: int, each: int
) -> tuple[list[tuple[str, int]], dict[tuple[int, int], list[str]]]:
    """Passages to learn with their tokens, enough for either decoder, and held-out ones of each length."""
    with lzma.open(corpus, "rt", encoding="utf-8") as file:
        documents = file.read().split("<|doc|>\n")
    coins = random.Random(1)
    coins.shuffle(documents)
    _, tokenizer = load_lm(lm)

    def sized(found: Iterator[str]) -> Iterator[tuple[str, int]]:
        for text in found:
            tokens = len(encode_texts(tokenizer, [text], CLASSES[-1][1] + 1)[0])
            if CLASSES[0][0] <= tokens <= CLASSES[-1][1]:
                yield text, tokens

    held: dict[tuple[int, int], list[str]] = {bounds: [] for bounds in CLASSES}
    for text, tokens in sized(one for document in documents[:HELD_DOCUMENTS] for one in spans(document, coins)):
        own = next(held[bounds] for bounds in CLASSES if bounds[0] <= tokens <= bounds[1])
        if len(own) < each:
            own.append(text)
    learned: list[tuple[str, int]] = []
    short = 0
    for text, tokens in sized(one for document in documents[HELD_DOCUMENTS:] for one in spans(document, coins)):
        learned.append((text, tokens))
        short += tokens <= LENGTHS["sentences"]
        if short >= wanted:
            break
    return learned, held


def spans(document: str, coins: random.Random) -> Iterator[str]:
    """Sentences in a row, cut into passages of a random number of them."""
    found = split_sentences(document)
    while found:
        size = coins.randint(1, _MOST)
        yield " ".join(found[:size])
        del found[:size]


def settings(options: argparse.Namespace, kind: str) -> DecoderSettings:
    return DecoderSettings(epochs=options.epochs, max_tokens=LENGTHS[kind], sentences=options.texts)


def measured(
    decoder: Decoder, texts: Sequence[str], kind: str, encode: KeptVectors, training: np.ndarray
) -> dict[str, Any]:
    """What a decoder gets back of texts of one length."""
    how = DecodeSettings(samples=8, corrections=4, max_tokens=LENGTHS[kind])
    found = reconstruction(decoder, texts, encode(texts), how, encode, SEED, training)
    kept = [len(written.split()) / len(text.split()) for written, text in zip(found.texts, texts, strict=True)]
    named = {name: getattr(found, name) for name in ("sentences", "cosine", "nearest", "token_f1", "bleu")}
    return named | {"kept": float(np.mean(kept))}


if __name__ == "__main__":
    main()
