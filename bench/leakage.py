"""Can the audit find a leak where there is one? A model without noise, secrets repeated, rows drawn without filters.

    python -m bench.leakage

Clones the project into a temporary folder, makes a small invented world whose secrets stand in many records, fits a
language model to it without any noise and for many epochs, draws rows from it as they come, and runs the audits of a
reference run on them. Prints what each found. Nothing of it may ever be released; the ledger lies in the folder.

Feeds docs/results/audit.md. It needs no folder.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.settings_file import read_settings, write_settings
from palimpsest.files import read_json
from palimpsest.records.world.shipped import FOLDER
from palimpsest.work.context import environment
from tools.world.generate import WorldSettings
from tools.world.pack import pack

ROOT = Path(__file__).parents[1]
NAME = "loud"
AUDITS = ("mia", "text_mia", "memorisation_audit", "facts_audit", "ngram_audit", "anonymity_audit")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="passes over the private rows")
    parser.add_argument("--rows", type=int, default=8000, help="private rows, and twice the synthetic ones")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        write_settings(folder, settings(read_settings(folder), args.rows, args.epochs))
        sizes = {"private_rows": args.rows, "test_rows": 600, "public_rows": 1500, "public_test_rows": 600}
        pack(NAME, WorldSettings.sized(seed=1, **sizes), folder / FOLDER.relative_to(ROOT))
        run(folder, "palimpsest.cli.main", "register")
        run(folder, "dvc", "repro", *(f"{name}@{NAME}" for name in AUDITS))
        print(table({path.stem: read_json(path) for path in (folder / "reports/metrics" / NAME).glob("*.json")}))


def settings(params: dict[str, Any], rows: int, epochs: int) -> dict[str, Any]:
    """The demo's params.yaml with a world of its own and one reference run."""
    params["world"] = NAME
    params["dataset"]["n_public"] = rows
    params["audit"]["size"] = rows // 2
    empty = {name: {} if isinstance(value, dict) else [] for name, value in params["run"].items()}
    params["run"] = empty | {"dp_train": [NAME], "dp_lm": {NAME: NAME}, "evaluate": [NAME], "audit": [NAME]}
    params["run"]["facts_audit"] = [NAME]
    train = params["lms"]["dp3"]["train"] | {
        "epochs": epochs, "batch": 64, "freeze_embeddings": False, "clipping_norm": 1.0, "learning_rate": 0.003,
    }  # fmt: skip
    params["lms"] = {NAME: {"purpose": "reference", "epsilon": float("inf"), "train": train}}
    generate = params["variants"]["dp3"]["generate"]
    generate |= {"rows": rows // 2, "best_of": 1, "temperature": 0.7, "filters": generate["filters"] | {"chain": []}}
    params["variants"] = {NAME: {"method": "dp_lm", "variant": "plain", "generate": generate}}
    params["discriminators"], params["release"]["variants"] = {}, []
    return params


def run(folder: Path, *module: str) -> None:
    """`python -m ...` in the clone, with its code."""
    code = os.pathsep.join([str(folder / "src"), str(folder)])
    subprocess.run([sys.executable, "-m", *module], cwd=folder, env={**environment(), "PYTHONPATH": code}, check=True)


def table(found: dict[str, Any]) -> str:
    """What each audit found, as Markdown."""
    secrets, near = found["memorisation"]["secrets"], found["memorisation"]["near_duplicates"]["records"]
    phantom = found["text_membership"]["phantom"]["orders"]["3"]
    excess, risks = found["ngrams"]["orders"]["5"]["excess"], found["anonymity"]["attacks"]
    lines = [
        ("planted secrets in the rows, letter by letter", f"{secrets['exact']['exposed']['count']} of "
         f"{secrets['exact']['exposed']['n']}; decoys {secrets['exact']['control']['count']}"),
        ("details of one record in the rows", f"{found['facts']['individual']['leaked']}"),
        ("records with a near-duplicate", f"{near['exposed']['count']} members, {near['control']['count']} others"),
        ("records given away by a 3-gram of their own", f"{phantom['train']['count']} members, "
         f"{phantom['holdout']['count']} others, p = {phantom['p']:.2g}"),
        ("5-gram excess", f"{100 * excess['value']:+.2f} points, p = {excess['p']:.2g}"),
        *((f"{kind}: {name}", f"AUC {one['auc']:.3f} [{one['low']:.3f}, {one['high']:.3f}]")
          for kind in ("membership", "text_membership") for name, one in found[kind]["attacks"].items()),
        *((f"{kind}: epsilon shown", f"{found[kind]['epsilon_lower']['value']:.2f} of {found[kind]['eps_max']:.2f}")
          for kind in ("membership", "text_membership")),
        *((f"risk: {name}", f"{one['risk']['value']:.3f} [{one['risk']['low']:.3f}, {one['risk']['high']:.3f}]")
          for name, one in risks.items()),
    ]  # fmt: skip
    return "\n".join(["| audit | found |", "|---|---|", *(f"| {what} | {words} |" for what, words in lines)])


if __name__ == "__main__":
    main()
