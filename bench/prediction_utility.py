"""Private prediction on real data: classifiers on what it writes, beside `public_only` and `real`, over epsilons.

    python -m bench.prediction_utility --data <folder> --lm <folder> --task sst2 --workspace <new folder>

A workspace is made with `palimpsest init`; its graph then runs with `dvc repro`. Both clippings are asked at every
epsilon, each under its own charge, with difference clipping at s = 32 and fixed clipping at s = 127 (63 at epsilon 10);
`means` is difference clipping whose texts are chosen by class means within the same epsilon.
Where a budget would pay for more than is needed, fewer batches are written from, never fewer tokens. The table is
printed from the workspace's own metrics; run again, and only what is missing is done.

Feeds docs/lab/methods.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--lm` is `models/base` of a
workspace: bench/README.md.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.real_data import TASKS, fresh
from bench.settings_file import write_settings
from palimpsest.files import read_json

EPSILONS = (1.0, 3.0, 10.0)
# Passes over public text before anything is asked, and batches that difference clipping writes from.
FREE: dict[str, dict[str, Any]] = {
    "sst2": {"prompts": 1, "taught": 1.0, "batches": None},
    "agnews": {"prompts": 0, "taught": 0.35, "batches": 137},
}
EVALUATORS = ("tfidf_lr", "minilm_lr")


def main() -> None:
    """Make the workspace, run it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--task", choices=FREE, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--targets", nargs="*", default=[], help="stages to run; none: all that the table needs")
    args = parser.parse_args()
    os.environ["PALIMPSEST_LEDGER"] = f"sqlite:///{args.workspace.resolve()}.ledger.db"
    os.environ["PALIMPSEST_WITNESSES"] = f"{args.workspace.resolve()}.witnesses"
    if not (args.workspace / "params.yaml").is_file():
        make(args.workspace, args)
    names = list(variants(args.task))
    targets = args.targets or ["baseline_eval", *(f"downstream_eval@{name}" for name in names)]
    subprocess.run([sys.executable, "-m", "dvc", "repro", *targets], cwd=args.workspace, check=True)
    show(args.workspace, names)


def make(workspace: Path, args: argparse.Namespace) -> None:
    """A workspace with this bench's variants in params.yaml."""
    params = fresh(workspace, args, method="predict")
    write_settings(workspace, settings(params, args.task))


def settings(params: dict[str, Any], name: str) -> dict[str, Any]:
    """params.yaml with a variant for each way and epsilon."""
    tokens, free = TASKS[name]["tokens"], FREE[name]
    params["models"]["prompts"] |= {"epochs": free["prompts"], "max_tokens": tokens}
    params["taught"]["similar"] |= {"epochs": free["taught"], "max_tokens": tokens, "neighbours": 2}
    params["variants"] = variants(name, params["variants"]["predict3"])
    names = list(params["variants"])
    params["run"] |= {
        "private_predict": dict.fromkeys(names, "taught/similar"), "embedding_audit": [], "evaluate": names,
        "audit": [],
    }  # fmt: skip
    params["release"]["variants"] = []
    params["lms"] = {}
    params["public_only"] = {"rows": 1000}
    return params


def variants(task: str, template: dict[str, Any] | None = None) -> dict[str, Any]:
    """A variant for each way and epsilon; only the names where there is no template."""
    found: dict[str, Any] = {}
    for epsilon in EPSILONS:
        for way in ("difference", "means", "fixed"):
            found[f"{way}{epsilon:g}"] = template and variant(template, task, way, epsilon)
    return found


def variant(template: dict[str, Any], task: str, way: str, epsilon: float) -> dict[str, Any]:
    """One row's settings."""
    tokens = TASKS[task]["tokens"]
    predict = template["predict"] | {"max_tokens": tokens, "typical_tokens": tokens // 2}
    predict |= {"batches": FREE[task]["batches"]}
    predict["prompt"] = template["predict"]["prompt"] | {"text_tokens": tokens}
    predict["class_means"] = {"share": 0.2, "keep": 0.5, "domain": 1.0, "batch": 32} if way == "means" else None
    if way == "fixed":
        size = 63 if epsilon == EPSILONS[-1] else 127
        most = 27 if epsilon > EPSILONS[0] else None
        predict |= {"clipping": "fixed", "clip": 10.0, "tokens": None, "temperature": 2.0, "top_k": 0}
        predict |= {"batch_size": size, "batches": most}
    return {**template, "epsilon": epsilon, "predict": predict}


def show(workspace: Path, names: list[str]) -> None:
    """The table: rows, tokens, accuracy and retention of each."""
    print("| row | rows | tokens | " + " | ".join(f"{name}: accuracy, retention" for name in EVALUATORS) + " |")
    print("|---" * (3 + len(EVALUATORS)) + "|")
    for name in ("real", "public_only", *names):
        metrics = workspace / "reports" / "metrics" / name
        if not (metrics / "utility.json").is_file():
            continue
        utility = read_json(metrics / "utility.json")
        written = read_json(metrics / "generation.json") if (metrics / "generation.json").is_file() else {}
        cells = [name, str(utility["rows"]), str(written.get("tokens", ""))]
        for evaluator in EVALUATORS:
            own = utility["evaluators"][evaluator]
            cells.append(f"{own['accuracy']:.3f}, {own['retention']['value']:.3f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
