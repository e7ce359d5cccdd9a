"""A table of films as users have them: text, a label, two categories, a number and a date.

    python -m bench.mixed make --data DATA --files FILES
    python -m bench.mixed synth --files FILES --workspace W
    python -m bench.mixed score --workspace W --variant tabulate3 [--rows ROWS.jsonl]
    python -m bench.mixed tables --workspace W [--repeats 5]
    python -m bench.mixed mostly --files FILES --rows ROWS.jsonl [--minutes 5]

`make` cuts 5,000 private and 1,300 test rows from `wikimovies_json.jsonl.gz`, and public text from
`public_wiki.jsonl.gz`. `synth` prints the seconds of `palimpsest synth` at epsilon 3, from start to page, and those of
the processors. `score` prints what stage fields_audit measures, of other rows where they are named. `tables` prints the
mean total variation from test rows of all one- and two-way tables, by their zCDP: all tables fitted by mirror descent,
or a tree of pairs fitted proportionally, and AIM (McKenna et al. 2022) where `mbi` 2 is installed. `mostly` writes rows
by mostlyai-engine's tabular and language models, each with its DP setting, where that is installed.
"""

import gzip
import json
import math
import re
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

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


def main() -> None:
    """Do one of the five."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "synth", "score", "tables", "mostly"])
    for name in ("data", "files", "workspace", "rows"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--variant", default="tabulate3")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=5.0)
    args = parser.parse_args()
    known: dict[str, Callable[[Namespace], None]] = {
        "make": make, "synth": synth, "score": score, "tables": tables, "mostly": mostly
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
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took, worked = time.perf_counter() - begun, used.ru_utime + used.ru_stime
    print(f"from synth to page: {took:.0f} seconds, of which processors worked {worked:.0f}, both together")


def score(args: Namespace) -> None:
    """Print the audit of a variant, or of rows in a file."""
    from palimpsest.audit.fields import FieldsAudit
    from palimpsest.files import read_json

    if args.rows is None:
        found = read_json(args.workspace / "reports/metrics" / args.variant / "fields.json")
        show(FieldsAudit.from_json(found))
        return
    from palimpsest.audit.fields import Columns, Placed, audit_fields, to_cells
    from palimpsest.audit.statistics import RESAMPLES, Bootstrap
    from palimpsest.params.load import read
    from palimpsest.records.record import Record
    from palimpsest.records.write import read_split

    params = read(args.workspace)
    schema, private = params.schema_of_data, args.workspace / "data/private"
    rows = list(lines(args.rows))
    own = [Record(row["text"], row["label"], tuple((name, row[name]) for name in schema.fields)) for row in rows]
    sides = [
        [to_cells(row, schema) for row in own],
        *(read_split(private / f"{part}.parquet") for part in ("train", "test")),
    ]
    placed = [Placed.of(rows, schema) for rows in sides]
    show(audit_fields(*placed, Columns.of(schema), Bootstrap(RESAMPLES, params.seed)))


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


if __name__ == "__main__":
    main()
