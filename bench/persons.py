"""What protecting a person costs, on real data with invented authors: three methods, most rows of a person 1, 4, 16.

    python -m bench.persons world  --data <folder>
    python -m bench.persons select --data <folder> --encodings <folder> --results <file>
    python -m bench.persons head   --data <folder> --encodings <folder> --lm <folder> --results <file>
    python -m bench.persons lm     --data <folder> --lm <folder> --results <file>
    python -m bench.persons show   --results <file>

The 6,920 training sentences of SST-2 are dealt to 1,500 authors by a public rule: shuffled by a seed, each author gets
one, and each of the others goes to the author of rank r with probability proportional to 1 / r (Zipf's law, exponent
1). Epsilon is 3 and delta 1 / (1,500 ln 1,500), for a person with all rows that are kept, by these ways:

* `person`: the product with a unit column. `person, rows` and `person, joint` are the two clippings of a training: each
  row's gradient, then averaged; or the gradient of all rows of a person at once.
* `group`: the same query at record level over the same rows, with the noise at which `group_epsilon`, which knows the
  mechanism by its curve alone, proves epsilon 3 for a group of as many records.
* `exact`: the sums of `person` without noise. `records`: all rows, record level, delta 1 / (6,920 ln 6,920). Neither
  protects persons.

`select` chooses public texts by noisy class means and trains the two classifiers of the utility audit on them; `head`
is a linear discriminator on sentence embeddings, its accuracy its own; `lm` is the test loss of a conditional language
model, in nats a token given the label. All on the 1,821 test sentences (`lm` on the first 600). Finished cells are kept
in the results file; run again, and only what is missing is done.

Feeds docs/results/persons.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--encodings` fills
itself. `--lm` is `models/base` of a workspace: bench/README.md.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import torch

from bench.evolution import Bench, read, records
from bench.evolution_rounds import Counting
from bench.real_data import SST2, TASKS
from palimpsest.methods.dp_lm.discriminator import Discriminator
from palimpsest.methods.dp_lm.fit import DpLm
from palimpsest.methods.dp_lm.likelihood import record_losses
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.plan import plan as plan_dp_lm
from palimpsest.methods.dp_lm.plan import plan_discriminator
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain, DpLmTrain
from palimpsest.methods.public_only import select_public
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import ClassSums, choose
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.privacy.accounting import gdp_sigma, group_epsilon
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.means import ClassMeans
from palimpsest.privacy.query import Query, is_stepped
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.preprocess import cap_rows, person_id
from palimpsest.records.private import RawRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.vouched import fingerprint_of

PERSONS, EXPONENT, SEED = 1500, 1.0, 7
CAPS = (1, 4, 16)
EPSILON = 3.0
KEY = bytes(32)  # public here: the same rows are kept in every run
DOMAIN = 0.75
SCORED = 600  # test sentences whose loss is measured
_CLOSE = 1e-3  # relative width at which a search for noise stops


@dataclass(frozen=True)
class World:
    """Sentences and the authors they were dealt to."""

    rows: Sequence[RawRow]

    def kept(self, most: int) -> list[RawRow]:
        """At most so many rows of each author, as preprocessing keeps them."""
        return cap_rows(self.rows, KEY, most)


def dealt(sentences: Sequence[Record]) -> World:
    """Every author gets one sentence, the rest goes by Zipf's law."""
    mixed = list(sentences)
    random.Random(SEED).shuffle(mixed)
    weights = np.arange(1, PERSONS + 1) ** -EXPONENT
    drawn = np.random.default_rng(SEED).choice(PERSONS, len(mixed) - PERSONS, p=weights / weights.sum())
    authors = [*range(PERSONS), *drawn.tolist()]
    return World([RawRow(row.text, row.label, f"author {author}") for row, author in zip(mixed, authors, strict=True)])


@dataclass(frozen=True)
class Way:
    """One way to protect somebody."""

    name: str  # its row in the table
    most: int  # kept rows of a person; 0 where nobody is capped
    rows: Sequence[PrivateRow]  # what queries read
    schema: PublicSchema  # what is public about them
    group: int = 1  # how many records the noise must hide together; 1 where the query hides a unit by itself

    @property
    def delta(self) -> float:
        """Of the unit that is protected."""
        return default_delta(PERSONS if self.most else len(self.rows))


def by_persons(world: World, most: int, name: str = "person") -> Way:
    """The product with a unit column."""
    rows = [PrivateRow(row.text, row.label, person_id(row, KEY)) for row in world.kept(most)]
    return Way(name, most, rows, _schema(len(rows), unit_column="author", n_persons=PERSONS, max_rows_per_unit=most))


def by_records(world: World, most: int, name: str) -> Way:
    """Record level; `most` of them are hidden together."""
    kept = world.kept(most) if most else world.rows
    rows = [PrivateRow(row.text, row.label) for row in kept]
    return Way(name, most, rows, _schema(len(rows)), max(1, most))


def _schema(rows: int, **more: Any) -> PublicSchema:
    return PublicSchema("sst2", "classify", "text", rows, TASKS["sst2"]["characters"], "label", SST2, **more)


@dataclass(frozen=True)
class Answering:
    """Answers queries from rows at hand, with the noise of one seed: a bench has no ledger."""

    rows: Sequence[PrivateRow]
    seed: int

    def ask(self, query: Query) -> Any:
        source = NoiseSource(self.seed)
        if not is_stepped(query):
            return query.run(self.rows, source)
        return query.run_steps(self.rows, source, Counting(query.steps))  # type: ignore[attr-defined]


def group_noise(event: Callable[[float], dpa.DpEvent], size: int, delta: float) -> float:
    """The least noise at which `group_epsilon` proves `EPSILON` for `size` records."""
    low, high = 0.1, 0.2
    while group_epsilon(event(high), size, delta) > EPSILON:
        low, high = high, 2.0 * high
    while high - low > _CLOSE * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if group_epsilon(event(middle), size, delta) <= EPSILON else (middle, high)
    return high


class Results:
    """Finished cells, a line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: list[dict[str, Any]] = [json.loads(line) for line in _lines(path)]

    def cell(self, part: str, way: str, most: int, draw: int, measure: Callable[[], Mapping[str, Any]]) -> None:
        """Measure and keep, unless it is there."""
        names = {"part": part, "way": way, "most": most, "draw": draw}
        if any(all(cell[key] == value for key, value in names.items()) for cell in self.cells):
            return
        self.cells.append(names | dict(measure()))
        print(json.dumps(self.cells[-1]), flush=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.cells[-1]) + "\n")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def main() -> None:
    """Measure what is asked for."""
    args = arguments()
    torch.set_num_threads(1)
    {"world": describe, "select": select, "head": head, "lm": lm, "show": show}[args.part](args)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("world", "select", "head", "lm", "show"))
    parser.add_argument("--data", type=Path, help="folder of the gzipped JSON lines")
    parser.add_argument("--encodings", type=Path, help="folder that keeps vectors of texts")
    parser.add_argument("--lm", type=Path, help="folder of the public language model")
    parser.add_argument("--results", type=Path, help="finished cells")
    parser.add_argument("--caps", type=int, nargs="+", default=list(CAPS))
    parser.add_argument("--ways", nargs="+", help="of `lm`, those alone")
    parser.add_argument("--draws", type=int, default=10, help="of the noise")
    parser.add_argument("--rows", type=int, default=6000, help="texts that `select` chooses")
    parser.add_argument("--epochs", type=float, default=2.0, help="of `lm`")
    parser.add_argument("--batch", type=int, default=128, help="persons that `lm` expects in a step")
    return parser.parse_args()


def describe(args: argparse.Namespace) -> None:
    """How rows fall to authors."""
    world = dealt(list(records(args.data, "sst2", "train")))
    sizes = sorted(Counter(row.unit for row in world.rows).values())
    print(f"{len(world.rows)} rows, {len(sizes)} authors: median {sizes[len(sizes) // 2]}, largest {sizes[-1]}")
    for most in args.caps:
        print(f"at most {most}: {len(world.kept(most))} rows, {sum(size > most for size in sizes)} authors above")


def encoder(args: argparse.Namespace) -> KeptVectors:
    """The sentence encoder with its memory."""
    folder = resolve_encoder("embedded")
    model = Encoder(folder)
    return KeptVectors(model.encode_batch, model.dimension, args.encodings, fingerprint_of(folder), batch=64)


def select(args: argparse.Namespace) -> None:
    """Class means, and classifiers on what they choose."""
    bench, results = read("sst2", args.data, encoder(args)), Results(args.results)
    world = dealt(bench.train)
    public = select_public(bench.candidates.embeddings, _described(bench), bench.candidates.texts, None, _counts(args))
    results.cell("select", "real", 0, 0, partial(_accuracies, bench, bench.train))
    results.cell("select", "public_only", 0, 0, partial(_accuracies, bench, public))
    for draw in range(args.draws):
        for way, sigma in class_means(world, args.caps):
            if sigma or not draw:
                results.cell("select", way.name, way.most, draw, partial(_chosen, bench, way, sigma, draw, args))


def class_means(world: World, caps: Sequence[int]) -> Iterator[tuple[Way, float]]:
    """Each way, and the noise of its class means."""
    everybody = by_records(world, 0, "records")
    yield everybody, gdp_sigma(EPSILON, everybody.delta)
    for most in caps:
        persons, delta = by_persons(world, most), default_delta(PERSONS)
        one = gdp_sigma(EPSILON, delta)
        yield persons, one
        yield replace(persons, name="exact"), 0.0
        if most > 1:
            yield by_records(world, most, "group"), group_noise(dpa.GaussianDpEvent, most, delta)


def _described(bench: Bench) -> dict[str, np.ndarray]:
    return dict(zip(bench.schema.labels, bench.encode(list(bench.schema.labels.values())), strict=True))


def _counts(args: argparse.Namespace) -> dict[str, int]:
    return dict.fromkeys(SST2, args.rows // len(SST2))


def _chosen(bench: Bench, way: Way, sigma: float, draw: int, args: argparse.Namespace) -> dict[str, Any]:
    labels = bench.schema.label_names
    query = ClassMeans(labels, bench.encode, bench.encode.dimension, sigma)
    sums = ClassSums(labels, np.array(query.run(way.rows, NoiseSource(draw))))
    chosen = choose(bench.candidates, sums, _counts(args), DOMAIN)
    return {"rows": len(way.rows), "noise": sigma} | _accuracies(bench, chosen)


def _accuracies(bench: Bench, rows: Sequence[Record]) -> dict[str, float]:
    minilm, tfidf = bench.accuracies(rows).tolist()
    return {"minilm": minilm, "tfidf": tfidf}


def trained(world: World, caps: Sequence[int], clippings: Sequence[str]) -> Iterator[Way]:
    """The ways of a training; `Way.name` ends in its clipping of a person where there is one."""
    yield by_records(world, 0, "records")
    for most in caps:
        if most == 1:
            yield by_persons(world, most)
            continue
        for clipping in clippings:
            yield by_persons(world, most, f"person, {clipping}")
        yield by_records(world, most, "group")


def planned(plan: Plan, way: Way) -> Plan:
    """The plan, with the noise that hides a whole group where the way asks for it."""
    if way.group == 1:
        return plan
    (training,) = (query.event for query in plan.queries)
    noise = group_noise(lambda trial: _with_noise(training, trial), way.group, way.delta)
    return replace(plan, numbers={**plan.numbers, "noise_multiplier": noise})


def _with_noise(training: dpa.DpEvent, noise: float) -> dpa.DpEvent:
    step = dpa.PoissonSampledDpEvent(training.event.sampling_probability, dpa.GaussianDpEvent(noise))
    return dpa.SelfComposedDpEvent(step, training.count)


def clipping_of(way: Way) -> dict[str, str]:
    """The setting of a training that says how a person is clipped."""
    return {"person": way.name.split(", ")[1] if way.name.startswith("person, ") else "joint"}


def head(args: argparse.Namespace) -> None:
    """A discriminator on sentence embeddings."""
    encode, results = encoder(args), Results(args.results)
    world, tests = dealt(list(records(args.data, "sst2", "train"))), list(records(args.data, "sst2", "test"))
    for draw in range(args.draws):
        for way in trained(world, args.caps, ("joint", "rows")):
            results.cell("head", way.name, way.most, draw, partial(_head, way, draw, encode, tests, args))


def _head(
    way: Way, draw: int, encode: KeptVectors, tests: Sequence[Record], args: argparse.Namespace
) -> dict[str, Any]:
    train = DiscriminatorTrain(
        reads="encoder", width=0, prefix_step=4, epochs=40, batch=way.schema.n_units, learning_rate=0.01,
        schedule="linear", warmup=0.0, betas=(0.9, 0.98), adam_eps=1e-8, noise_correction=False,
        clipping_norm=0.5, max_tokens=40, micro_batch=2048, checkpoint_steps=50, **clipping_of(way),
    )  # fmt: skip
    budget, before = Budget(EPSILON, way.delta), dpa.ComposedDpEvent([])
    plan = planned(plan_discriminator(train, way.schema, budget, before), way)
    model, tokenizer = new_model(args.lm, len(SST2), 0, 0, "both")
    public = DpLmArtifact(model, tokenizer, dict.fromkeys(SST2, 0.5), 40, "text")
    fitted = Discriminator(train, way.schema, plan, public, 0, encode, None).ask(Answering(way.rows, draw))
    with torch.no_grad():
        scores = fitted.model.head(torch.from_numpy(encode([row.text for row in tests])))
    right = scores.argmax(1).numpy() == np.array([list(SST2).index(row.label or "") for row in tests])
    return {"rows": len(way.rows), "noise": float(plan.numbers["noise_multiplier"]), "accuracy": float(right.mean())}


def lm(args: argparse.Namespace) -> None:
    """A conditional language model."""
    results = Results(args.results)
    world = dealt(list(records(args.data, "sst2", "train")))
    tests = list(records(args.data, "sst2", "test"))[:SCORED]
    results.cell("lm", "public", 0, 0, partial(_public_loss, tests, args))
    for draw, most in product(range(args.draws), (*args.caps, 0)):
        for way in trained(world, [most] if most else [], ("joint", "rows")):
            if way.most == most and (args.ways is None or way.name in args.ways):
                results.cell("lm", way.name, most, draw, partial(_lm, way, draw, tests, args))


def _lm(way: Way, draw: int, tests: Sequence[Record], args: argparse.Namespace) -> dict[str, Any]:
    """The same share of units in each step, so the same steps, whoever is the unit."""
    share = args.batch / PERSONS
    batch = round(share * way.schema.n_units)
    train = lm_settings(batch=batch, epochs=args.epochs, freeze_first=2, micro_batch=16, **clipping_of(way))
    plan = planned(plan_dp_lm(train, way.schema, Budget(EPSILON, way.delta)), way)
    fitted = DpLm(train, way.schema, plan, args.lm, 0, None).ask(Answering(way.rows, draw))
    rows = fitted.serialiser()
    loss = record_losses(fitted.model, rows, tests, batch=50).mean()
    return {"rows": len(way.rows), "noise": float(plan.numbers["noise_multiplier"]), "loss": float(loss)}


def lm_settings(**more: Any) -> DpLmTrain:
    """Settings of a training of the small public language model."""
    values: dict[str, Any] = {
        "epochs": 3, "batch": 128, "learning_rate": 0.004, "schedule": "linear", "warmup": 0.05, "betas": (0.9, 0.98),
        "adam_eps": 1e-8, "noise_correction": False, "clipping": "joint", "clipping_norm": 0.1,
        "discriminator_weight": 0.0, "discriminator_width": 0, "discriminator_reads": "both", "prefix_step": 4,
        "loss_on": "text", "freeze_first": 0, "freeze_last": 0, "freeze_embeddings": True, "lora_rank": 0,
        "max_tokens": 40, "micro_batch": 32, "precision": "float32", "checkpoint_steps": 50, "label_counts": "prior",
        "prior": None, "histogram_share": 0.01, "person": "joint",
    }  # fmt: skip
    return DpLmTrain(**values | more)


def _public_loss(tests: Sequence[Record], args: argparse.Namespace) -> dict[str, Any]:
    model, tokenizer = new_model(args.lm, len(SST2), 0, 0, "both")
    train = lm_settings()
    rows = serialiser(tokenizer, tuple(SST2), train.max_tokens, train.loss_on)
    return {"loss": float(record_losses(model.eval(), rows, tests, batch=50).mean())}


def show(args: argparse.Namespace) -> None:
    """A table for each part: means over draws, in brackets the standard deviation."""
    cells = Results(args.results).cells
    for part in dict.fromkeys(cell["part"] for cell in cells):
        own = [cell for cell in cells if cell["part"] == part]
        measures = [name for name in ("minilm", "tfidf", "accuracy", "loss") if name in own[0]]
        print(f"\n| {part} | most rows | rows | noise | draws | {' | '.join(measures)} |")
        print("|---" * (5 + len(measures)) + "|")
        for name, most in sorted({(cell["way"], cell["most"]) for cell in own}, key=lambda pair: (pair[1], pair[0])):
            drawn = [cell for cell in own if (cell["way"], cell["most"]) == (name, most)]
            values = np.array([[cell[measure] for measure in measures] for cell in drawn])  # (draws, measures)
            means = [f"{mean:.3f} ({spread:.3f})" for mean, spread in zip(values.mean(0), values.std(0), strict=True)]
            first = drawn[0]
            noise = f"{first['noise']:.2f}" if "noise" in first else ""
            print(f"| {name} | {most or ''} | {first.get('rows', '')} | {noise} | {len(drawn)} | {' | '.join(means)} |")


if __name__ == "__main__":
    main()
