"""The rows of the conditional language model on SST-2 and AG News, side by side with the paper's table 1.

    python bench/reproduction.py --data <folder> --lm <folder> --task sst2 --epsilon 3 --workspace <new folder>

One training per language model: `filter` and `pplm` share one, `multitask`, `fudge` and `fudge_state` the other. Each
cell draws `--rows` rows per sampling seed and scores them by two classifiers of three seeds, beside the real rows,
public text alone, and `select` at the same epsilon. The budget is the workspace's own. Finished cells are kept in
`<workspace>/results.jsonl`; run again, and only what is missing is done. Slow: an hour or more on two cores.
"""

import argparse
import gzip
import json
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

from bench.settings_file import read_settings, write_settings

SST2 = {"negative": "A negative film review.", "positive": "A positive film review."}
NEWS = {
    "world": "News about politics, governments, war and international affairs.",
    "sports": "News about sports, games, players and teams.",
    "business": "News about business, markets, companies and the economy.",
    "sci/tech": "News about science, technology, computers and the internet.",
}
TASKS: dict[str, dict[str, Any]] = {
    "sst2": {"labels": SST2, "n": 6920, "public": ("public_reviews",), "tokens": 40, "characters": 240},
    "agnews": {"labels": NEWS, "n": 8788, "public": ("public_news", "public_wiki"), "tokens": 56, "characters": 400},
}
PUBLIC_SENTENCES = 12_000
LM_SHARE = 0.87  # of epsilon, for the language model alone where a discriminator of its own follows
VARIANTS = {"filter": "judge", "pplm": "head", "multitask": "multi", "fudge": "multi", "fudge_state": "multi"}


def main() -> None:
    """Make the workspace, fit what is asked for, draw, score, print."""
    args = arguments()
    workspace: Path = args.workspace
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{workspace.resolve()}.ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{workspace.resolve()}.witnesses"
    if not (workspace / "params.yaml").is_file():
        make(workspace, args)
    models = dict.fromkeys(needed(args.variants))
    targets = ["public_only", "baseline_eval", *(stage(model) for model in models)]
    subprocess.run([sys.executable, "-m", "dvc", "repro", *targets], cwd=workspace, check=True)
    with chdir(workspace):
        for variant in (*(() if args.no_baselines else ("real", "public_only", "select")), *args.variants):
            for seed in range(args.seeds if variant in VARIANTS or variant == "select" else 1):
                cell(args, variant, seed)
        show()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--epsilon", type=float, default=3.0, help="inf for the reference without noise")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--no-baselines", action="store_true", help="leave out real, public_only and select")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--best-of", type=int, default=4, help="of the variant filter")
    parser.add_argument("--threshold", type=float, default=0.5, help="of the variant filter's label filter")
    return parser.parse_args()


def needed(variants: Sequence[str]) -> Iterator[str]:
    """The models behind the variants, each after the one it builds on."""
    for variant in variants:
        if VARIANTS[variant] != "multi":
            yield "lm"
        yield VARIANTS[variant]


def stage(model: str) -> str:
    return f"{'dp_train' if model in ('lm', 'multi') else 'discriminator'}@{model}"


def make(workspace: Path, args: argparse.Namespace) -> None:
    """A workspace with this bench's models and variants in params.yaml."""
    params = fresh(workspace, args)
    write_settings(workspace, settings(params, TASKS[args.task], args))


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


def settings(params: dict[str, Any], task: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """params.yaml with two language models, two discriminators behind the first, and a variant for each row."""
    drawn_as = next(variant for variant in params["variants"].values() if variant["method"] == "dp_lm")
    (template,) = (model["train"] for model in params["lms"].values())
    params["lms"], params["discriminators"] = models(template, task, args)
    generate = drawn_as["generate"] | {"rows": args.rows, "max_tokens": task["tokens"], "draws": 40}
    chosen = generate["filters"] | {"chain": ["length", "duplicates", "label"]}
    settings_of = {"filter": generate | {"best_of": args.best_of, "filters": chosen | {"threshold": args.threshold}}}
    params["variants"] = {
        name: {"method": "dp_lm", "variant": name, "generate": settings_of.get(name, generate)} for name in VARIANTS
    }
    params["run"] |= {
        "dp_train": ["lm", "multi"], "discriminator": {"head": "lm", "judge": "lm"}, "dp_lm": VARIANTS,
        "embedding_audit": ["base", "lm", "multi"], "evaluate": list(VARIANTS),
        "audit": [], "twins": [],
    }  # fmt: skip
    params["release"]["variants"] = []
    params["models"]["prompts"] |= {"epochs": 1, "max_tokens": task["tokens"]}
    params["public_only"] = {"rows": args.rows}
    params["audit"]["separation"] |= {"rows": 2000, "max_tokens": task["tokens"], "projections": ["pca"]}
    return params


def models(template: dict[str, Any], task: dict[str, Any], args: argparse.Namespace) -> tuple[dict, dict]:
    """The language models and the discriminators."""
    train = template | {
        "epochs": args.epochs, "batch": 512, "learning_rate": 0.004, "max_tokens": task["tokens"], "micro_batch": 128,
    }  # fmt: skip
    purpose = "reference" if args.epsilon == float("inf") else "release"
    whole, part = ({"purpose": purpose, "epsilon": args.epsilon * share} for share in (1.0, LM_SHARE))
    shared = ("warmup", "betas", "adam_eps", "weight_decay", "noise_correction", "max_tokens")
    head = {key: train[key] for key in shared}
    head |= {"epochs": 40, "batch": task["n"], "schedule": "linear", "clipping_norm": 0.5, "micro_batch": 2048}
    head |= {"person": "joint", "checkpoint_steps": 50, "width": 0, "prefix_step": 4}
    lms = {
        "lm": part | {"train": train | {"discriminator_weight": 0.0}},
        "multi": whole | {"train": train | {"discriminator_weight": 1.0}},
    }
    heads = {
        "head": whole | {"train": head | {"reads": "both", "learning_rate": 0.02}},
        "judge": whole | {"train": head | {"reads": "encoder", "learning_rate": 0.01}},
    }
    return lms, heads


def cell(args: argparse.Namespace, variant: str, seed: int) -> None:
    """Draw and score one row of the table, unless it is there."""
    if any((row["variant"], row["seed"]) == (variant, seed) for row in results()):
        return
    started = time.monotonic()
    rows, notes = ROWS.get(variant, drawn)(args, variant, seed)
    seconds = time.monotonic() - started
    line = {"variant": variant, "seed": seed, "rows": len(rows), "seconds": round(seconds, 1), **notes}
    with Path("results.jsonl").open("a") as file:
        file.write(json.dumps(line | accuracies(rows)) + "\n")


def accuracies(rows: Sequence[Any]) -> dict[str, float]:
    """evaluator -> accuracy on the real test rows."""
    from palimpsest.params.load import load
    from stages.downstream_eval import score

    return {name: found.scored.accuracy.value for name, found in score(load(), rows).evaluations.items()}


def real(args: argparse.Namespace, variant: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """The private training rows."""
    from palimpsest.records.record import Record
    from palimpsest.records.write import read_split

    return [Record(row.text, row.label) for row in read_split("data/private/train.parquet")], {}


def public_only(args: argparse.Namespace, variant: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """What the stage of that name chose."""
    from palimpsest.records.write import read_synthetic

    return read_synthetic("data/synthetic/public_only", "text", "label"), {}


def selected(args: argparse.Namespace, variant: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
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
    settings = SelectSettings(
        rows=args.rows, label_counts="prior", prior=None, histogram_share=0.01, batch=64, domain=0.75, most=1
    )
    plan = planned(settings, schema, Budget(args.epsilon, params.delta))
    fit = Select(settings, schema, plan, candidates, encoder.encode)
    rows = read_json("data/private/manifest.json")["fingerprint"]
    run = Run("select", f"select_{seed}", "reference" if args.epsilon == float("inf") else "release", rows, "p", "c")
    with metered(ledger, schema, run, plan.queries, private_rows, NoiseSource()) as session:
        found = fit.ask(session.view)
    return list(fit.made(found).rows), {}


def drawn(args: argparse.Namespace, variant: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Rows of one variant under one sampling seed."""
    from palimpsest.methods.dp_lm.artifact import DpLmArtifact
    from palimpsest.methods.dp_lm.sampling import Sampler
    from palimpsest.models.encoder import Encoder
    from palimpsest.params.load import load
    from stages.filters import chain
    from stages.vouching import vouched

    params, artifact = load(), DpLmArtifact.load(Path("models") / VARIANTS[variant])
    generate = params.variants[variant].generate
    filters = chain(params, generate.filters, generate.max_tokens, generate.batch)
    encode = Encoder(vouched(params, "models.encoder")).encode_batch if variant == "filter" else None
    shards = Path("shards") / f"{variant}_{seed}"
    sampler = Sampler(generate, variant, seed, filters, encode, shards)
    rows = list(sampler.sample(artifact, artifact.counts(args.rows)))
    return rows, {"drawn": filters.seen, "removed": filters.removed}


ROWS: dict[str, Callable[..., tuple[list[Any], dict[str, Any]]]] = {
    "real": real, "public_only": public_only, "select": selected,
}  # fmt: skip


def show() -> None:
    """The table so far: accuracy and retention, the mean over sampling seeds."""
    found = results()
    evaluators = [key for key in ("tfidf_lr", "minilm_lr", "finetuned") if key in found[0]]
    ceiling = next((row for row in found if row["variant"] == "real"), dict.fromkeys(evaluators, np.nan))
    heads = " | ".join(f"{name} accuracy (sd) | retention" for name in evaluators)
    print(f"| row | seeds | {heads} | s per cell |")
    print("|---" * (3 + 2 * len(evaluators)) + "|")
    for variant in dict.fromkeys(row["variant"] for row in found):
        own = [row for row in found if row["variant"] == variant]
        values = [np.array([row[name] for row in own]) for name in evaluators]
        cells = [
            f"{each.mean():.3f} ({each.std():.3f}) | {each.mean() / ceiling[name]:.3f}"
            for name, each in zip(evaluators, values, strict=True)
        ]
        seconds = np.mean([row["seconds"] for row in own])
        print(f"| {variant} | {len(own)} | {' | '.join(cells)} | {seconds:.0f} |")


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


def write_yaml(path: Path, value: Any) -> None:
    """A YAML file."""
    yaml = YAML()
    yaml.default_flow_style = False
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(value, file)


if __name__ == "__main__":
    main()
