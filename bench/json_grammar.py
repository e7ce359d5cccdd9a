"""Records held to their schema while they are written: films of six fields by `dp_lm` and `predict`, beside plain text.

    python -m bench.json_grammar --data DATA --models MODELS [--films 1800] [--rows 1000] [--batches 32]

Of the films of fewer than 350 characters a third are private, a third public and a third for tests. A small language
model learns the public ones, and a copy learns to go on with a film like the last; MODELS keeps both. Each method is
fitted once at epsilon 3, or writes once, with the schema and once without. Columns: texts that were written; the shares
that parse, conform and are distinct; the mean total variation of one-way and two-way tables (decade, first genre, size
of the cast) from the test films; the accuracy on these of a logistic regression that learned the first genre from the
rest. Fields are read by patterns, so a text that is no JSON counts with what it has. `films` are private ones, as many
as the schema's texts. The last line is the speed of the grammar alone, of uniform draws, on one core.

Feeds docs/lab/methods.md. `--data`: see `bench.prediction_json`.
"""

import argparse
import json
import re
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
from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.predict.fit import Predict
from palimpsest.methods.predict.plan import plan as plan_prediction
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
DECADE, GENRES = re.compile(r'"year": (\d+)\d'), re.compile(r'"genres": \["([^"]*)"[^]]*\]?')
CAST, QUOTED = re.compile(r'"cast": \[([^]]*)'), re.compile(r'"[^"]+"')
KNOWN = ("Drama", "Comedy", "Western", "Silent", "Romance", "Crime", "Action", "Thriller")
LM = EmbeddedLm(layers=2, width=128, heads=4, vocabulary=2048, context=320, epochs=16, batch=16)
SIMILAR = Similar(max_tokens=TOKENS, neighbours=1, epochs=1, batch=16, learning_rate=0.002)
TRAINED = {"discriminator_weight": 0.0, "epochs": 3.0, "learning_rate": 0.002, "max_tokens": TOKENS}


def main() -> None:
    """Print a line for each method and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--films", type=int, default=1800)
    parser.add_argument("--rows", type=int, default=1000, help="rows that dp_lm draws")
    parser.add_argument("--batches", type=int, default=32, help="batches that predict writes from")
    parser.add_argument("--methods", nargs="*", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    films = Films.read(args.data, args.films, args.models)
    print("| rows | texts | parse | conform | distinct | one-way | two-way | accuracy |", flush=True)
    print("|---|---|---|---|---|---|---|---|")
    for name in args.methods:
        found = WAYS[name](films, args)
        for way, texts in (found | {"films": films.private[: len(found["schema"])]}).items():
            print(films.describe(f"{name}, {way}", texts), flush=True)
    print(f"{speed(films.base):.0f} tokens a second")


@dataclass(frozen=True, eq=False)
class Films:
    """The films, and two public language models."""

    private: Sequence[str]
    test: Sequence[str]
    base: Path
    reader: Path

    @classmethod
    def read(cls, data: Path, count: int, folder: Path) -> "Films":
        """Read films, and teach what is not there yet."""
        found = (film for film in lines(data / "wikimovies_json.jsonl.gz") if len(json.dumps(film)) < CHARACTERS)
        films = [canonical_text(film, tuple(PROPERTIES)) for film, _ in zip(found, range(count), strict=False)]
        made = cls(films[::3], films[2::3], folder / "base", folder / "reader")
        public = films[1::3]
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
        return [PrivateRow(film, None) for film in self.private]

    @property
    def schema(self) -> PublicSchema:
        """What is public about them."""
        return PublicSchema("films", "json", "*", len(self.private), CHARACTERS, json_schema=FILM)

    def describe(self, name: str, texts: Sequence[str]) -> str:
        """Return the line of some texts."""
        objects = [members for text in texts if (members := members_of(text)) is not None]
        parts = len(objects), sum(map(conforms(FILM), objects)), len(set(texts))
        apart = [
            np.mean([self.distance(texts, columns) for columns in combinations(range(3), size)]) for size in (1, 2)
        ]
        values = [*(part / len(texts) for part in parts), *apart, self.accuracy(texts)]
        return "| " + " | ".join([name, str(len(texts)), *(f"{value:.3f}" for value in values)]) + " |"

    def distance(self, texts: Sequence[str], columns: Sequence[int]) -> float:
        """Return the total variation of a table of texts from that of the test films."""
        here, there = (
            Counter(tuple(cells(text)[at] for at in columns) for text in part) for part in (texts, self.test)
        )
        return 0.5 * sum(abs(here[cell] / len(texts) - there[cell] / len(self.test)) for cell in here | there)

    def accuracy(self, texts: Sequence[str]) -> float:
        """Return how often the first genre of a test film is told by a model that learned from texts."""
        model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10.0, max_iter=500))
        model.fit([GENRES.sub("", text) for text in texts], [cells(text)[1] for text in texts])
        return float(model.score([GENRES.sub("", text) for text in self.test], [cells(text)[1] for text in self.test]))


def cells(text: str) -> tuple[str, str, str]:
    """Return decade, first genre and size of the cast, each "" where it is not there."""
    decade, genre, cast = (pattern.search(text) for pattern in (DECADE, GENRES, CAST))
    known = genre[1] if genre and genre[1] in KNOWN else ""
    return decade[1] if decade else "", known, str(min(5, len(QUOTED.findall(cast[1])))) if cast else ""


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
    grammar, drawn, start = Grammar(tokenizer, FILM, len(tokenizer)), 0, time.process_time()
    for _ in range(20):
        record, goes_on = grammar.begin(TOKENS), True
        while goes_on and record:
            (allowed,) = grammar.allowed([record]).numpy().nonzero()[1:]
            goes_on, drawn = record.take(int(coins.choice(allowed))), drawn + 1
    return drawn / (time.process_time() - start)


if __name__ == "__main__":
    main()
