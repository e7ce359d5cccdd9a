"""Utility on long texts: classifiers on what each method makes of film reviews of about 180 or 230 words.

    python -m bench.long_reviews 180 --data <folder> --lm <folder> --workspace <new folder> [--rows select3 predict3]

`--data`: `python -m bench.real_data --from FILES --data DATA --names imdb`, and `public_reviews.jsonl.gz` beside it.
180: reviews of 180 words or more, cut at the end of a sentence. 230: reviews as they are, 233 words on average. 2,000
private, 1,000 test and 2,000 public rows. Settings are those of `palimpsest init` but for rows, rounds and epochs, and
for limits within 256 positions; `whole3` is `evolve` from whole public reviews. Run again, and only what is missing is
done.

Feeds docs/results/real_data.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from statistics import fmean

from ruamel.yaml import YAML

from bench.real_data import SST2, lines, write
from palimpsest.files import read_json
from palimpsest.params.text import to_yaml

PARTS = {"private": ("imdb_train", 2_000), "test": ("imdb_test", 1_000), "public": ("public_reviews", 2_000)}
ENDS = re.compile(r"[.!?][\"')]*(?=\s)")
WORDS, ROWS, CHARACTERS = 180, 400, 12_000  # the last: of the longest review
TOKENS = 240  # with a prompt, what 256 positions hold
VARIANTS = {
    "select3": {"method": "select", "epsilon": 3, "rows": ROWS},
    "predict3": {"method": "predict", "epsilon": 3, "from": "base", "max_tokens": 180, "tokens": 180},
    "evolve3": {"method": "evolve", "epsilon": 3, "from": "base", "rows": 200, "rounds": 2},
    "whole3": {"method": "evolve", "epsilon": 3, "from": "whole", "rows": 200, "rounds": 2},
    "dp3": {"method": "dp_lm", "rows": 200, "max_tokens": TOKENS},
}
MORE = {
    "authors": {
        "base": {"kind": "base", "max_tokens": TOKENS},
        "whole": {"kind": "base", "start": "whole", "max_tokens": TOKENS},
    },
    "lms": {"dp3": {"epsilon": 3, "epochs": 3, "max_tokens": TOKENS}},
    "public_only": {"rows": ROWS},
    "public_lm": {"max_tokens": TOKENS},
}
EVALUATORS = ("tfidf_lr", "minilm_lr")


def main() -> None:
    """Make the workspace, run what is asked for, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", type=int, choices=(WORDS, 230))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", default="embedded")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args = parser.parse_args()
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{args.workspace.resolve()}.ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{args.workspace.resolve()}.witnesses"
    if not (args.workspace / "params.yaml").is_file():
        make(args)
    for target in ("baseline_eval", *(f"downstream_eval@{name}" for name in args.rows)):
        palimpsest("run", target, "--yes", "-w", str(args.workspace))
        show(args.workspace)


def make(args: argparse.Namespace) -> None:
    """A workspace with the variants of this bench."""
    files = args.workspace.with_suffix(".files")
    files.mkdir(parents=True)
    for part, (name, count) in PARTS.items():
        rows = (row for row in lines(args.data / f"{name}.jsonl.gz") if len(row["text"].split()) >= WORDS)
        found = lines(args.data / f"{name}.jsonl.gz") if args.words > WORDS else rows
        write(files / f"{part}.jsonl", islice(({**row, "text": cut(row["text"], args.words)} for row in found), count))
    (files / "labels.yaml").write_text(to_yaml(SST2, folded=False), encoding="utf-8")
    palimpsest("init", str(files / "private.jsonl"), "--text", "text", "--label", "label", "--labels-file",
               str(files / "labels.yaml"), "--public", str(files / "public.jsonl"), "--test", str(files / "test.jsonl"),
               "--rows-about", "2000", "--asset", f"reviews{args.words}", "--lm", args.lm, "--budget", "20",
               "--max-length", str(CHARACTERS), "-w", str(args.workspace))  # fmt: skip
    path = args.workspace / "params.yaml"
    told = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    path.write_text(to_yaml(told | MORE | {"variants": VARIANTS}), encoding="utf-8")


def cut(text: str, words: int) -> str:
    """The whole sentences among the first words; texts of 230 words on average stay whole."""
    if words > WORDS:
        return text
    head = " ".join(text.split()[:words]) + " "
    ends = [found.end() for found in ENDS.finditer(head)]
    return head[: ends[-1] if ends else None].strip()


def palimpsest(*words: str) -> None:
    """Run a command as a user would."""
    subprocess.run([sys.executable, "-m", "palimpsest", *words], check=True)


def show(workspace: Path) -> None:
    """The table so far: rows, their words on average, and accuracy of each."""
    print(f"| row | rows | words | {' | '.join(EVALUATORS)} |\n|---|---|---|{'---|' * len(EVALUATORS)}")
    for name in ("real", "public_only", "public_lm", *VARIANTS):
        path = workspace / "reports" / "metrics" / name / "utility.json"
        if path.is_file():
            told = read_json(path)
            found = (f"{told['evaluators'][one]['accuracy']:.3f}" for one in EVALUATORS)
            print(f"| `{name}` | {told['rows']} | {words_of(workspace, name)} | {' | '.join(found)} |", flush=True)


def words_of(workspace: Path, name: str) -> str:
    """Words of a row on average; nothing for real rows, which are no file of their own."""
    path = workspace / "data" / "synthetic" / f"{name}.jsonl"
    if not path.is_file():
        return ""
    rows = path.read_text(encoding="utf-8").splitlines()
    return f"{fmean(len(json.loads(row)['text'].split()) for row in rows):.0f}"


if __name__ == "__main__":
    main()
