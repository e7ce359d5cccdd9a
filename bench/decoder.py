"""An embedding decoder, trained and measured on public text.

    python -m bench.decoder --corpus <xz file> --lm <folder> --encodings <folder> --decoder <folder> --out <json>

The corpus holds documents between `<|doc|>` lines; up to five sentences of each count. 1,500 documents are held out.
The decoder is trained on sentences of the others, and measured on held-out sentences of up to `--max-tokens` tokens:
mean cosine of the embedding of what it writes with the embedding it was given, the cosine of the nearest training
sentence (what copying would reach), token F1, BLEU-4, and the share that passes the perplexity filter: a loss under the
language model not above the 95th percentile of held-out sentences. `--samples` counts all texts that are encoded for
one embedding.

Rows of the table: `nearest`, the nearest training sentence; `words`, the decoder whose language model is not trained
yet; `one`, the trained decoder's first text; `samples`, the best of `--samples` texts written independently;
`corrected`, the same number, half of them corrections. With `--corrector` a corrector is trained as well: `rewritten`
has rewrites in place of corrections, `both` as many of each. Encodings are kept in a folder and made where they are
missing (140 sentences a second on two idle cores). CPU time is the process's, all threads together.

Feeds docs/lab/methods.md. `--corpus` is yours: bench/README.md. `--lm` is `models/base` of a workspace:
bench/README.md.
"""

import argparse
import lzma
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palimpsest.files import read_json, write_json
from palimpsest.methods.shared.postprocess import perplexity_limit
from palimpsest.models.decoder.correcting import train_corrector
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.measure import reconstruction
from palimpsest.models.decoder.training import split_sentences, train_decoder
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm, text_losses
from palimpsest.models.settings import DecoderSettings, DecodeSettings
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.tokens import encode_texts
from palimpsest.models.vectors import KeptVectors
from palimpsest.records.vouched import fingerprint_of

HELD_DOCUMENTS = 1500
PER_DOCUMENT = 5
QUANTILE = 0.95  # of the held-out losses: the limit of the perplexity filter
LIMIT_TEXTS = 1000  # held-out sentences that set it
SHOWN = 20
SEED = 7


def sentences(corpus: Path) -> tuple[list[str], list[str]]:
    """Distinct sentences to train on, and those of held-out documents."""
    coins = random.Random(1)
    with lzma.open(corpus, "rt", encoding="utf-8") as file:
        documents = file.read().split("<|doc|>\n")
    coins.shuffle(documents)
    seen: set[str] = set()
    training: list[str] = []
    held: list[str] = []
    for index, document in enumerate(documents):
        found = split_sentences(document)
        coins.shuffle(found)
        for sentence in found[:PER_DOCUMENT]:
            if sentence.lower() not in seen:
                seen.add(sentence.lower())
                (held if index < HELD_DOCUMENTS else training).append(sentence)
    coins.shuffle(training)
    coins.shuffle(held)
    return training, held


def settings_of(options: argparse.Namespace, trained: bool) -> DecoderSettings:
    """How to train; the language model hardly moves unless it is `trained`."""
    epochs, rate = (options.epochs, 8e-4) if trained else (1e-9, 1e-12)
    return DecoderSettings(
        prefix=4, width=512, epochs=epochs, batch=64, learning_rate=rate,
        max_tokens=options.max_tokens, sentences=options.sentences, heldout=options.heldout,
        corrector=options.corrector if trained else 0,
    )  # fmt: skip


class Bench:
    """Held-out sentences, and everything that they are measured with."""

    def __init__(self, options: argparse.Namespace, held: Sequence[str], training: np.ndarray, encode: KeptVectors):
        self.model, self.tokenizer = load_lm(options.lm)
        self.most = options.max_tokens
        encoded = encode_texts(self.tokenizer, held, self.most + 1)
        short = [text for text, tokens in zip(held, encoded, strict=True) if 0 < len(tokens) <= self.most]
        self.limit = perplexity_limit(self.losses(held[:LIMIT_TEXTS]), QUANTILE)
        self.sentences = short[: options.heldout]
        self.encode, self.training, self.samples = encode, training, options.samples
        self.embeddings = encode(self.sentences)

    def losses(self, texts: Sequence[str]) -> np.ndarray:
        """Nats per token under the public language model."""
        return text_losses(self.model, self.tokenizer, texts, 2 * self.most, 64)

    def row(self, decoder: Decoder, samples: int, corrections: int, rewrites: int) -> dict[str, Any]:
        """What a decoder gets back."""
        how = DecodeSettings(
            samples=samples, corrections=corrections, rewrites=rewrites, max_tokens=self.most, batch=256
        )
        begun = time.process_time()
        found = reconstruction(decoder, self.sentences, self.embeddings, how, self.encode, SEED, self.training)
        losses = self.losses(found.texts)
        row = {key: value for key, value in asdict(found).items() if key not in ("texts", "samples")}
        shown = [
            {"sentence": sentence, "text": text}
            for sentence, text in zip(self.sentences[:SHOWN], found.texts[:SHOWN], strict=True)
        ]
        return row | {
            "passes": float((losses <= self.limit).mean()),
            "loss": float(losses.mean()),
            "cpu_seconds_per_text": (time.process_time() - begun) / len(self.sentences),
            "samples": shown,
        }


def main() -> None:
    """Train what is not there yet, measure, print."""
    options = arguments()
    torch.set_num_threads(options.threads)
    source = resolve_encoder("embedded")
    encoder, fingerprint = Encoder(source), fingerprint_of(source)
    encode = KeptVectors(encoder.encode_batch, encoder.dimension, options.encodings, fingerprint, batch=64)
    training, held = sentences(options.corpus)
    training = training[: options.sentences]
    vectors = encode(training)
    bench = Bench(options, held, vectors, encode)
    result: dict[str, Any] = {"limit": bench.limit, "training": {}, "rows": {}}
    for name, (kind, *numbers) in rows(options).items():
        folder = options.decoder / kind
        if not folder.is_dir():
            begun, wall = time.process_time(), time.monotonic()
            settings = settings_of(options, kind == "trained")
            measured = train_decoder(options.lm, training, vectors, settings, SEED, folder, fingerprint)
            if settings.corrector:
                measured |= train_corrector(folder, training, vectors, settings, SEED, encode, fingerprint)
            spent = {"cpu_seconds": time.process_time() - begun, "seconds": time.monotonic() - wall}
            write_json(options.decoder / f"{kind}.json", measured | spent)
        result["training"][kind] = read_json(options.decoder / f"{kind}.json")
        result["rows"][name] = row = bench.row(Decoder.load(folder, fingerprint), *numbers)
        print(name, {key: value for key, value in row.items() if key != "samples"}, flush=True)
        write_json(options.out, result)


def rows(options: argparse.Namespace) -> dict[str, tuple[str, int, int, int]]:
    """Of each row the decoder, and how many texts, corrections and rewrites."""
    half, quarter = options.samples // 2, options.samples // 4
    found = {"corrected": ("trained", options.samples, half, 0), "samples": ("trained", options.samples, 0, 0)}
    if options.corrector:
        found["rewritten"] = ("trained", options.samples, 0, half)
        found["both"] = ("trained", options.samples, quarter, quarter)
    return found | {"one": ("trained", 1, 0, 0), "words": ("untrained", options.samples, half, 0)}


def arguments() -> argparse.Namespace:
    """What to train on, and where to put it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="xz file of public documents")
    parser.add_argument("--lm", type=Path, required=True, help="folder of a public causal language model")
    parser.add_argument("--encodings", type=Path, required=True, help="folder of kept embeddings")
    parser.add_argument("--decoder", type=Path, required=True, help="folder for the trained decoders")
    parser.add_argument("--out", type=Path, required=True, help="JSON of all figures")
    parser.add_argument("--sentences", type=int, default=120_000, help="public sentences to train on")
    parser.add_argument("--epochs", type=float, default=0.7, help="passes over those that are short enough")
    parser.add_argument("--max-tokens", type=int, default=32, help="tokens of a sentence at most")
    parser.add_argument("--corrector", type=int, default=0, help="sentences to train a corrector on; 0: none")
    parser.add_argument("--heldout", type=int, default=400, help="sentences to measure on")
    parser.add_argument("--samples", type=int, default=16, help="texts encoded for each embedding")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
