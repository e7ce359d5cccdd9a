"""Records held to their schema while they are written: films of six fields by `dp_lm` and `predict`, beside plain text.

    python -m bench.json_grammar --data DATA --models MODELS [--films 1800] [--rows 300] [--batches 32] [--methods dp_lm predict]

Of the films of fewer than 350 characters a third are private, a third public and a third for tests. A small language
model learns the public ones, and a copy learns to go on with a film like the last; MODELS keeps both. Each method is
fitted once at epsilon 3, or writes once, with the schema and once without. Columns: texts that were written; the shares
that parse and conform; of as many conforming rows as both ways have, those that differ from all before; the mean
total variation of one-way and two-way tables (decade, first genre, size of the cast) from the test films; the accuracy
on these of a logistic regression that learned the first genre from title and extract. `films` are as many private
films. The last line is the speed of the grammar alone, of uniform draws, on one core.

Feeds docs/methods.md. `--data`: see `bench.prediction_json`.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from shutil import copyfile, copytree
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bench.evolution_rounds import Answering
from bench.real_data import lines
from palimpsest.files import atomic_path
from palimpsest.methods.dp_lm.fit import DpLm
from palimpsest.methods.dp_lm.plan import plan as plan_training
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.dp_lm.settings import DpLmGenerate, DpLmTrain
from palimpsest.methods.predict.fit import Predict
from palimpsest.methods.predict.plan import plan as plan_prediction
from palimpsest.methods.predict.settings import PredictSettings
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.filters import refuse_perplexity
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.models.encoder import neighbours
from palimpsest.models.grammar import Grammar
from palimpsest.models.lm import learn_prompts, load_lm, pretrain_lm
from palimpsest.models.settings import EmbeddedLm, Similar
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.conformity import conforms
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.structured import canonical_text, members_of
from palimpsest.settings import Stated

TOKENS, SEED, EPSILON, CHARACTERS = 144, 7, 3.0, 350
WORDS = {"type": "array", "items": {"type": "string"}}
PROPERTIES: dict[str, Any] = {
    "title": {"type": "string"}, "year": {"type": "integer"}, "cast": WORDS, "genres": WORDS,
    "href": {"type": "string"}, "extract": {"type": "string"},
}  # fmt: skip
FILM = {"type": "object", "properties": PROPERTIES, "required": list(PROPERTIES), "additionalProperties": False}
LM = EmbeddedLm(layers=2, width=96, heads=4, vocabulary=2048, context=320, epochs=6, batch=16)
SIMILAR = Similar(max_tokens=TOKENS, neighbours=1, epochs=1, batch=16, learning_rate=0.002)
TRAINED = {"discriminator_weight": 0.0, "epochs": 3.0, "learning_rate": 0.006, "max_tokens": TOKENS}


def main() -> None:
    """Print a line for each method and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--films", type=int, default=1800)
    parser.add_argument("--rows", type=int, default=300, help="rows that dp_lm draws")
    parser.add_argument("--batches", type=int, default=32, help="batches that predict writes from")
    parser.add_argument("--methods", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    films = Films.read(args.data, args.films, args.models)
    print("| rows | texts | parse | conform | compared | distinct | one-way | two-way | accuracy |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|")
    for name in args.methods:
        found = WAYS[name](films, args)
        kept = {
            way: [row for row in map(members_of, texts) if row and films.conforms(row)] for way, texts in found.items()
        }
        least = min(map(len, kept.values()))
        shown = {way: rows[:least] for way, rows in kept.items()} | {"films": films.private[:least]}
        for way, rows in shown.items():
            print(films.describe(f"{name}, {way}", found.get(way, []), len(kept.get(way, [])), rows), flush=True)
    print(f"{speed(films.base):.0f} tokens a second")


@dataclass(frozen=True, eq=False)
class Films:
    """The films, and two public language models."""

    private: Sequence[dict[str, Any]]
    test: Sequence[dict[str, Any]]
    base: Path
    reader: Path

    @classmethod
    def read(cls, data: Path, count: int, folder: Path) -> "Films":
        """Read films, and teach what is not there yet."""
        found = (film for film in lines(data / "wikimovies_json.jsonl.gz") if len(json.dumps(film)) < CHARACTERS)
        films = [film for film, _ in zip(found, range(count), strict=False)]
        made = cls(films[::3], films[2::3], folder / "base", folder / "reader")
        public = [text_of(film) for film in films[1::3]]
        if not made.base.is_dir():
            with atomic_path(made.base) as draft:
                pretrain_lm(public, public[:20], LM, SEED, draft)
        if not made.reader.is_dir():
            vectors = TfidfVectorizer(sublinear_tf=True).fit_transform(public).toarray()
            pairs = neighbours(vectors, [""] * len(public), SIMILAR.neighbours)
            with atomic_path(made.reader) as draft:
                copytree(made.base, draft, copy_function=copyfile)
                learn_prompts(draft, public, [""] * len(public), SIMILAR, SEED, pairs)
        return made

    @property
    def rows(self) -> list[PrivateRow]:
        """The private rows."""
        return [PrivateRow(text_of(film), None) for film in self.private]

    @property
    def schema(self) -> PublicSchema:
        """What is public about them."""
        return PublicSchema("films", "json", "*", len(self.private), CHARACTERS, json_schema=FILM)

    def conforms(self, film: dict[str, Any]) -> bool:
        """Return whether an object is a film."""
        return conforms(FILM)(film)

    def describe(self, name: str, texts: Sequence[str], conforming: int, rows: Sequence[dict[str, Any]]) -> str:
        """Return the line of some texts, and of those of their rows that are compared."""
        parsed = sum(members_of(text) is not None for text in texts)
        shares = [f"{part / len(texts):.3f}" for part in (parsed, conforming)] if texts else ["", ""]
        told = self.compare(rows) if len(rows) > 20 else [""] * 4
        return "| " + " | ".join([name, str(len(texts)), *shares, str(len(rows)), *told]) + " |"

    def compare(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Return distinct share, distances of tables, and accuracy."""
        distinct = len({text_of(row) for row in rows}) / len(rows)
        ways = [list(combinations(range(3), size)) for size in (1, 2)]
        apart = [np.mean([self.distance(rows, columns) for columns in one]) for one in ways]
        return [f"{value:.3f}" for value in (distinct, *apart, self.accuracy(rows))]

    def distance(self, rows: Sequence[dict[str, Any]], columns: Sequence[int]) -> float:
        """Return the total variation of a table of rows from that of the test films."""
        here, there = (Counter(tuple(cells(row)[at] for at in columns) for row in part) for part in (rows, self.test))
        names = here | there
        return 0.5 * sum(abs(here[cell] / len(rows) - there[cell] / len(self.test)) for cell in names)

    def accuracy(self, rows: Sequence[dict[str, Any]]) -> float:
        """Return how often the first genre of a test film is told by a model that learned from rows."""
        model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10.0, max_iter=500))
        model.fit([words(row) for row in rows], [cells(row)[1] for row in rows])
        return float(model.score([words(row) for row in self.test], [cells(row)[1] for row in self.test]))


def text_of(film: dict[str, Any]) -> str:
    """Return a film's canonical text."""
    return canonical_text(film, tuple(PROPERTIES))


def words(film: dict[str, Any]) -> str:
    """Return what the genre is told by."""
    return f"{film['title']} {film['extract']}"


def cells(film: dict[str, Any]) -> tuple[str, str, str]:
    """Return decade, first genre and size of the cast."""
    genre = film["genres"][0] if film["genres"] else ""
    known = genre if genre in ("Drama", "Comedy", "Western", "Silent", "Romance", "Crime", "Action", "Thriller") else ""
    return str(film["year"] // 10), known, str(min(5, len(film["cast"])))


Told = dict[str, list[str]]


def train(films: Films, args: argparse.Namespace) -> Told:
    """Train a language model, and draw with and without the schema."""
    own, schema = filled(DpLmTrain, films.schema, **TRAINED), films.schema
    plan = plan_training(own, schema, Budget(EPSILON, default_delta(schema.n_units)))
    fitted = DpLm(own, schema, plan, films.base, SEED, None).ask(Answering(films.rows))
    settings = DpLmGenerate(rows=args.rows, max_tokens=TOKENS)
    ways = {"schema": FILM, "plain": None}
    samplers = {way: Sampler(settings, "plain", SEED, FilterChain([]), json_schema=own) for way, own in ways.items()}
    return {way: [row.text for row in each.sample(fitted, {"": args.rows})] for way, each in samplers.items()}


def predict(films: Films, args: argparse.Namespace) -> Told:
    """Write from private contexts, with and without the schema."""
    schema = films.schema
    own = filled(
        PredictSettings, schema, micro_batch=64, max_tokens=TOKENS, batches=args.batches, prompt={"text_tokens": TOKENS}
    )
    plan = plan_prediction(own, schema, Budget(EPSILON, default_delta(schema.n_units)))
    ways = {"schema": schema, "plain": replace(schema, json_schema=None)}
    fits = {
        way: Predict(own, known, plan, films.reader, bytes(range(32)), None, refuse_perplexity, None)
        for way, known in ways.items()
    }
    written = {way: fit.ask(Answering(films.rows)) for way, fit in fits.items()}
    return {way: [row.text for row in one.examples] for way, one in written.items()}


WAYS: dict[str, Callable[[Films, argparse.Namespace], Told]] = {"dp_lm": train, "predict": predict}


def filled(kind: Any, schema: PublicSchema, **written: Any) -> Any:
    """Return settings with the defaults of a new workspace."""
    return kind.model_validate(written, context=Stated("json", schema.asset, False, schema.n_units, None, True))


def speed(folder: Path) -> float:
    """Return how many tokens of records the grammar masks and reads in a second."""
    tokenizer, coins = load_lm(folder)[1], np.random.default_rng(SEED)
    grammar, drawn, start = Grammar(tokenizer, FILM, len(tokenizer)), 0, time.perf_counter()
    for _ in range(20):
        record, goes_on = grammar.begin(TOKENS), True
        while goes_on and record:
            (allowed,) = grammar.allowed([record]).numpy().nonzero()[1:]
            goes_on, drawn = record.take(int(coins.choice(allowed))), drawn + 1
    return drawn / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
