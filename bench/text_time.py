"""The time of a text: from an embedding by a decoder, and token by token from many private prompts.

    python -m bench.text_time --data <folder> --lm <folder> --decoder <folder> --out <json>

TREC, one language model of 5.3 million weights inside both. `decoder, 4 tries` writes and encodes four texts for an
embedding and keeps the nearest, as `embed` does; `decoder, 1 try` writes one. `fewshot` is DP-ICL (Tang et al. 2024):
each token is averaged over M prompts with a fresh sample of two records each. Both write texts of at most 30 tokens,
`--texts` of them for each label, one core, no GPU. The kinds take turns, `--turns` times; a row has the median of the
seconds of processor time a text, of those a token, and of the ratio to `decoder, 4 tries` of the same turn, with its
range. What `fewshot` does once before, to load its model and try it, counts too; of the decoder that is not counted.

Feeds docs/lab/methods.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--decoder`: `python -m
bench.decoder --decoder DECODER ...`. `--lm` is `models/base` of a workspace: bench/README.md.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.embedding import QUESTIONS
from bench.evolution import records
from bench.evolution_rounds import NONE, Answering
from palimpsest.files import write_json
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.filters import refuse_perplexity
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm
from palimpsest.models.settings import DecodeSettings
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.tokens import encode_texts
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.vouched import fingerprint_of
from palimpsest_lab.methods.fewshot.declaration import FewShotSettings
from palimpsest_lab.methods.fewshot.fit import FewShot
from palimpsest_lab.methods.fewshot.plan import plan as planned

TOKENS, RECORDS, LONGEST = 30, 5452, 30
USUAL = "decoder, 4 tries"


def main() -> None:
    """Measure and print."""
    args = arguments()
    torch.set_num_threads(1)
    kinds = {**decoders(args), **{f"fewshot, {prompts} prompts": shots(args, prompts) for prompts in args.prompts}}
    _, tokenizer = load_lm(args.lm)
    turns: list[dict[str, tuple[float, float]]] = []
    for turn in range(args.turns):
        turns.append({name: timed(write, tokenizer) for name, write in kinds.items()})
        print(turn, turns[-1], flush=True)
    rows = {name: row(turns, name) for name in kinds}
    for name, found in rows.items():
        print(name, found)
    write_json(args.out, rows)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped JSON lines")
    parser.add_argument("--lm", type=Path, required=True, help="folder of the public language model")
    parser.add_argument("--decoder", type=Path, required=True)
    parser.add_argument("--prompts", nargs="+", type=int, default=[10])
    parser.add_argument("--texts", type=int, default=2, help="of each of six labels")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def decoders(args: argparse.Namespace) -> dict[str, Callable[[], list[str]]]:
    """Write down embeddings of real test questions, with and without tries to choose from."""
    folder = resolve_encoder("embedded")
    encoder = Encoder(folder)
    decoder = Decoder.load(args.decoder, fingerprint_of(folder))
    texts = [row.text for row in records(args.data, "trec", "test")][: len(QUESTIONS) * args.texts]
    vectors = np.asarray(encoder.encode_batch(texts))

    def written(samples: int) -> list[str]:
        how = DecodeSettings(samples=samples, corrections=samples // 2, max_tokens=TOKENS)
        return list(decoder.decode(vectors, how, encoder.encode_batch, 0).texts)

    return {USUAL: partial(written, 4), "decoder, 1 try": partial(written, 1)}


def shots(args: argparse.Namespace, prompts: int) -> Callable[[], list[str]]:
    """Write demonstrations from the real rows, at epsilon 3."""
    schema = PublicSchema("trec", "classify", "text", RECORDS, 400, "label", QUESTIONS)
    settings = FewShotSettings(rows=args.texts, prompts=prompts, max_tokens=TOKENS, filters=NONE)
    plan = planned(settings, schema, Budget(3.0, default_delta(RECORDS)))
    fit = FewShot(settings, schema, plan, args.lm, None, refuse_perplexity)
    view = Answering([PrivateRow(row.text, row.label) for row in records(args.data, "trec", "train")])
    return lambda: [text for batch in fit.ask(view).batches for text in batch["examples"]]


def timed(write: Callable[[], list[str]], tokenizer: Any) -> tuple[float, float]:
    """Seconds of the processor for a text, and for a token of it."""
    begun = time.process_time()
    texts = write()
    spent = time.process_time() - begun
    tokens = sum(len(one) for one in encode_texts(tokenizer, texts, LONGEST))
    return spent / len(texts), spent / max(1, tokens)


def row(turns: list[dict[str, tuple[float, float]]], name: str) -> dict[str, float]:
    """Medians over the turns."""
    ratios = [turn[name][0] / turn[USUAL][0] for turn in turns]
    return {
        "seconds a text": statistics.median(turn[name][0] for turn in turns),
        "seconds a token": statistics.median(turn[name][1] for turn in turns),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


if __name__ == "__main__":
    main()
