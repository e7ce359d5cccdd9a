"""Public text that a base model wrote, beside real public text and beside `public_lm`: accuracy on TREC and abstracts.

    python -m bench.written_public trec --data <folder> --lm <folder> --workspace <new folder> [--rows select3 evolve3]

`--data` is as `bench.real_data` makes it, with `dbpedia_train.jsonl.gz` and `dbpedia_test.jsonl.gz` beside it for the
abstracts. Both workspaces have the same 2,000 private rows and settings. One lets `--lm` write `--texts` texts from
labels and their descriptions; the other has as many real ones: sentences of film reviews and encyclopedia openings for
TREC, encyclopedia openings for the abstracts. Run again, and only what is missing is done.
"""

import argparse
import os
from itertools import islice
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench.long_reviews import EVALUATORS, palimpsest
from bench.real_data import TASKS, lines, public_sentences, write
from palimpsest.files import read_json
from palimpsest.params.text import to_yaml

ABSTRACTS = {
    "Company": "A company.", "Film": "A film.", "Athlete": "Somebody who does a sport.", "Album": "A music album.",
    "MeanOfTransportation": "A ship, an aircraft, a car or another vehicle.", "Building": "A building.",
    "NaturalPlace": "A mountain, a river, a lake or another natural place.", "Plant": "A plant.",
    "EducationalInstitution": "A school or a university.", "Village": "A village.", "Animal": "An animal.",
    "Artist": "A musician, a writer or another artist.", "OfficeHolder": "A politician or another holder of an office.",
}  # fmt: skip
SETS: dict[str, dict[str, Any]] = {
    "trec": TASKS["trec"] | {"words": "questions", "about": "Questions that people ask an encyclopedia."},
    "dbpedia": {
        "labels": ABSTRACTS, "public": ("public_wiki",), "characters": 400, "words": "texts",
        "about": "The first sentences of articles of an encyclopedia.",
    },
}  # fmt: skip
PRIVATE, TESTED = 2_000, 500


def main() -> None:
    """Make both workspaces, run what is asked for, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=SETS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--rows", nargs="+", choices=("select3", "predict3", "evolve3"), default=["select3"])
    args = parser.parse_args()
    args.workspace.mkdir(parents=True, exist_ok=True)
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{args.workspace.resolve()}/ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{args.workspace.resolve()}/witnesses"
    for origin in ("written", "real"):
        if not (args.workspace / origin / "params.yaml").is_file():
            make(args, origin)
    for name in args.rows:
        for origin in ("written", "real"):
            palimpsest("run", f"downstream_eval@{name}", "--yes", "-w", str(args.workspace / origin))
        show(args.workspace)


def make(args: argparse.Namespace, origin: str) -> None:
    """A workspace whose public text is written, or real."""
    task, files = SETS[args.task], args.workspace / "files"
    files.mkdir(exist_ok=True)
    for part, most in (("train", PRIVATE), ("test", TESTED)):
        write(files / f"{part}.jsonl", islice(lines(args.data / f"{args.task}_{part}.jsonl.gz"), most))
    sentences = list(public_sentences(args.data, task))
    write(files / "public.jsonl", ({"text": text} for text in sentences[:: len(sentences) // args.texts][: args.texts]))
    (files / "labels.yaml").write_text(to_yaml(task["labels"], folded=False), encoding="utf-8")
    given = ["--about", task["about"]] if origin == "written" else ["--public", str(files / "public.jsonl")]
    palimpsest("init", str(files / "train.jsonl"), "--text", "text", "--label", "label", "--labels-file",
               str(files / "labels.yaml"), "--test", str(files / "test.jsonl"), "--rows-about", str(PRIVATE), "--asset",
               f"{args.task}_{origin}", "--lm", str(args.lm.resolve()), "--words", task["words"], "--budget", "20",
               "--max-length", str(task["characters"]), "-w", str(args.workspace / origin), *given)  # fmt: skip
    path, rows = args.workspace / origin / "params.yaml", int(0.4 * args.texts)  # as many as `select` may keep
    told = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    if origin == "written":
        told["dataset"]["written"]["texts"] = args.texts
    told |= {"public_only": {"rows": rows}, "utility": {"evaluators": list(EVALUATORS)}, "runs": {"audit": []}}
    told["variants"] = {
        "select3": {"method": "select", "epsilon": 3, "rows": rows},
        "predict3": {"method": "predict", "epsilon": 3, "from": "base"},
        "evolve3": {"method": "evolve", "epsilon": 3, "from": "base", "rows": rows, "rounds": 2, "expand": 2},
    }
    path.write_text(to_yaml(told), encoding="utf-8")


def show(workspace: Path) -> None:
    """The table so far: rows and accuracy of each, with written and with real public text."""
    print(f"| row | public text | rows | {' | '.join(EVALUATORS)} |\n|---|---|---|{'---|' * len(EVALUATORS)}")
    for name in ("real", "public_only", "public_lm", "select3", "predict3", "evolve3"):
        for origin in ("written", "real"):
            path = workspace / origin / "reports" / "metrics" / name / "utility.json"
            if path.is_file():
                told = read_json(path)
                found = (f"{told['evaluators'][one]['accuracy']:.3f}" for one in EVALUATORS)
                print(f"| `{name}` | {origin} | {told['rows']} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
