"""What plans of language models foretell, beside what came: labels x records x epsilon, for `predict` and `dp_lm`.

    python -m bench.foretold_models --data DATA --lm LM --models MODELS

DATA holds `agnews`, `trec` and `sst2` as `bench.real_data` has them. Public texts are 2,000 of each set, without their
labels. Copies of LM learn from these the labels' prompts, and for `predict` to go on with a similar text, as in a
workspace; MODELS keeps them. As many records of each label are drawn. Both methods run as a release does, on rows at
hand, with the settings of `palimpsest init` but for texts of 24 tokens, public shares of the labels and, in `dp_lm`,
the epochs and the learning rate of the demo:

* `predict`: what class means choose of what batches write (`chosen`), as is usual where there are labels; and all of
  it, each text with the label of its batch (`written`).
* `dp_lm`: a language model alone at 87 % of epsilon, and a judge on the encoder for the rest. `plain` draws from the
  model; `filter` keeps the best of four texts by the judge.
* `judge`: the same judge, which chooses among what the public model writes: no language model is trained.

Accuracy on 1,000 real test rows, by logistic regression on the embeddings, of at most 100 rows a label; of as many that
the labels' descriptions choose (`public_only`), or that the public model writes (`public_lm`). One draw of records and
noise.

Feeds docs/sizing.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--lm` is `models/base` of a
workspace: bench/README.md. `--models` fills itself.
"""

import argparse
import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from bench.evolution_rounds import Answering
from bench.foretold import POOL, TEST
from palimpsest.files import atomic_path
from palimpsest.methods.dp_lm.discriminator import Discriminator
from palimpsest.methods.dp_lm.fit import DpLm
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.plan import plan as plan_training
from palimpsest.methods.dp_lm.plan import plan_discriminator
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain, DpLmGenerate, DpLmTrain
from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.predict.fit import Predict
from palimpsest.methods.predict.plan import plan as plan_prediction
from palimpsest.methods.public_only import select_public
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.filters import build_filters, refuse_perplexity
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.encoder import Encoder, assign_nearest, neighbours
from palimpsest.models.lm import learn_prompts
from palimpsest.models.settings import PromptWarmUp, Similar
from palimpsest.models.sources import resolve_encoder
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.settings import Stated

ROWS, TOKENS, SEED = 100, 24, 7
LABELS = {"agnews": 4, "trec": 5, "sst2": 2}
TRAINED = {"discriminator_weight": 0.0, "epochs": 3.0, "learning_rate": 0.006}  # as params.yaml of the demo
# Numbers of records that each is measured at: a language model of more takes hours on one core.
SIZES = {"predict": range(3001), "dp_lm": range(401), "judge": range(401, 1601)}
# Data set, records of a label, epsilon.
SETTINGS = (
    ("trec", 20, 3.0), ("trec", 80, 1.0), ("trec", 80, 8.0), ("trec", 300, 3.0),
    ("agnews", 25, 1.0), ("agnews", 25, 8.0), ("agnews", 100, 1.0), ("agnews", 100, 3.0), ("agnews", 400, 3.0),
    ("sst2", 50, 1.0), ("sst2", 50, 8.0), ("sst2", 200, 3.0), ("sst2", 800, 1.0), ("sst2", 1500, 3.0),
)  # fmt: skip


def main() -> None:
    """Print a line for each way of making rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, help="folder that keeps what LM is taught")
    parser.add_argument("--only", nargs="+", choices=LABELS, default=list(LABELS), help="data sets")
    parser.add_argument("--places", type=int, nargs="+", default=range(len(SETTINGS)), help="which of SETTINGS")
    parser.add_argument("--methods", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    encoder = Vectors(Encoder(resolve_encoder("embedded")))
    print("| data | labels x records | epsilon | public_only | public_lm | method | foretold, accuracy of each way |")
    print("|---|---|---|---|---|---|---|")
    for name in args.only:
        data = DataSet.read(args.data, name, encoder, args.lm, args.models / name)
        for _, records, epsilon in (SETTINGS[place] for place in args.places if SETTINGS[place][0] == name):
            for method in (one for one in args.methods if records * LABELS[name] in SIZES[one]):
                print(measure(data, method, records, epsilon), flush=True)


@dataclass(frozen=True, eq=False)
class Vectors:
    """The public sentence encoder with one memory: a bench keeps private texts and others together."""

    encoder: Encoder
    fingerprint: str = "bench"

    @cached_property
    def known(self) -> dict[str, np.ndarray]:
        return {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(missing, self.encoder.encode(missing) if missing else (), strict=True))
        return np.stack([self.known[text] for text in texts])

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    rows = others = fresh = property(lambda self: self)


@dataclass(frozen=True, eq=False)
class DataSet:
    """One data set: its texts, and a public language model that learned its prompts."""

    name: str
    private: Sequence[Record]
    public: Sequence[str]
    test: Sequence[Record]
    labels: Sequence[str]
    encode: Vectors
    base: Path
    reader: Path

    @classmethod
    def read(cls, data: Path, name: str, encode: Vectors, lm: Path, folder: Path) -> "DataSet":
        """Read the texts, and teach copies of the language model."""
        with gzip.open(data / f"{name}_train.jsonl.gz", "rt", encoding="utf-8") as file:
            rows = [Record(row["text"], row["label"].lower()) for row in islice(map(json.loads, file), 4 * POOL + TEST)]
        names = sorted({str(row.label) for row in rows}, key=lambda label: -sum(row.label == label for row in rows))
        kept = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
        private, public, test = kept[: -POOL - TEST], kept[-POOL - TEST : -TEST], kept[-TEST:]
        made = cls(
            name, private, [row.text for row in public], test, names[: LABELS[name]], encode, folder / "base",
            folder / "reader",
        )  # fmt: skip
        made.teach(lm)
        return made

    def teach(self, lm: Path) -> None:
        """Teach the public model prompts, and then to go on with a similar text, from public texts alone."""
        vectors, named = self.encode(self.public), self.encode(self.labels)
        guessed = [self.labels[guess] for guess in assign_nearest(vectors, named)]
        prompts = PromptWarmUp(epochs=1, max_tokens=TOKENS, learning_rate=0.002)
        similar = Similar(max_tokens=TOKENS, learning_rate=0.002, epochs=0.35)
        lessons = ((lm, self.base, prompts, None), (self.base, self.reader, similar, neighbours(vectors, guessed, 2)))
        for before, after, settings, pairs in lessons:
            if not after.is_dir():
                with atomic_path(after) as draft:
                    shutil.copytree(before, draft, copy_function=shutil.copyfile)
                    learn_prompts(draft, self.public, guessed, settings, SEED, pairs)

    def schema(self, records: int) -> PublicSchema:
        """What is public about so many records of each label."""
        labels = {label: label for label in self.labels}
        return PublicSchema(
            self.name, "classify", "text", records * len(labels), 1000, label="label", labels=labels
        )  # fmt: skip

    def draw(self, records: int, coins: np.random.Generator) -> list[PrivateRow]:
        """Draw so many records of each label."""
        parts = [[row for row in self.private if row.label == label] for label in self.labels]
        chosen = [part[place] for part in parts for place in coins.permutation(len(part))[:records]]
        if len(chosen) < records * len(parts):
            raise SystemExit(f"{self.name} has too few records for {records} of each label")
        return [PrivateRow(row.text, row.label) for row in chosen]

    def choose_blindly(self) -> list[Record]:
        """Choose as `public_only` does."""
        named = dict(zip(self.labels, self.encode(self.labels), strict=True))
        return select_public(self.encode(self.public), named, self.public, None, dict.fromkeys(self.labels, ROWS))

    @cached_property
    def untrained(self) -> DpLmArtifact:
        """The public model as a training would leave it that learned nothing."""
        model, tokenizer = new_model(self.base, len(self.labels), 0, SEED)
        shares = dict.fromkeys(self.labels, 1.0 / len(self.labels))
        return DpLmArtifact(model.requires_grad_(False), tokenizer, shares, TOKENS, "text")

    @cached_property
    def beside(self) -> tuple[float, float]:
        """The accuracies of `public_only` and `public_lm`."""
        return self.examine(self.choose_blindly()), self.examine(draw_rows(self, self.untrained, "plain", 1))

    def examine(self, rows: Sequence[Record]) -> float:
        """Learn from at most `ROWS` rows of each label, and return the accuracy on the test rows."""
        used = [row for label in self.labels for row in [one for one in rows if one.label == label][:ROWS]]
        asked = [row for row in self.test if row.label in self.labels]
        model = LogisticRegression(C=10.0, max_iter=500)
        model.fit(self.encode([row.text for row in used]), [row.label for row in used])
        found = model.predict(self.encode([row.text for row in asked]))
        return float(np.mean(found == np.array([row.label for row in asked])))


Told = dict[str, tuple[Plan | None, list[Record]]]


def predict(data: DataSet, records: int, epsilon: float, rows: list[PrivateRow]) -> Told:
    """Write from private contexts, and choose by class means what was written."""
    schema = data.schema(records)
    own = filled(
        PredictSettings, schema, label_counts="prior", micro_batch=64, max_tokens=TOKENS,
        prompt={"text_tokens": TOKENS},
    )  # fmt: skip
    plan = plan_prediction(own, schema, Budget(epsilon, default_delta(schema.n_units)))
    fit = Predict(own, schema, plan, data.reader, bytes(range(32)), None, refuse_perplexity, data.encode)
    answer = fit.ask(Answering(rows))
    written = answer.made(own.filters, refuse_perplexity, None, None).rows
    return {"chosen": (plan, list(fit.made(answer).rows)), "written": (None, list(written))}


def train(data: DataSet, records: int, epsilon: float, rows: list[PrivateRow]) -> Told:
    """Train a language model and then a judge, and draw without and with it."""
    own, plan = plan_alone(data, records, epsilon)
    fitted = DpLm(own, data.schema(records), plan, data.base, SEED, None).ask(Answering(rows))
    plain = {"plain": (plan, draw_rows(data, fitted, "plain", 1))}
    return plain | judge_texts(data, records, epsilon, rows, fitted)


def judge_untrained(data: DataSet, records: int, epsilon: float, rows: list[PrivateRow]) -> Told:
    """Train the same judge, and let it choose among what the public model writes."""
    return judge_texts(data, records, epsilon, rows, data.untrained)


def plan_alone(data: DataSet, records: int, epsilon: float) -> tuple[DpLmTrain, Plan]:
    """Plan a language model without a discriminator, at 87 % of epsilon."""
    schema = data.schema(records)
    own = filled(DpLmTrain, schema, label_counts="prior", max_tokens=TOKENS, **TRAINED)
    return own, plan_training(own, schema, Budget(0.87 * epsilon, default_delta(schema.n_units)))


def judge_texts(data: DataSet, records: int, epsilon: float, rows: list[PrivateRow], writer: DpLmArtifact) -> Told:
    """Train a judge for what a language model leaves of epsilon, and draw the best of four."""
    schema = data.schema(records)
    own = filled(DiscriminatorTrain, schema, max_tokens=TOKENS)
    before = plan_alone(data, records, epsilon)[1].event
    plan = plan_discriminator(own, schema, Budget(epsilon, default_delta(schema.n_units)), before)
    judged = Discriminator(own, schema, plan, writer, SEED, data.encode, None).ask(Answering(rows))
    return {"filter": (plan, draw_rows(data, judged, "filter", 4))}


def draw_rows(data: DataSet, artifact: DpLmArtifact, variant: str, best_of: int) -> list[Record]:
    """Draw `ROWS` rows of each label."""
    settings = DpLmGenerate(rows=ROWS * len(data.labels), max_tokens=TOKENS, best_of=best_of, filters=Filters())
    chain: FilterChain = build_filters(settings.filters, refuse_perplexity)
    sampler = Sampler(settings, variant, SEED, chain, data.encode)
    return list(sampler.sample(artifact, dict.fromkeys(data.labels, ROWS)))


WAYS: dict[str, Callable[[DataSet, int, float, list[PrivateRow]], Told]] = {
    "predict": predict, "dp_lm": train, "judge": judge_untrained,
}  # fmt: skip


def filled(kind: Any, schema: PublicSchema, **written: Any) -> Any:
    """Return settings with the defaults of a new workspace."""
    return kind.model_validate(written, context=Stated("classify", schema.asset, True, schema.n_units, None, True))


def measure(data: DataSet, method: str, records: int, epsilon: float) -> str:
    """Return the line of one setting."""
    found = WAYS[method](data, records, epsilon, data.draw(records, np.random.default_rng(0)))
    told = [f"{way} {describe(plan)} {data.examine(rows):.3f}" for way, (plan, rows) in found.items()]
    setting = data.name, f"{len(data.labels)} x {records}", f"{epsilon:g}"
    cells = *setting, *(f"{one:.3f}" for one in data.beside), method, "; ".join(told)
    return f"| {' | '.join(cells)} |"


def describe(plan: Plan | None) -> str:
    """Return what a plan foretells."""
    told = () if plan is None else plan.foretold
    return " ".join(f"({one.ratio:.3g}, {one.word})" for one in told)


if __name__ == "__main__":
    main()
