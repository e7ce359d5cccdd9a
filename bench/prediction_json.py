"""Private prediction of JSON records: the shares that parse and conform, with and without a sparse vector.

    python -m bench.prediction_json --data <folder> --workspace <new folder>

Films with four fields (title, year, cast, genres); every second record of the file is private, the others are the
public text on which the embedded language model is trained, so it knows what such a record looks like. Fixed clipping
at s = 127 writes with and without a sparse vector, difference clipping at s = 32, each at one epsilon under a charge of
its own. The table is printed from the workspace's metrics; run again, and only what is missing is done.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.reproduction import lines, write
from bench.settings_file import read_settings, write_settings
from palimpsest.files import read_json

FIELDS = ("title", "year", "cast", "genres")
WORDS = {"type": "array", "items": {"type": "string"}}
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}, "cast": WORDS, "genres": WORDS},
    "required": list(FIELDS),
    "additionalProperties": False,
}
VECTORS = {
    "fixed": None,
    "vector_3": {"threshold": 0.3, "noise": 0.1, "temperature": 1.5},
    "vector_5": {"threshold": 0.5, "noise": 0.2, "temperature": 1.5},
    "vector_7": {"threshold": 0.7, "noise": 0.2, "temperature": 1.5},
}


def main() -> None:
    """Make the workspace, run it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, default=3.0)
    args = parser.parse_args()
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{args.workspace.resolve()}.ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{args.workspace.resolve()}.witnesses"
    if not (args.workspace / "params.yaml").is_file():
        make(args.workspace, args)
    names = [*VECTORS, "difference"]
    command = [sys.executable, "-m", "dvc", "repro", *(f"structure_audit@{name}" for name in names)]
    subprocess.run(command, cwd=args.workspace, check=True)
    show(args.workspace, names)


def make(workspace: Path, args: argparse.Namespace) -> None:
    """The two halves, `palimpsest init`, and this bench's variants in params.yaml."""
    files = workspace.with_suffix(".files")
    files.mkdir(parents=True)
    films = [{name: row[name] for name in FIELDS} for row in lines(args.data / "wikimovies_json.jsonl.gz")]
    films = [film for film in films if len(json.dumps(film)) < 300]
    write(files / "private.jsonl", films[::2])
    write(files / "public.jsonl", films[1::2])
    (files / "schema.json").write_text(json.dumps(SCHEMA))
    options = {
        "text": "*", "task": "json", "json-schema": files / "schema.json", "public": files / "public.jsonl",
        "n-public": len(films) // 2 // 100 * 100, "asset": "films", "max-length": 300, "budget": 100,
        "epsilon": args.epsilon, "method": "predict", "workspace": workspace,
    }  # fmt: skip
    words = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "palimpsest.cli.main", "init", str(files / "private.jsonl"), *words]
    subprocess.run(command, check=True)
    write_settings(workspace, settings(read_settings(workspace)))


def settings(params: dict[str, Any]) -> dict[str, Any]:
    """params.yaml with a small model of a context for two films, and a variant for each way of writing."""
    params["models"]["embedded_lm"] |= {"layers": 3, "width": 192, "vocabulary": 4096, "context": 256, "epochs": 8}
    params["taught"]["similar"] |= {"epochs": 1, "max_tokens": 110, "neighbours": 1}
    (template,) = [row for row in params["variants"].values() if row["method"] == "predict"]
    shared = template["predict"] | {"max_tokens": 110, "typical_tokens": 70, "label_counts": "prior"}
    shared["prompt"] = shared["prompt"] | {"text_tokens": 110}
    fixed = {"clipping": "fixed", "clip": 10.0, "tokens": None, "temperature": 2.0, "top_k": 0, "batch_size": 127}
    params["variants"] = {
        name: template | {"predict": shared | fixed | {"sparse_vector": vector}} for name, vector in VECTORS.items()
    }
    params["variants"]["difference"] = template | {"predict": shared | {"tokens": 150, "batch_size": 32}}
    names = list(params["variants"])
    params["run"] |= {"private_predict": dict.fromkeys(names, "taught/similar"), "evaluate": names}
    params["run"] |= {"audit": [], "twins": []}
    params["release"]["variants"] = []
    params["lms"] = {}
    return params


def show(workspace: Path, names: list[str]) -> None:
    """The table."""
    print("| row | private tokens of a batch | tokens written | cost budget | records | parse | conform |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        metrics = workspace / "reports" / "metrics" / name
        written, structure = read_json(metrics / "generation.json"), read_json(metrics / "structure.json")
        plan = read_json(workspace / "reports" / "receipts" / f"{name}.json")["plan"]
        shares = [f"{structure[key]['rate']:.3f}" for key in ("parsed", "valid")]
        cells = [name, plan["tokens"], written["tokens"], f"{written['private_share']:.3f}", written["rows"], *shares]
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
