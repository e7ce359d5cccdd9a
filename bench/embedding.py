"""Embedding evolution on real data, beside what chooses public texts: classifiers on the rows, over epsilons.

    python -m bench.embedding --data <folder> --corpus <xz> --encodings <folder> --decoder <folder> --lm <folder>

Public text is, for AG News, `--sentences` sentences of the corpus, those that the decoder was trained on, and for TREC,
whose rows are known to be questions, all its questions. Rows of the table: `real`, the private rows; `public_only`,
public texts by the public descriptions of the labels, as many of each; `sentdp`, `select` and `embed` at each epsilon,
with the shares of the labels from a noisy histogram within it, or even ones (`--counts prior`: AG News' test rows are
known to be even, its training rows here are not); `custext`, whose epsilon is that of a word. All make `--rows` rows.
`sentdp` picks among the first `--deep` sentences, as its exact noise is slow. Both classifiers are those of the utility
audit, on all test rows. `embed votes` is `embed` without class means. Below both stand, round by round, the distances
of the populations from the training rows with their floor (training rows against test rows), the variance of exact
votes, and the parents before and after the perplexity filter. Rows are kept in `--out`.

Feeds docs/lab/methods.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--decoder`: `python -m
bench.decoder --decoder DECODER ...`. `--corpus` is yours: bench/README.md. `--lm` is `models/base` of a workspace:
bench/README.md.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.decoder import sentences
from bench.evolution import EVALUATORS, Bench, public_only, records
from bench.evolution_rounds import NONE, SEED, Answering
from bench.real_data import TASKS
from palimpsest.files import write_json
from palimpsest.methods.embed.declaration import Eda, EmbedMeans, EmbedSettings, GaussianHistogram, Readable
from palimpsest.methods.embed.fit import Embed, EvolvedEmbeddings
from palimpsest.methods.embed.plan import plan as plan_embed
from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.select.fit import Select
from palimpsest.methods.select.fit import plan as plan_select
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.means import Candidates
from palimpsest.methods.shared.postprocess import perplexity_limit
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm, text_losses
from palimpsest.models.settings import DecodeSettings
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.models.word_map import word_map
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.vouched import fingerprint_of
from palimpsest_lab.audits.rounds import audit_rounds
from palimpsest_lab.methods.custext.declaration import CusTextSettings
from palimpsest_lab.methods.custext.fit import CusText
from palimpsest_lab.methods.custext.fit import plan as plan_custext
from palimpsest_lab.methods.sentdp.declaration import SentDpSettings
from palimpsest_lab.methods.sentdp.fit import SentDp
from palimpsest_lab.methods.sentdp.fit import plan as plan_sentdp
from tests.methods.encoders import Encoding

QUESTIONS = {
    "abbreviation": "A question that asks what an abbreviation stands for.",
    "description": "A question that asks for a definition, a description, a manner or a reason.",
    "entity": "A question that asks for an animal, a food, a product, a work or another thing.",
    "human": "A question that asks who a person or a group is.",
    "location": "A question that asks for a place, a city or a country.",
    "number": "A question that asks for a count, a date, a distance or another number.",
}
KINDS = {"agnews": (TASKS["agnews"]["labels"], TASKS["agnews"]["n"]), "trec": (QUESTIONS, 5452)}
COUNTED: dict[str, Any] = {"prior": None, "histogram_share": 0.01, "batch": 64}


@dataclass(frozen=True, eq=False)
class Tools:
    """What `embed` writes with."""

    decoder: Decoder  # a trained one
    losses: Callable[[Sequence[str]], np.ndarray]  # texts -> losses by the public language model
    limit: float  # the largest that can be read


def main() -> None:
    """Measure what is asked for and print it."""
    args = arguments()
    folder = resolve_encoder("embedded")
    model, mark = Encoder(folder), fingerprint_of(folder)
    encode = KeptVectors(model.encode_batch, model.dimension, args.encodings, mark, batch=64)
    public, heldout = sentences(args.corpus)
    tools = made(args, mark, heldout[:1000]) if {"embed", "votes"} & set(args.methods) else None
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.tasks:
        labels, count = KINDS[name]
        texts = [text for text in public if text.endswith("?")] if name == "trec" else public[: args.sentences]
        candidates = Candidates(texts, encode(texts))
        schema = PublicSchema(name, "classify", "text", count, 400, "label", labels)
        train, test = (list(records(args.data, name, part)) for part in ("train", "test"))
        measured(Bench(schema, train, test, candidates, encode), tools, args)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped JSON lines")
    parser.add_argument("--corpus", type=Path, required=True, help="public documents")
    parser.add_argument("--encodings", type=Path, required=True, help="folder that keeps vectors of texts")
    parser.add_argument("--decoder", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True, help="folder of the public language model")
    parser.add_argument("--tasks", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--methods", nargs="+", default=["real", "public_only", "sentdp", "select", "embed", "custext"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 3.0, 5.0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--counts", choices=("noisy", "prior"), default="noisy")
    parser.add_argument("--sentences", type=int, default=120_000)
    parser.add_argument("--deep", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start", type=int, default=300)
    parser.add_argument("--offspring", type=int, default=300)
    parser.add_argument("--parents", type=int, default=40)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--domain", type=float, default=0.5)
    parser.add_argument("--pool", type=int, default=2)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--corrections", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="folder for rows and figures")
    return parser.parse_args()


def made(args: argparse.Namespace, mark: str, heldout: Sequence[str]) -> Tools:
    """The decoder and the public language model's opinion, with the limit of held-out sentences."""
    model, tokenizer = load_lm(args.lm)

    def losses(texts: Sequence[str]) -> np.ndarray:
        return text_losses(model, tokenizer, texts, 48, 128)

    return Tools(Decoder.load(args.decoder, mark), losses, perplexity_limit(losses(heldout), 0.95))


def measured(bench: Bench, tools: Tools | None, args: argparse.Namespace) -> None:
    """All rows of one task."""
    counts = bench.counts(args.rows)
    if "real" in args.methods:
        show(bench, args, "real", math.inf, list(bench.train))
    if "public_only" in args.methods:
        show(bench, args, "public_only", 0.0, public_only(bench, counts))
    if "custext" in args.methods:
        show(bench, args, "custext (3 per word)", math.inf, replaced(bench, args))
    for epsilon in args.epsilons:
        if "sentdp" in args.methods:
            show(bench, args, "sentdp", epsilon, deep(bench, epsilon, args))
        if "select" in args.methods:
            show(bench, args, "select", epsilon, chosen(bench, epsilon, args))
        if tools and "embed" in args.methods:
            evolved = embedded(
                bench, tools, epsilon, EmbedMeans(share=args.share, domain=args.domain, pool=args.pool), args
            )
            show(bench, args, "embed", epsilon, list(evolved.records), rounds(bench, evolved))
        if tools and "votes" in args.methods:
            evolved = embedded(bench, tools, epsilon, None, args)
            show(bench, args, "embed votes", epsilon, list(evolved.records), rounds(bench, evolved))


def view(bench: Bench) -> Answering:
    return Answering([PrivateRow(row.text, row.label) for row in bench.train])


def replaced(bench: Bench, args: argparse.Namespace) -> list[Record]:
    """The private rows with their words replaced; as many as the others make."""
    sets = word_map(bench.candidates.texts, bench.encode, 20, 5000)
    settings = CusTextSettings(token_epsilon=3.0, neighbours=20, vocabulary=5000)
    fit = CusText(plan_custext(settings, Budget(math.inf, bench.delta)), sets)
    rows = fit.made(fit.ask(view(bench))).rows
    return [rows[place] for place in np.random.default_rng(SEED).permutation(len(rows))[: args.rows]]


def deep(bench: Bench, epsilon: float, args: argparse.Namespace) -> list[Record]:
    """Public texts deep among the rows of a label."""
    few = Candidates(bench.candidates.texts[: args.deep], bench.candidates.embeddings[: args.deep])
    settings = SentDpSettings(rows=args.rows, directions=100, label_counts=args.counts, **COUNTED)
    plan = plan_sentdp(settings, bench.schema, Budget(epsilon, bench.delta))
    fit = SentDp(settings, bench.schema, plan, few, bench.encode)
    return list(fit.made(fit.ask(view(bench))).rows)


def chosen(bench: Bench, epsilon: float, args: argparse.Namespace) -> list[Record]:
    """Public texts by noisy class means."""
    settings = SelectSettings(rows=args.rows, domain=args.domain, most=1, label_counts=args.counts, **COUNTED)
    plan = plan_select(settings, bench.schema, Budget(epsilon, bench.delta))
    fit = Select(settings, bench.schema, plan, bench.candidates, bench.encode)
    return list(fit.made(fit.ask(view(bench))).rows)


def embedded(
    bench: Bench, tools: Tools, epsilon: float, aim: EmbedMeans | None, args: argparse.Namespace
) -> EvolvedEmbeddings:
    """Embeddings that evolved, written down."""
    settings = EmbedSettings(
        rows=args.rows, rounds=args.rounds, start=args.start, offspring=args.offspring, parents=args.parents,
        selection=GaussianHistogram(kind="gaussian", neighbours=args.neighbours),
        eda=Eda(smoothing=0.1, best=10, components=args.components), readable=Readable(quantile=0.95, perplexity=None),
        class_means=aim, filters=NONE, label_counts=args.counts, **COUNTED,
        decode=DecodeSettings(
            samples=args.samples, corrections=args.corrections, temperature=0.7, top_p=0.9, max_tokens=32, batch=256
        ),
    )  # fmt: skip
    described = bench.encode(list(bench.schema.labels.values())) if aim is not None else None
    plan = plan_embed(settings, bench.schema, Budget(epsilon, bench.delta))
    encoders = Encoding(bench.encode, bench.encode, bench.encode.dimension)
    fit = Embed(
        settings, bench.schema, plan, bench.candidates, [None] * len(bench.candidates.texts), described, tools.decoder,
        encoders, tools.losses, tools.limit, SEED, None,
    )  # fmt: skip
    print(dict(plan.numbers), *plan.notes, flush=True)
    return fit.ask(view(bench))


def rounds(bench: Bench, evolved: EvolvedEmbeddings) -> dict[str, Any]:
    """What the audit of rounds finds, test rows in the holdout's place."""
    audits = audit_rounds(evolved.rounds, by_label(bench, bench.train), by_label(bench, bench.test), SEED)
    return audits.to_json("embed")


def by_label(bench: Bench, rows: Sequence[Record]) -> dict[str, np.ndarray]:
    return {label: bench.encode([row.text for row in rows if row.label == label]) for label in bench.schema.labels}


def show(
    bench: Bench,
    args: argparse.Namespace,
    name: str,
    epsilon: float,
    rows: Sequence[Record],
    audit: dict[str, Any] | None = None,
) -> None:
    """Score, print and keep one row of the table."""
    values = dict(zip(EVALUATORS, bench.accuracies(rows).tolist(), strict=True))
    task, file = bench.schema.asset, f"{name.split(' (')[0].replace(' ', '_')}_{epsilon:g}"
    cells = [task, name, f"{epsilon:g}", str(len(rows)), *(f"{value:.3f}" for value in values.values())]
    print("| " + " | ".join(cells) + " |", flush=True)
    for distances, votes in zip(audit["rounds"], audit["votes"], strict=True) if audit else ():
        apart = ", ".join(f"{one['name']} {one['value']:.4f} ({one['floor']:.4f})" for one in distances)
        print(f"    {apart}; {votes[0]}", flush=True)
    body = {"task": task, "row": name, "epsilon": epsilon, "rows": len(rows), "accuracy": values, "audit": audit}
    write_json(args.out / f"{task}_{file}.json", body)
    if name != "real":
        kept = (json.dumps({"text": row.text, "label": row.label}, ensure_ascii=False) + "\n" for row in rows)
        (args.out / f"{task}_{file}.jsonl").write_text("".join(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
