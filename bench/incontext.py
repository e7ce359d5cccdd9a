"""In-context accuracy of a public language model on real test sets: zero-shot, real demonstrations, synthetic ones.

    python -m bench.incontext --data <folder> --lm <folder> [--context 96 | --words] [--tasks agnews trec mit_g mit_d]
        [--rows agnews:embed3@3=<jsonl> agnews:words@3-per-word=<jsonl> ...] [--shots 0 1 6] [--plain] [--out <json>]

The table of each task has zero-shot first, then real demonstrations, then the given rows in their order, each with the
epsilon that is written behind its `@`. At most 300 test items, `--draws` draws of the demonstrations, contextual
calibration; a number of demonstrations that the context does not hold is left out and said so. The deviation is that
between draws; `gain` is against zero-shot, paired, with its 95 % interval: where real demonstrations do not gain, the
model cannot judge rows, and the table says so. `--words` asks as `models.words` does, at the settings' own lengths.
`--plain` takes answers as they are, without calibration.

Feeds docs/lab/methods.md and docs/lab/papers.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--lm`
is `models/base` of a workspace: bench/README.md.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bench.real_data import lines, natural
from palimpsest.audit.statistics import Bootstrap
from palimpsest.files import write_json
from palimpsest.models.lm import load_lm
from palimpsest.models.settings import Named, words_of
from palimpsest.records.record import Record
from palimpsest_lab.audits.incontext import InContextAnswers, audit_in_context
from palimpsest_lab.audits.incontext_model import local_judge
from palimpsest_lab.audits.incontext_settings import InContext

ITEMS = {
    "agnews": ("{text}\nTopic:", 12), "trec": ("Question: {text}\nAsks for:", 8), "mit_g": ("{text}\nGenre:", 10),
    "mit_d": ("{text}\nDirector:", 10), "sst2": ("{text}\nSentiment:", 10), "dbpedia": ("{text}\nKind:", 12),
}  # fmt: skip
WORDS: dict[str, Named] = {"agnews": "news", "trec": "questions", "sst2": "reviews"}
SPANS = ("mit_g", "mit_d")
LINE = re.compile(r"(?P<task>\w+):(?P<name>[^@=]+)(@(?P<epsilon>[^=]+))?=(?P<path>.+)")


def main() -> None:
    """Print the table, a line per task, row and number of demonstrations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--context", type=int, help="positions that the model was trained on; none: its config's")
    parser.add_argument("--tasks", nargs="+", default=["agnews", "trec", "mit_g", "mit_d"], choices=ITEMS)
    parser.add_argument("--rows", nargs="*", default=[], help="task:name@epsilon=file of synthetic rows")
    parser.add_argument("--shots", type=int, nargs="+", default=[0, 1, 2, 4, 16, 64])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--words", action="store_true", help=f"ask in words; of {', '.join(WORDS)}")
    parser.add_argument("--plain", action="store_true", help="answers are not calibrated")
    parser.add_argument("--out", type=Path, help="where the whole documents go")
    args = parser.parse_args()
    model, tokenizer = load_lm(args.lm)
    model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    if args.context:
        model.config.max_position_embeddings = args.context
    print(
        "| task | rows | epsilon | shots | accuracy | deviation | gain over zero-shot |\n|---|---|---|---|---|---|---|"
    )
    documents = [document for task in args.tasks for document in told(args, task, model, tokenizer)]
    if args.out:
        write_json(args.out, documents)


def told(
    args: argparse.Namespace, task: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Iterator[dict[str, Any]]:
    """Print the lines of a task, and give the document of each of its rows."""
    real = judged(args, task, args.data / f"{task}_train.jsonl.gz", model, tokenizer)
    show(task, "zero-shot", "0", [real.to_json("real")["zero_shot"]])
    if not real.judges:
        print(f"| {task} | *this model cannot judge rows: real demonstrations do not beat zero-shot* | | | | | |")
    for name, epsilon, path in [("real", "inf", None), *given(args.rows, task)]:
        audit = real if path is None else judged(args, task, path, model, tokenizer)
        document = replace(audit, judges=real.judges).to_json(name)
        show(task, name, epsilon, document["shots"])
        yield {"task": task, "epsilon": epsilon, **document}


def given(rows: list[str], task: str) -> list[tuple[str, str, Path]]:
    """Name, epsilon and file of each of a task's rows.

    >>> given(["trec:a@3=a.jsonl", "agnews:b=b.jsonl", "trec:c=c@1.jsonl"], "trec")
    [('a', '3', PosixPath('a.jsonl')), ('c', '', PosixPath('c@1.jsonl'))]
    """
    found = [LINE.fullmatch(row) for row in rows]
    if unread := [row for row, match in zip(rows, found, strict=True) if match is None]:
        raise SystemExit(f"rows are task:name@epsilon=file, got {unread}")
    return [(one["name"], one["epsilon"] or "", Path(one["path"])) for one in found if one and one["task"] == task]


def judged(
    args: argparse.Namespace, task: str, path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> InContextAnswers:
    """The answers behind demonstrations from one file."""
    train, test = records(path, task), records(args.data / f"{task}_test.jsonl.gz", task)
    labels = () if task in SPANS else tuple(sorted({row.label or "" for row in test}))
    asks: dict[str, Any] = {"draws": args.draws, "items": args.items, "calibrate": not args.plain, **asked(args, task)}
    settings = InContext(shots=tuple(args.shots), **asks)
    judge = local_judge(model, tokenizer, labels, settings)
    return audit_in_context(judge, train, test, labels, settings, Bootstrap(2000, 7), 7)


def asked(args: argparse.Namespace, task: str) -> dict[str, Any]:
    """How a task's items are asked about: in words, or in few tokens, for a small model of a short context."""
    if args.words:
        return {"item": words_of(WORDS[task]).question}
    item, tokens = ITEMS[task]
    return {
        "batch": 64, "demonstration_tokens": tokens, "item_tokens": 24, "item": item, "answer": " {label}\n",
        "answer_tokens": 6,
    }  # fmt: skip


def records(path: Path, task: str) -> list[Record]:
    """The rows of a file; of those that were gathered the ones in natural case."""
    plain = [] if path.suffix == ".gz" else [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    part = "train" if "_train." in path.name else "other"
    rows = (row for row in plain or lines(path) if natural(task, part, row))
    return [Record(row["text"], row["label"].lower()) for row in rows]


def show(task: str, name: str, epsilon: str, shots: list[dict[str, Any]]) -> None:
    """The lines of one row."""
    for shot in shots:
        head = f"| {task} | {name} | {epsilon} | {shot['shots']} |"
        if not shot["fits"]:
            print(f"{head} needs {shot['needs']} positions or more rows | | |", flush=True)
            continue
        spread = "" if shot["deviation"] is None else f"{shot['deviation']:.3f}"
        gain = "" if shot["gain"] is None else interval(shot["gain"])
        print(f"{head} {interval(shot['accuracy'])} | {spread} | {gain} |", flush=True)


def interval(value: dict[str, float]) -> str:
    return f"{value['value']:.3f} ({value['low']:.3f}-{value['high']:.3f})"


if __name__ == "__main__":
    main()
