"""The real data sets that benches read, as they lie in a folder: `NAME_train.jsonl.gz`, `public_NAME.jsonl.gz`.

    python -m bench.real_data --from <published files> --data <new folder> [--names sst2 trec agnews]

makes that folder by `palimpsest dataset`. Public text is yours to put there, a JSON object with a "text" a line:
`public_reviews.jsonl.gz` (film reviews), `public_news.jsonl.gz` (agency reports), `public_wiki.jsonl.gz` (openings of
encyclopedia articles).
"""

import gzip
import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.settings_file import read_settings
from palimpsest.params.text import to_yaml

SST2 = {"negative": "A negative film review.", "positive": "A positive film review."}
NEWS = {
    "world": "News about politics, governments, war and international affairs.",
    "sports": "News about sports, games, players and teams.",
    "business": "News about business, markets, companies and the economy.",
    "sci/tech": "News about science, technology, computers and the internet.",
}
QUESTIONS = {
    "abbreviation": "What an abbreviation stands for.",
    "description": "A definition, a reason or a way of doing something.",
    "entity": "A thing: an animal, a work, a colour, a food, a sport, a word.",
    "human": "A person or a group of people.",
    "location": "A place: a city, a country, a mountain.",
    "number": "A number: a count, a date, a distance, a price.",
}
TASKS: dict[str, dict[str, Any]] = {
    "sst2": {"labels": SST2, "n": 6920, "public": ("public_reviews",), "tokens": 40, "characters": 240},
    "agnews": {"labels": NEWS, "n": 8788, "public": ("public_news", "public_wiki"), "tokens": 56, "characters": 400},
    "trec": {
        "labels": QUESTIONS,
        "n": 5452,
        "public": ("public_reviews", "public_wiki"),
        "tokens": 24,
        "characters": 160,
    },
}
PUBLIC_SENTENCES = 12_000


def main() -> None:
    """Make the folder."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="published", type=Path, required=True, help="published files, a folder of them")
    parser.add_argument("--data", type=Path, required=True, help="where to write")
    parser.add_argument("--names", nargs="+", default=["sst2", "trec", "agnews"])
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--from", str(args.published), "--dir", folder, "--force"]
            subprocess.run([sys.executable, "-m", "palimpsest.cli.main", "dataset", name, *options], check=True)
            for part, file in (("train", "private"), ("test", "test")):
                rows = Path(folder, f"{file}.jsonl").read_bytes()
                (args.data / f"{name}_{part}.jsonl.gz").write_bytes(gzip.compress(rows))


def fresh(workspace: Path, args: Namespace, **more: Any) -> dict[str, Any]:
    """Files cut to the task's form and `palimpsest init` on them, with more options; params.yaml as it is then."""
    task, files = TASKS[args.task], workspace.with_suffix(".files")
    files.mkdir(parents=True)
    for part in ("train", "test"):
        rows = [row for row in lines(args.data / f"{args.task}_{part}.jsonl.gz") if natural(args.task, part, row)]
        write(files / f"{part}.jsonl", ({"text": row["text"], "label": row["label"].lower()} for row in rows))
    write(files / "public.jsonl", ({"text": text} for text in public_sentences(args.data, task)))
    (files / "labels.yaml").write_text(to_yaml(task["labels"], folded=False), encoding="utf-8")
    options = {
        "text": "text", "label": "label", "labels-file": files / "labels.yaml", "public": files / "public.jsonl",
        "test": files / "test.jsonl", "n-public": task["n"], "asset": args.task, "lm": args.lm.resolve(),
        "max-length": task["characters"], "budget": 100, "method": "dp_lm", "workspace": workspace, **more,
    }  # fmt: skip
    words = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "palimpsest.cli.main", "init", str(files / "train.jsonl"), *words]
    subprocess.run(command, check=True)
    return read_settings(workspace)


def natural(task: str, part: str, row: dict[str, str]) -> bool:
    """AG News' training rows come from several copies; only those with natural case are used."""
    return task != "agnews" or part != "train" or row["text"] != row["text"].lower()


def public_sentences(data: Path, task: dict[str, Any]) -> Iterator[str]:
    """The first sentences of each public text, evenly over the files, of a length like the task's."""
    each = PUBLIC_SENTENCES // len(task["public"])
    for name in task["public"]:
        texts = (row["text"] for row in lines(data / f"{name}.jsonl.gz"))
        found = (piece for text in texts for piece in pieces(text, task["characters"]))
        yield from (piece for piece, _ in zip(found, range(each), strict=False))


def pieces(text: str, characters: int) -> Iterator[str]:
    """Reviews fall into sentences; news and articles keep their opening."""
    if characters > 300:
        yield text[:characters]
        return
    for sentence in text.replace("!", ".").replace("?", ".").split(". "):
        if 20 <= len(sentence) <= characters:
            yield sentence.strip()


def lines(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a gzipped JSON-lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, rows: Iterator[dict[str, str]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
