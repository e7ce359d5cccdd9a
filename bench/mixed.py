"""A table of films as users have them: text, a label, two categories, a number and a date.

    python -m bench.mixed make --data DATA --files FILES
    python -m bench.mixed synth --files FILES --workspace W
    python -m bench.mixed score --workspace W
    python -m bench.mixed score --files FILES --rows ROWS.jsonl
    python -m bench.mixed read --files FILES
    python -m bench.mixed tables --files FILES [--repeats 5] [--sigma 4.58]
    python -m bench.mixed mostly --files FILES --rows ROWS.jsonl [--minutes 5]

`make` cuts 5,000 private and 1,300 test rows from `wikimovies_json.jsonl.gz`, and public text from
`public_wiki.jsonl.gz`. `synth` prints the seconds of `palimpsest synth` at epsilon 3, from start to page. `score`
prints what stage fields_audit measures, of other rows where they are named. `read` prints how often what the encoder
reads from a text is what the file says, and its seconds. `tables` prints the mean total variation from test rows of all
one- and two-way tables, by their zCDP: all tables fitted by mirror descent, or a tree of pairs fitted proportionally,
and AIM (McKenna et al. 2022) where `mbi` 2 is installed. `mostly` writes rows by mostlyai-engine's language model of
text and table with its DP setting, where that is installed.
"""

import gzip
import importlib.util
import json
import math
import re
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.audit.fields import Columns, FieldsAudit, Placed, audit_fields, to_cells, total_variation
from palimpsest.audit.statistics import RESAMPLES, Bootstrap
from palimpsest.files import read_json
from palimpsest.methods.shared.tables import fit_joint, table_of
from palimpsest.models.encoder import Encoder
from palimpsest.models.reader import read_fields
from palimpsest.models.sources import resolve_encoder
from palimpsest.privacy.tables import Axes
from palimpsest.records.fields import Declared, parse_fields
from palimpsest.records.private import RawRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

GENRES = {
    "Drama": "A drama: people, their conflicts and their lives.",
    "Comedy": "A comedy: a film that is meant to be funny.",
    "Horror": "A horror film: fear, monsters, ghosts or murder.",
    "Western": "A western: cowboys, outlaws and sheriffs of the American West.",
    "Action": "An action film: fights, chases, soldiers, police or spies.",
    "Thriller": "A thriller: crime, danger and suspense.",
}
SECOND = (
    "Silent", "Drama", "Romance", "Comedy", "Crime", "Short", "War", "Thriller", "Musical", "Adventure", "Horror",
    "Action",
)  # fmt: skip
KINDS = {"silent": r"\bsilent\b", "book": r"\b(novel|play|book|story|based on)\b", "series": r"\b(sequel|series)\b"}
FIELDS = (
    f"second:category({'|'.join(SECOND)}), kind:category({'|'.join(KINDS)}), cast:number(0..14, 2), "
    "released:date(1910..2023, year)"
)
TRAIN, TEST, LONGEST = 5000, 1300, 400
EPSILON = 3.0
SCHEMA = PublicSchema("films", "classify", "text", TRAIN, LONGEST, "label", GENRES, fields=parse_fields(FIELDS))
SHAPE = Columns.of(SCHEMA).shape
READ = 1000  # texts
PHRASES = {"silent": "a silent film", "book": "based on a novel or a play", "series": "a sequel or a part of a series"}
WAYS: dict[str, tuple[str, Mapping[str, str]]] = {
    "genre by words": ("label", {genre: genre for genre in GENRES}),
    "genre by phrases": ("label", {genre: f"a {genre.lower()} film" for genre in GENRES}),
    "genre by descriptions": ("label", GENRES),
    "kind by phrases": ("kind", PHRASES),
}


def main() -> None:
    """Do one of the six."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "synth", "score", "read", "tables", "mostly"])
    for name in ("data", "files", "workspace", "rows"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--variant", default="tabulate3")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sigma", type=float, default=4.58, help="noise of the tables of tabulate3, by its plan")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=5.0)
    args = parser.parse_args()
    known: dict[str, Callable[[Namespace], None]] = {
        "make": make, "synth": synth, "score": score, "read": read, "tables": tables, "mostly": mostly
    }  # fmt: skip
    known[args.what](args)


def make(args: Namespace) -> None:
    """Write train.jsonl, test.jsonl, public.jsonl and labels.json."""
    rows = [row for film in lines(args.data / "wikimovies_json.jsonl.gz") if (row := to_row(film))]
    args.files.mkdir(parents=True, exist_ok=True)
    write(args.files / "train.jsonl", rows[:TRAIN])
    write(args.files / "test.jsonl", rows[TRAIN : TRAIN + TEST])
    write(
        args.files / "public.jsonl", [{"text": cut(row["text"])} for row in lines(args.data / "public_wiki.jsonl.gz")]
    )
    (args.files / "labels.yaml").write_text(json.dumps(GENRES), encoding="utf-8")


def to_row(film: dict[str, Any]) -> dict[str, Any] | None:
    """A film with one of the six genres first and an opening text; None for another."""
    genres, text = film["genres"], film.get("extract")
    if not genres or genres[0] not in GENRES or not text:
        return None
    second = genres[1] if len(genres) > 1 else None
    kind = next((name for name, words in KINDS.items() if re.search(words, text)), None)
    return {"text": cut(text), "label": genres[0], "second": second, "kind": kind, "cast": len(film["cast"])} | {
        "released": f"{film['year']}-07-01"
    }


def cut(text: str) -> str:
    """The beginning of a text, up to the end of a word."""
    return text if len(text) <= LONGEST else text[: LONGEST + 1].rsplit(" ", 1)[0]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON-lines file, gzipped or not."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def synth(args: Namespace) -> None:
    """Time `palimpsest synth`, with the embedded model."""
    options = {
        "text": "text", "label": "label", "labels-file": args.files / "labels.yaml", "fields": FIELDS,
        "public": args.files / "public.jsonl", "test": args.files / "test.jsonl", "rows-about": TRAIN,
        "epsilon": EPSILON, "max-length": LONGEST, "asset": "films", "dir": args.workspace,
    }  # fmt: skip
    words = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    begun = time.perf_counter()
    command = [sys.executable, "-m", "palimpsest.cli.main", "synth", str(args.files / "train.jsonl"), *words, "--yes"]
    subprocess.run(command, check=True)
    print(f"from synth to page: {time.perf_counter() - begun:.0f} seconds")


def score(args: Namespace) -> None:
    """Print the audit of a variant, or of rows in a file."""
    if args.rows is None:
        found = read_json(args.workspace / "reports/metrics" / args.variant / "fields.json")
        show(FieldsAudit.from_json(found))
        return
    sides = [placed(path) for path in (args.rows, args.files / "train.jsonl", args.files / "test.jsonl")]
    show(audit_fields(*sides, Columns.of(SCHEMA), Bootstrap(RESAMPLES, 0)))


def placed(path: Path) -> Placed:
    """Rows of a file, in public cells."""
    rows = [
        Record(row["text"], row["label"], tuple((name, row[name]) for name in SCHEMA.fields)) for row in lines(path)
    ]
    return Placed.of([to_cells(row, SCHEMA) for row in rows], SCHEMA)


def show(audit: Any) -> None:
    """Print both tables of an audit, and the means over one-way and two-way tables."""
    print(f"{audit.rows} rows, {audit.compared} compared, {audit.test_rows} test rows")
    print(f"{'table':24} {'cells':>6} {'rows':>6} {'real':>6} {'apart':>6} {'even':>6}")
    for one in audit.tables:
        numbers = (one.synthetic, one.real, one.apart, one.uniform)
        print(f"{' and '.join(one.axes):24} {one.cells:6}", *(f"{number:6.3f}" for number in numbers))
    for ways in (1, 2):
        some = [one for one in audit.tables if len(one.axes) == ways]
        means = (
            sum(getattr(one, side) for one in some) / len(some) for side in ("synthetic", "real", "apart", "uniform")
        )
        print(f"mean of {ways}-way tables           ", *(f"{mean:6.3f}" for mean in means))
    print(f"{'named':24} {'rows':>20} {'real':>20} {'majority':>9}")
    for one in audit.learned:
        told = (f"{each.value:.3f} ({each.low:.3f}-{each.high:.3f})" for each in (one.synthetic, one.real))
        print(f"{one.target:24}", *(f"{words:>20}" for words in told), f"{one.majority:9.3f}")


def look_up(vectors: Mapping[str, np.ndarray], texts: Sequence[str]) -> np.ndarray:
    """The vectors of texts that were encoded before."""
    return np.stack([vectors[text] for text in texts])


def read(args: Namespace) -> None:
    """Print the share of rows whose column is what the encoder reads from the text, by how its values are written."""
    encoder = Encoder(resolve_encoder("embedded"))

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([encoder.encode_batch([text]) for text in texts])

    rows = list(islice(lines(args.files / "train.jsonl"), READ))
    begun = time.perf_counter()
    texts = [row["text"] for row in rows]
    vectors = dict(zip(texts, encode(texts), strict=True))
    print(f"{len(rows)} texts encoded one by one in {time.perf_counter() - begun:.0f} s")
    for name, (column, phrases) in WAYS.items():
        some = [row for row in rows if row[column] in phrases]
        fields: dict[str, Declared] = {"read": f"read({'|'.join(phrases.values())})"}
        vectors |= dict(zip(phrases.values(), encode(list(phrases.values())), strict=True))
        told = [RawRow(row["text"], fields="0") for row in some]
        answers = read_fields(told, fields, partial(look_up, vectors))
        found = (list(phrases)[int(one.fields)] for one in answers)
        right = np.mean([answer == row[column] for answer, row in zip(found, some, strict=True)])
        most = Counter(row[column] for row in some).most_common(1)[0][1] / len(some)
        print(f"{name:24} {right:.3f} of {len(some)} rows, the commonest {most:.3f}")


# --- tables at equal zCDP ------------------------------------------------------------------------------------------


def tables(args: Namespace) -> None:
    """Print how far each way's tables are from the test rows' tables, and its seconds."""
    train, test = (placed(args.files / f"{part}.jsonl").cells for part in ("train", "test"))
    rho, known = 0.5 / args.sigma**2, {"all, mirror descent": all_tables, "tree, proportional": tree_of_pairs}
    if importlib.util.find_spec("mbi"):
        known["AIM, private-pgm"] = aim
    print(f"rho {rho:.4f}; real training rows {distance(joint_of(train), test)}")
    for name, fitted in known.items():
        found, begun = [], time.perf_counter()
        for repeat in range(args.repeats):
            found.append(distance(fitted(train, rho, np.random.default_rng(repeat)), test))
        took = (time.perf_counter() - begun) / args.repeats
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
        told = (f"{ways}-way {mean[at]:.3f} sd {spread[at]:.3f}" for at, ways in enumerate(("one", "two")))
        print(f"{name:24}", *told, f"{took:.0f} s", flush=True)


def joint_of(cells: np.ndarray) -> np.ndarray:
    """The share of rows in each cell of all columns."""
    return count(cells, tuple(range(len(SHAPE)))).reshape(SHAPE) / len(cells)


def count(cells: np.ndarray, axes: Axes) -> np.ndarray:
    """How many rows are in each cell of a table, flat."""
    shape = [SHAPE[axis] for axis in axes]
    flat = np.ravel_multi_index(tuple(cells[:, list(axes)].T), shape)
    return np.bincount(flat, minlength=math.prod(shape)).astype(np.float64)


def distance(joint: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Mean total variation of the one-way and of the two-way tables."""
    found = {
        ways: [
            total_variation(table_of(joint, axes).reshape(-1), count(test, axes) / len(test))
            for axes in combinations(range(len(SHAPE)), ways)
        ]
        for ways in (1, 2)
    }
    return np.array([np.mean(own) for own in found.values()])


def measure(cells: np.ndarray, asked: Sequence[Axes], rho: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Noisy tables: one row changes each by one, and all together are one Gaussian query."""
    std = math.sqrt(len(asked) / (2.0 * rho))
    return [(table := count(cells, axes)) + rng.normal(0.0, std, len(table)) for axes in asked]


def all_tables(cells: np.ndarray, rho: float, rng: np.random.Generator) -> np.ndarray:
    """What `tabulate` does: every one- and two-way table, fitted together."""
    asked = [axes for ways in (1, 2) for axes in combinations(range(len(SHAPE)), ways)]
    return fit_joint(SHAPE, asked, measure(cells, asked, rho, rng))


def tree_of_pairs(cells: np.ndarray, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Each column with the label, fitted by iterative proportional fitting; no noise is spent on other pairs."""
    asked = [(0, axis) for axis in range(1, len(SHAPE))]
    wanted = [np.maximum(own, 0.0) + 1e-9 for own in measure(cells, asked, rho, rng)]
    joint = np.full(SHAPE, 1.0 / math.prod(SHAPE))
    for _ in range(50):
        for axes, own in zip(asked, wanted, strict=True):
            ratio = (own / own.sum()).reshape([SHAPE[axis] for axis in axes]) / table_of(joint, axes)
            joint = joint * np.expand_dims(ratio, tuple(axis for axis in range(len(SHAPE)) if axis not in axes))
    return joint / joint.sum()


def aim(cells: np.ndarray, rho: float, rng: np.random.Generator) -> np.ndarray:
    """AIM (McKenna et al. 2022, Algorithm 2): one-way tables, then the worst pair so far again and again."""
    from mbi import Domain, LinearMeasurement
    from mbi.estimation import MirrorDescent

    names = Columns.of(SCHEMA).names
    domain, ones = Domain(names, SHAPE), [(axis,) for axis in range(len(SHAPE))]
    known = [*ones, *combinations(range(len(SHAPE)), 2)]
    sigma, epsilon = math.sqrt(16 * len(SHAPE) / (1.8 * rho)), math.sqrt(0.8 * rho / (16 * len(SHAPE)))
    taken: list[Any] = []

    def ask(axes: Axes) -> None:
        table = count(cells, axes)
        noisy = table + rng.normal(0.0, sigma, len(table))
        taken.append(LinearMeasurement(noisy, tuple(names[axis] for axis in axes), sigma))

    def fit() -> Any:
        return MirrorDescent().estimate(domain, taken, known_total=float(len(cells)), iters=400)

    def guess(model: Any, axes: Axes) -> np.ndarray:
        return np.asarray(model.project(tuple(names[axis] for axis in axes)).datavector(), dtype=np.float64)

    for axes in ones:
        ask(axes)
    used, model, last = len(ones) * 0.5 / sigma**2, fit(), False
    while not last:
        if rho - used < 2.0 * (0.5 / sigma**2 + epsilon**2 / 8.0):
            sigma, epsilon, last = math.sqrt(1.0 / (1.8 * (rho - used))), math.sqrt(0.8 * (rho - used)), True
        used += 0.5 / sigma**2 + epsilon**2 / 8.0
        weights = {axes: sum(len({*axes} & {*pair}) for pair in known[len(ones) :]) for axes in known}
        wrong = {axes: np.abs(count(cells, axes) - guess(model, axes)).sum() for axes in known}
        bias = {axes: math.sqrt(2.0 / math.pi) * sigma * math.prod(SHAPE[axis] for axis in axes) for axes in known}
        scores = np.array([weights[axes] * (wrong[axes] - bias[axes]) for axes in known])
        chosen = known[int((0.5 * epsilon / max(weights.values()) * scores + rng.gumbel(size=len(known))).argmax())]
        before = guess(model, chosen)
        ask(chosen)
        model = fit()
        if np.abs(guess(model, chosen) - before).sum() <= bias[chosen]:
            sigma, epsilon = sigma / 2.0, epsilon * 2.0
    joint = np.maximum(guess(model, tuple(range(len(SHAPE)))), 0.0).reshape(SHAPE)
    return joint / joint.sum()


# --- another tool ---------------------------------------------------------------------------------------------------


def mostly(args: Namespace) -> None:
    """One language model of text and table, trained with noise up to the same epsilon; its rows, and its seconds."""
    import pandas as pd
    from mostlyai.engine import LanguageModel
    from mostlyai.engine.domain import DifferentialPrivacyConfig

    rows = pd.DataFrame(lines(args.files / "train.jsonl"))
    rows["released"] = pd.to_datetime(rows["released"])
    kinds = dict.fromkeys(("label", "second", "kind"), "LANGUAGE_CATEGORICAL")
    kinds |= {"cast": "LANGUAGE_NUMERIC", "released": "LANGUAGE_DATETIME", "text": "LANGUAGE_TEXT"}
    private = DifferentialPrivacyConfig(max_epsilon=EPSILON, delta=1.0 / (TRAIN * math.log(TRAIN)))
    begun = time.perf_counter()
    model = LanguageModel(kinds, max_training_time=args.minutes, differential_privacy=private, device="cpu", verbose=1)
    model.fit(rows[list(kinds)])
    trained = time.perf_counter() - begun
    made = model.sample(n_samples=args.count)
    print(f"seconds: {trained:.0f} of training, {time.perf_counter() - begun - trained:.0f} for {len(made)} rows")
    made["released"] = made["released"].astype("string")
    write(args.rows, json.loads(made.to_json(orient="records")))


if __name__ == "__main__":
    main()
