"""What every method writes with a real language model, on SST-2, AG News and TREC, beside what costs nothing.

    python -m bench.reproduction --data <folder> --lm <folder> --task sst2 --epsilon 3 --workspace <new folder>

One training per language model: `plain`, `filter` and `pplm` share one, `multitask`, `fudge` and `fudge_state` the
other. They have one cell for each sampling seed; `predict`, `predict_plain` (without class means), `evolve` and `embed`
are drawn when they are charged, and have one. Each cell is scored by two classifiers of three seeds, and by an encoder
that is fine-tuned where `--classifier` names one, on its first rows of each size. `real`, `public_only` and `select`
stand beside. A named model is prompted in words. The budget is the workspace's own. Finished cells are kept in
`<workspace>/results.jsonl`; run again, and only what is missing is done. Slow: minutes to hours for a cell.
"""

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from bench.settings_file import read_settings

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
WORDS = {"sst2": "reviews", "agnews": "news", "trec": "questions"}  # what prompts in words call a text
PUBLIC_SENTENCES = 12_000
LM_SHARE = 0.87  # of epsilon, for the language model alone where a discriminator of its own follows
DRAWN = {
    "plain": "lm",
    "filter": "judge",
    "pplm": "head",
    "multitask": "multi",
    "fudge": "multi",
    "fudge_state": "multi",
}
STAGED = {
    "predict": "private_predict", "predict_plain": "private_predict", "evolve": "private_evolve", "embed": "eda_evolve",
    "public_lm": "public_lm",
}  # fmt: skip
FREE = ("real", "public_only")
STEERED_ROWS = 500  # of rows that gradients steer, token by token


def main() -> None:
    """Make the workspace, fit what is asked for, draw, score, print."""
    args = arguments()
    workspace: Path = args.workspace
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{workspace.resolve()}.ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{workspace.resolve()}.witnesses"
    if not (workspace / "params.yaml").is_file():
        fresh(workspace, args)
        write_yaml(workspace / "params.yaml", settings(workspace, args))
    with chdir(workspace):
        repro("public_only")
        for row in (*(() if args.no_baselines else (*FREE, "select")), *args.rows):
            made_of(row)
            for seed in range(args.seeds if row in DRAWN or row == "select" else 1):
                cell(args, row, seed)
        show()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--classifier", type=Path, help="an encoder to fine-tune, as a third evaluator")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--epsilon", type=float, default=3.0, help="inf for the reference without noise")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", default=list(DRAWN), choices=[*DRAWN, *STAGED])
    parser.add_argument("--no-baselines", action="store_true", help="leave out real, public_only and select")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000], help="how many of a row's texts are scored")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--best-of", type=int, default=4, help="of the row filter")
    return parser.parse_args()


def repro(*stages: str) -> None:
    """Run stages, and what they need, by the product's own command."""
    subprocess.run([sys.executable, "-m", "palimpsest.cli.main", "run", *stages, "--yes"], check=True)


def made_of(row: str) -> None:
    """Fit the models behind a row that is drawn here, or make one that a stage writes."""
    if row in STAGED:
        repro(STAGED[row] if row == "public_lm" else f"{STAGED[row]}@{row}")
    elif row in DRAWN:
        repro(f"{'dp_train' if DRAWN[row] in ('lm', 'multi') else 'discriminator'}@{DRAWN[row]}")


def fresh(workspace: Path, args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Files cut to the task's form and `palimpsest init` on them, with more options; params.yaml as it is then."""
    task, files = TASKS[args.task], workspace.with_suffix(".files")
    files.mkdir(parents=True)
    for part in ("train", "test"):
        rows = [row for row in lines(args.data / f"{args.task}_{part}.jsonl.gz") if natural(args.task, part, row)]
        write(files / f"{part}.jsonl", ({"text": row["text"], "label": row["label"].lower()} for row in rows))
    write(files / "public.jsonl", ({"text": text} for text in public_sentences(args.data, task)))
    write_yaml(files / "labels.yaml", task["labels"])
    options = {
        "text": "text", "label": "label", "labels-file": files / "labels.yaml", "public": files / "public.jsonl",
        "test": files / "test.jsonl", "n-public": task["n"], "asset": args.task, "lm": args.lm.resolve(),
        "max-length": task["characters"], "budget": 100, "method": "dp_lm", "workspace": workspace, **more,
    }  # fmt: skip
    words = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "palimpsest.cli.main", "init", str(files / "train.jsonl"), *words]
    subprocess.run(command, check=True)
    return read_settings(workspace)


def settings(workspace: Path, args: argparse.Namespace) -> dict[str, Any]:
    """params.yaml of `init` with two language models, two discriminators behind the first, and every row."""
    params, task = plain_yaml(workspace / "params.yaml"), TASKS[args.task]
    purpose = {"purpose": "reference"} if args.epsilon == float("inf") else {}
    (template,) = params["lms"].values()
    train = template | purpose | {"epochs": args.epochs, "max_tokens": task["tokens"], "precision": args.precision}
    train |= {"checkpoint_steps": 5}  # a step of a large model takes minutes here
    both = purpose | {"from": "lm", "epsilon": args.epsilon}
    params["lms"] = {
        "lm": train | {"epsilon": args.epsilon * LM_SHARE, "discriminator_weight": 0.0},
        "multi": train | {"epsilon": args.epsilon},
    }
    params["discriminators"] = {"judge": both, "head": both | {"reads": "both", "learning_rate": 0.02}}
    params["models"] |= {"words": WORDS[args.task]} if "words" in params["models"] else {}
    params["models"] |= {"classifier": str(args.classifier.resolve())} if args.classifier else {}
    params["authors"] = {"base": {"kind": "base", "max_tokens": task["tokens"]}}
    params["decoders"] = {"small": {"max_tokens": task["tokens"]}}
    params["variants"] = dict(variants(purpose | {"epsilon": args.epsilon}, task, args))
    params["public_only"] = {"rows": max(args.sizes)}
    params["compute"] = {"precision": args.precision}
    evaluators = ["minilm_lr", "tfidf_lr", *(["finetuned"] if args.classifier else [])]
    return params | {"utility": {"evaluators": evaluators}}


def variants(bought: dict[str, Any], task: dict[str, Any], args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Each row, drawn from a fitted model or charged by itself."""
    written = {"rows": max(args.sizes), "max_tokens": task["tokens"]}
    own = {
        "filter": {"best_of": args.best_of},  # a noisy judge may never name a rare label
        "pplm": {"rows": STEERED_ROWS},
        "multitask": {"rows": STEERED_ROWS},
    }
    for name, model in DRAWN.items():
        exact = {"precision": "float32" if name in ("pplm", "multitask") else args.precision}
        yield name, {"method": "dp_lm", "from": model, "variant": name} | written | exact | own.get(name, {})
    predict = bought | {"method": "predict", "from": "base", "max_tokens": task["tokens"]}
    yield "predict", predict
    yield "predict_plain", predict | {"class_means": None}
    yield "evolve", bought | {"method": "evolve", "from": "base", "rows": max(args.sizes)}
    yield "embed", bought | {"method": "embed", "from": "small", "rows": max(args.sizes)}


def cell(args: argparse.Namespace, row: str, seed: int) -> None:
    """Draw and score one row of the table at each size that is not there."""
    done = {line["asked"] for line in results() if (line["row"], line["seed"]) == (row, seed)}
    sizes = [size for size in args.sizes if size not in done]
    if not sizes or (row == "real" and done):
        return
    started = time.monotonic()
    rows, notes = DRAWERS.get(row, drawn if row in DRAWN else staged)(args, max(sizes), row, seed)
    seconds = round(time.monotonic() - started, 1)
    with Path("results.jsonl").open("a") as file:
        for size in sizes:
            part = rows if row == "real" else first(rows, size)
            told = {"row": row, "seed": seed, "asked": size, "rows": len(part), "seconds": seconds}
            file.write(json.dumps(told | notes | accuracies(part)) + "\n")
            if len(part) == len(rows):
                break  # a larger size would be the same rows


def first(rows: Sequence[Any], size: int) -> list[Any]:
    """So many rows, the first of each label, in the shares of all."""
    of_label = {label: [row for row in rows if row.label == label] for label in sorted({row.label for row in rows})}
    return [row for own in of_label.values() for row in own[: math.ceil(size * len(own) / len(rows))]]


def accuracies(rows: Sequence[Any]) -> dict[str, float]:
    """evaluator -> accuracy on the real test rows."""
    from palimpsest.params.load import load
    from stages.audited import records_of
    from stages.downstream_eval import Judges, Part

    found = Judges(load()).score(Part(rows, asset=False), Part(records_of("test"), asset=True))
    return {name: evaluation.scored.accuracy.value for name, evaluation in found.evaluations.items()}


def staged(args: argparse.Namespace, most: int, row: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """What a stage wrote."""
    from palimpsest.records.write import read_synthetic

    return read_synthetic(f"data/synthetic/{row}", "text", "label"), {}


def real(args: argparse.Namespace, most: int, row: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """The private training rows."""
    from palimpsest.records.record import Record
    from palimpsest.records.write import read_split

    return [Record(row.text, row.label) for row in read_split("data/private/train.parquet")], {}


def selected(args: argparse.Namespace, most: int, row: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Public texts by noisy class means, at the same epsilon, charged to the same ledger."""
    from palimpsest.files import read_json
    from palimpsest.methods.select.declaration import SelectSettings
    from palimpsest.methods.select.fit import Select
    from palimpsest.methods.select.fit import plan as planned
    from palimpsest.methods.shared.base import Budget
    from palimpsest.methods.shared.means import Candidates
    from palimpsest.models.encoder import Encoder
    from palimpsest.models.sources import resolve_encoder
    from palimpsest.params.load import load
    from palimpsest.privacy.entropy import NoiseSource
    from palimpsest.privacy.ledger.ledger import Ledger
    from palimpsest.privacy.ledger.records import Run
    from palimpsest.privacy.session import metered
    from palimpsest.records.write import read_public
    from stages.spending import private_rows

    params, ledger = load(), Ledger.open(os.environ["PALIMPSEST_LEDGER"])
    texts = [row.text for row in read_public("data/public/train.parquet")]
    candidates = Candidates(texts, np.load("data/public/embeddings.npz")["texts"])
    encoder, schema = Encoder(resolve_encoder(params.models.encoder)), params.schema_of_data
    settings = SelectSettings(rows=most, label_counts="prior", prior=None, histogram_share=0.01, batch=64, domain=0.75)
    plan = planned(settings, schema, Budget(args.epsilon, params.delta))
    fit = Select(settings, schema, plan, candidates, encoder.encode)
    rows = read_json("data/private/manifest.json")["fingerprint"]
    run = Run("select", f"select_{seed}", "reference" if args.epsilon == float("inf") else "release", rows, "p", "c")
    with metered(ledger, schema, run, plan.queries, private_rows, NoiseSource()) as session:
        found = fit.ask(session.view)
    return list(fit.made(found).rows), {}


def drawn(args: argparse.Namespace, most: int, row: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Rows of one variant under one sampling seed."""
    from palimpsest.methods.dp_lm.artifact import DpLmArtifact
    from palimpsest.methods.dp_lm.sampling import Sampler
    from palimpsest.models.encoder import Encoder
    from palimpsest.params.load import load
    from palimpsest.training.dpsgd import PRECISIONS
    from stages.filters import chain
    from stages.vouching import vouched

    params = load()
    generate = params.variants[row].generate
    artifact = DpLmArtifact.load(Path("models") / DRAWN[row], PRECISIONS[generate.precision])
    generate = generate.model_copy(update={"rows": min(most, generate.rows)})
    filters = chain(params, generate.filters, generate.max_tokens, generate.batch)
    encode = Encoder(vouched(params, "models.encoder")).encode_batch if row == "filter" else None
    shards = Path("shards") / f"{row}_{seed}_{generate.rows}"
    sampler = Sampler(generate, row, seed, filters, encode, shards)
    rows = list(sampler.sample(artifact, artifact.counts(generate.rows)))
    return rows, {"drawn": filters.seen, "removed": filters.removed}


DRAWERS: dict[str, Callable[..., tuple[list[Any], dict[str, Any]]]] = {"real": real, "select": selected}


def show() -> None:
    """The table so far: accuracy and retention, the mean over sampling seeds."""
    found = results()
    evaluators = [key for key in ("tfidf_lr", "minilm_lr", "finetuned") if key in found[0]]
    ceiling = next((row for row in found if row["row"] == "real"), dict.fromkeys(evaluators, np.nan))
    heads = " | ".join(f"{name} accuracy (sd) | retention" for name in evaluators)
    print(f"| row | rows | seeds | {heads} | s per cell |")
    print("|---" * (4 + 2 * len(evaluators)) + "|")
    for row, asked in dict.fromkeys((line["row"], line["asked"]) for line in found):
        own = [line for line in found if (line["row"], line["asked"]) == (row, asked)]
        values = [np.array([line[name] for line in own]) for name in evaluators]
        cells = [
            f"{each.mean():.3f} ({each.std():.3f}) | {each.mean() / ceiling[name]:.3f}"
            for name, each in zip(evaluators, values, strict=True)
        ]
        seconds = np.mean([line["seconds"] for line in own])
        print(f"| {row} | {own[0]['rows']} | {len(own)} | {' | '.join(cells)} | {seconds:.0f} |")


def results() -> list[dict[str, Any]]:
    """The finished cells."""
    path = Path("results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


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


def plain_yaml(path: Path) -> dict[str, Any]:
    """A YAML file's values."""
    return dict(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))


def write_yaml(path: Path, value: Any) -> None:
    """A YAML file."""
    yaml = YAML()
    yaml.default_flow_style = False
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(value, file)


if __name__ == "__main__":
    main()
