"""Memory and time of the stages that read whole files, on rows that are made for it.

    python -m bench.larger --rows 1000000

Rows of some 200 characters, drawn word by word, are written as JSONL into a temporary workspace. Each part runs in a
process of its own. `peak` is the highest resident set of that process, `CPU` its processor time.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset
from palimpsest.privacy.ledger.witness import VARIABLE as WITNESSES
from palimpsest.records.record import Record
from palimpsest.records.write import write_synthetic
from palimpsest.work.context import contents
from palimpsest.workspace import SYNTHETIC

WORDS, VOCABULARY, AT_ONCE = 33, 50_000, 20_000  # of a text; of all texts; texts that are made at once
LABELS = ("north", "south", "east", "west")
STAGES = ("preprocess", "spending", "evaluation", "n-grams")
WRITTEN, VARIANT = 100_000, "select1"  # rows of a variant, beside which private ones are evaluated and counted
PARAMS = """version: "0.1.0"
dataset: {{asset: made, task: classify, private: rows.jsonl, public: public.jsonl, text: text, n_public: {rows},
  label: label, labels: {{north: "", south: "", east: "", west: ""}}}}
privacy: {{budget: {{epsilon: 10.0, delta: 1.0e-9}}}}
variants: {{select1: {{method: select, epsilon: 1.0}}}}
utility: {{evaluators: [tfidf_lr]}}
"""


def made(path: Path, rows: int, seed: int) -> None:
    """So many rows as JSONL; the words of a text are drawn by a Zipf law, and its label ends it."""
    random = np.random.default_rng(seed)
    weights = 1.0 / np.arange(10, VOCABULARY + 10)
    bounds = np.cumsum(weights / weights.sum())
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, rows, AT_ONCE):
            places = np.searchsorted(bounds, random.random((min(AT_ONCE, rows - start), WORDS)))
            for words, label in zip(
                places.tolist(), random.integers(0, len(LABELS), len(places)).tolist(), strict=True
            ):
                text = " ".join([*(f"w{word}" for word in words), LABELS[label]])  # something to learn
                stream.write(json.dumps({"text": text, "label": LABELS[label]}) + "\n")


def workspace(folder: Path, rows: int) -> dict[str, str]:
    """A workspace with made rows and a ledger; the environment that its stages run in."""
    made(folder / "rows.jsonl", rows, 1)
    made(folder / "public.jsonl", 1000, 2)
    text = PARAMS.format(rows=rows)
    for name, content in ({FILE: text} | contents(loads(text))).items():
        (folder / name).write_text(content, encoding="utf-8")
    books = f"sqlite:///{folder.parent / 'ledger.db'}"
    Ledger.create(books).register(Asset("made", 1e-9, 10.0, rows))
    return os.environ | {
        "PALIMPSEST_LEDGER": books,
        WITNESSES: str(folder.parent / "witnesses"),
        "OMP_NUM_THREADS": "1",
    }


def measured(folder: Path, environment: dict[str, str], part: str) -> dict[str, float]:
    """Run a part in a process of its own: seconds by the clock and of the processor, and the highest resident set."""
    words = [sys.executable, "-m", "bench.larger", "--part", part, "--folder", str(folder)]
    start = time.monotonic()
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return {"wall": time.monotonic() - start, **json.loads(done.stdout.splitlines()[-1])}


def run(part: str, folder: Path) -> None:
    """One part: a stage, or what every stage that spends does before it asks."""
    os.chdir(folder)
    {"preprocess": preprocess, "spending": spending, "evaluation": evaluation, "n-grams": count}[part]()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 2**20}))


def preprocess() -> None:
    """The stage."""
    from stages.preprocess import run as stage

    stage()


def spending() -> None:
    """The private rows of any stage that spends."""
    from stages.spending import private_rows

    print(len(private_rows()))


def evaluation() -> None:
    """The stages that score real rows and those of a variant: of words alone, for encoding is measured apart."""
    from stages import baseline_eval, downstream_eval

    written("public_only", 1000, 3)
    written(VARIANT, WRITTEN, 4)
    baseline_eval.run()
    downstream_eval.run(VARIANT)


def count() -> None:
    """The n-grams that a variant's rows share with all private rows."""
    from stages import ngram_audit

    ngram_audit.run(VARIANT)


def written(name: str, rows: int, seed: int) -> None:
    """So many made rows as those of a variant."""
    lines = Path(f"{name}.made")
    made(lines, rows, seed)
    with lines.open(encoding="utf-8") as stream:
        write_synthetic((Record(**json.loads(line)) for line in stream), SYNTHETIC / name, "text", "label")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--part", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        run(args.part, args.folder)
        return
    print("| rows | part | CPU s | wall s | peak GiB |\n|---|---|---|---|---|")
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "workspace"
            folder.mkdir()
            environment = workspace(folder, rows)
            for part in STAGES:
                found = measured(folder, environment, part)
                print(
                    f"| {rows:,} | {part} | {found['cpu']:.0f} | {found['wall']:.0f} | {found['peak']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
