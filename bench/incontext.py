"""In-context accuracy of a public language model on real test sets: zero-shot, real demonstrations, synthetic ones.

    python -m bench.incontext --data <folder> --lm <folder> [--context 96] [--tasks agnews trec mit_g mit_d]
        [--rows agnews:predict3=<jsonl> ...]

At most 300 test items, `--draws` draws of the demonstrations, contextual calibration; a number of demonstrations that
the context does not hold is left out and said so. `gain` is against zero-shot, paired, with its 95 % interval: where
real demonstrations do not gain, the model cannot judge rows.
"""

import argparse
import json
from pathlib import Path

from bench.reproduction import lines
from palimpsest.audit.incontext import InContextAudit, audit_in_context
from palimpsest.audit.statistics import Bootstrap
from palimpsest.models.lm import load_lm
from palimpsest.params.incontext import InContext
from palimpsest.records.record import Record

ITEMS = {
    "agnews": ("{text}\nTopic:", 12), "trec": ("Question: {text}\nAsks for:", 8), "mit_g": ("{text}\nGenre:", 10),
    "mit_d": ("{text}\nDirector:", 10), "sst2": ("{text}\nSentiment:", 10),
}  # fmt: skip
SPANS = ("mit_g", "mit_d")


def main() -> None:
    """Print the table, a line per task, row and number of demonstrations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--context", type=int, help="positions that the model was trained on; none: its config's")
    parser.add_argument("--tasks", nargs="+", default=["agnews", "trec", "mit_g", "mit_d"], choices=ITEMS)
    parser.add_argument("--rows", nargs="*", default=[], help="task:name=file of synthetic rows")
    parser.add_argument("--shots", type=int, nargs="+", default=[0, 1, 2, 4, 16, 64])
    parser.add_argument("--draws", type=int, default=5)
    args = parser.parse_args()
    print("| task | rows | shots | accuracy | gain over zero-shot | can judge |\n|---|---|---|---|---|---|")
    for task in args.tasks:
        sets = {"real": args.data / f"{task}_train.jsonl.gz"}
        given = (word.partition("=")[::2] for word in args.rows if word.startswith(f"{task}:"))
        sets |= {name.partition(":")[2]: Path(path) for name, path in given}
        for name, path in sets.items():
            show(task, name, judged(args, task, path))


def judged(args: argparse.Namespace, task: str, path: Path) -> InContextAudit:
    """The answers behind demonstrations from one file."""
    model, tokenizer = load_lm(args.lm)
    if args.context:
        model.config.max_position_embeddings = args.context
    train, test = (records(file) for file in (path, args.data / f"{task}_test.jsonl.gz"))
    labels = () if task in SPANS else tuple(sorted({row.label or "" for row in test}))
    item, tokens = ITEMS[task]
    settings = InContext(
        shots=tuple(args.shots), draws=args.draws, items=300, batch=64, demonstration_tokens=tokens, item_tokens=24,
        instruction="", item=item, answer=" {label}\n", verbalisers=None, content_free=("N/A", "", "[MASK]"),
        answer_tokens=6, first_tokens=100,
    )  # fmt: skip
    return audit_in_context(model, tokenizer, train, test, labels, settings, Bootstrap(2000, 0.95, 7), 7)


def records(path: Path) -> list[Record]:
    plain = [] if path.suffix == ".gz" else [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Record(row["text"], row["label"].lower()) for row in plain or lines(path)]


def show(task: str, name: str, audit: InContextAudit) -> None:
    """The lines of one row."""
    body = audit.to_json(name, audit.helps)
    zero = body["zero_shot"]
    print(f"| {task} | {name} | 0 | {interval(zero['accuracy'])} | | {'yes' if audit.helps else 'no'} |")
    for shot in body["shots"]:
        if not shot["fits"]:
            print(f"| {task} | {name} | {shot['shots']} | needs {shot['needs']} positions | | |")
        else:
            print(f"| {task} | {name} | {shot['shots']} | {interval(shot['accuracy'])} | {interval(shot['gain'])} | |")


def interval(value: dict[str, float]) -> str:
    return f"{value['value']:.3f} ({value['low']:.3f}-{value['high']:.3f})"


if __name__ == "__main__":
    main()
