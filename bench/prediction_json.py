"""Private prediction of JSON records: the shares that parse and conform, with and without a sparse vector.

    python -m bench.prediction_json --data <folder> --workspace <new folder> [--lm <folder> | --six] [--batches 4]
        [--characters 350] [--rows fixed vector_9 ...]

Films; every second record of the file is private, the others are public text. By default they have four fields (title,
year, cast, genres), and the embedded language model is trained on the public ones, so it knows what such a record looks
like. With `--lm` all six fields stay, and that model, as it is, is asked in words behind a form, which holds dots or,
with `--examples`, an invented film. With `--six` they stay too, and a smaller embedded model of a longer context
reads a form in front of a record. Fixed clipping at s = 127, with the published clip and temperature on the
likeliest 1,024 public tokens, writes with and without a sparse vector; difference clipping at s = 32. Each has one
epsilon under a charge of its own. The table is printed from the workspace's metrics, with 95 % intervals; run
again, and only what is missing is done.

Feeds docs/lab/methods.md and docs/lab/papers.md. `--data`: `jq -c '.[]' movies.json |
gzip > DATA/wikimovies_json.jsonl.gz`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.real_data import lines, write
from bench.settings_file import read_settings, write_settings
from palimpsest.files import read_json

TOLD = "The Long Bridge is a 1999 American drama film directed by Anna Miller, about two brothers who come home."
SHOWN: dict[str, Any] = {
    "title": "The Long Bridge", "year": 1999, "cast": ["John Hart", "Mary Lane"], "genres": ["Drama"],
    "href": "The_Long_Bridge", "extract": TOLD,
}  # fmt: skip
FORM = '{"title": "title", "year": 2000, "cast": ["name"], "genres": ["genre"], "href": "page", "extract": "text"}'
FEW, CHARACTERS, TOKENS = 4, (300, 600), (110, 220)  # with four fields, with all six
SMALL = {"layers": 3, "width": 192, "vocabulary": 4096, "context": 256, "epochs": 8}
SMALLER = {"layers": 2, "width": 96, "vocabulary": 2048, "context": 512, "epochs": 6}
VECTORS = {
    "fixed": None,
    "vector_3": {"threshold": 0.3, "noise": 0.1, "temperature": 1.5},
    "vector_5": {"threshold": 0.5, "noise": 0.2, "temperature": 1.5},
    "vector_7": {"threshold": 0.7, "noise": 0.2, "temperature": 1.5},
    "vector_9": {"threshold": 0.9, "noise": 0.2, "temperature": 1.5},
    "vector_15": {"threshold": 1.5, "noise": 0.2, "temperature": 1.5},
}
NAMES = (*VECTORS, "difference")


def main() -> None:
    """Make the workspace, run it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    named = parser.add_mutually_exclusive_group()
    named.add_argument("--lm", type=Path, help="a pretrained model, which is left as it is")
    named.add_argument("--six", action="store_true", help="all six fields, with the embedded model")
    parser.add_argument("--examples", action="store_true", help="the schema has an example of each field")
    parser.add_argument("--characters", type=int, help="films of fewer characters alone; none: 300, of six fields 600")
    parser.add_argument("--rows", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--batches", type=int, help="write from so many batches alone; none: from all")
    parser.add_argument("--epsilon", type=float, default=3.0)
    args = parser.parse_args()
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{args.workspace.resolve()}.ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{args.workspace.resolve()}.witnesses"
    if not (args.workspace / "params.yaml").is_file():
        make(args.workspace, args)
    targets = [f"structure_audit@{name}" for name in args.rows]
    command = [sys.executable, "-m", "palimpsest.cli.main", "run", "--yes", *targets]
    subprocess.run(command, cwd=args.workspace, check=True)
    show(args.workspace, args.rows)


def make(workspace: Path, args: argparse.Namespace) -> None:
    """The two halves, `palimpsest init`, and this bench's variants in params.yaml."""
    files = workspace.with_suffix(".files")
    files.mkdir(parents=True)
    six = bool(args.lm or args.six)
    fields, most = list(SHOWN)[: None if six else FEW], args.characters or CHARACTERS[six]
    films = [{name: row[name] for name in fields} for row in lines(args.data / "wikimovies_json.jsonl.gz")]
    films = [film for film in films if len(json.dumps(film)) < most]
    properties = {name: property_of(SHOWN[name], args.examples) for name in fields}
    schema = {"type": "object", "properties": properties, "required": fields, "additionalProperties": False}
    write(files / "private.jsonl", films[::2])
    write(files / "public.jsonl", films[1::2])
    (files / "schema.json").write_text(json.dumps(schema))
    options = {
        "text": "*", "task": "json", "json-schema": files / "schema.json", "public": files / "public.jsonl",
        "n-public": len(films) // 2 // 100 * 100, "asset": "films", "max-length": most, "budget": 100,
        "epsilon": args.epsilon, "method": "predict", "workspace": workspace,
        **({"lm": args.lm.resolve()} if args.lm else {}),
    }  # fmt: skip
    words = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "palimpsest.cli.main", "init", str(files / "private.jsonl"), *words]
    subprocess.run(command, check=True)
    write_settings(workspace, settings(read_settings(workspace), args))


def property_of(shown: str | int | list[str], as_example: bool) -> dict[str, Any]:
    """The schema of a field by its value in the invented film, which is its example."""
    words = {"type": "array", "items": {"type": "string"}}
    kind = words if isinstance(shown, list) else {"type": "string" if isinstance(shown, str) else "integer"}
    return kind | {"examples": [shown]} if as_example else kind


def settings(params: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """params.yaml with a variant for each way of writing; without `--lm`, a small model of a context for two films."""
    named, most = bool(args.lm), TOKENS[bool(args.lm or args.six)]
    if not named:
        params["models"]["embedded_lm"] |= SMALLER if args.six else SMALL
        params["taught"]["similar"] |= {"epochs": 1, "max_tokens": most, "neighbours": 2 if args.six else 1}
    (template,) = [row for row in params["variants"].values() if row["method"] == "predict"]
    shared = template["predict"] | {"max_tokens": most, "typical_tokens": most // 3 * 2, "label_counts": "prior"}
    shared |= {"batches": args.batches, "prompt": shared["prompt"] | {"text_tokens": most} | formed(args.six)}
    fixed = {"clipping": "fixed", "clip": 10.0, "tokens": None, "temperature": 2.25, "top_k": 1024, "batch_size": 127}
    params["variants"] = {
        name: template | {"predict": shared | fixed | {"sparse_vector": vector}} for name, vector in VECTORS.items()
    }
    params["variants"]["difference"] = template | {"predict": shared | {"tokens": most * 3 // 2, "batch_size": 32}}
    names = list(params["variants"])
    params["run"] |= {"private_predict": dict.fromkeys(names, "base" if named else "taught/similar")}
    params["run"] |= {"evaluate": names, "audit": []}
    params["release"]["variants"] = []
    params["lms"] = {}
    return params


def formed(wanted: bool) -> dict[str, str]:
    """Prompts in which the form of the schema stands before a record, and alone, as one of two taught neighbours."""
    form = FORM.replace("{", "{{").replace("}", "}}") + "{separator}"
    return {"private": form + "{text}{separator}", "public": form} if wanted else {}


def show(workspace: Path, names: list[str]) -> None:
    """The table."""
    print("| row | private tokens of a batch | tokens written | cost budget | records | parse | conform |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        metrics = workspace / "reports" / "metrics" / name
        written, structure = read_json(metrics / "generation.json"), read_json(metrics / "structure.json")
        plan = read_json(workspace / "reports" / "receipts" / f"{name}.json")["plan"]
        rates = [structure[key] for key in ("parsed", "valid")]
        shares = [f"{rate['rate']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]" for rate in rates]
        cells = [name, plan["tokens"], written["tokens"], f"{written['private_share']:.3f}", written["rows"], *shares]
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
