"""`python -m bench.wording WORKSPACE`: what a change of wording costs on a finished workspace, module by module.

It adds a comment to each module of a copy of the code in turn, asks what a run would cost, and prints what is above 0.
Then it adds one to all modules at once, runs every stage that spends, and holds rows and charges against those of
before. Run it with the copy first on the path: `PYTHONPATH=COPY/src:COPY python -m bench.wording WORKSPACE`.
"""

import argparse
import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import palimpsest
from palimpsest.graph.stages import SPENDERS
from palimpsest.graph.state import State
from palimpsest.progress import track
from palimpsest.work.context import environment, open_workspace, stage_names, standings
from palimpsest.work.plan import summarise_plan
from palimpsest.workspace import SYNTHETIC
from stages import inputs

COMMENT = "\n# Said in other words.\n"


def cost(workspace: Path) -> tuple[float, list[str]]:
    """What a run would add to the total by the code as it lies now, and the stages that spend and would run."""
    inputs.codes.cache_clear()
    context = open_workspace(workspace)
    runs = [one.name for one in standings(context, fresh=True) if one.state is State.RUNS]
    summary = summarise_plan(context)
    return summary.after - summary.spent, [name for name in runs if name.partition("@")[0] in SPENDERS]


def rows(workspace: Path) -> dict[str, str]:
    found = sorted((workspace / SYNTHETIC).glob("*.jsonl"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--every", type=int, default=1, help="reword each n-th module alone in its turn")
    asked = parser.parse_args()
    workspace: Path = asked.workspace
    home = Path(palimpsest.__file__).parent
    every = sorted(home.rglob("*.py"))
    modules = every[:: asked.every]
    started, dear = Counter[int](), dict[str, float]()
    for path in track(modules, name="reword", total=len(modules), private=False, unit="module"):
        before = path.read_bytes()
        path.write_bytes(before + COMMENT.encode())
        try:
            added, spending = cost(workspace)
        finally:
            path.write_bytes(before)
        started[len(spending)] += 1
        if added:
            dear[path.relative_to(home).as_posix()] = added
    print(f"{len(modules)} modules: {len(dear)} cost anything: {dear}")
    print(f"stages that spend and would run -> modules: {dict(sorted(started.items()))}")
    return int(bool(dear) or not remade(workspace, every))


def remade(workspace: Path, modules: list[Path]) -> bool:
    """Whether all stages that spend run on reworded code, charge nothing and write the same rows."""
    context, before = open_workspace(workspace), rows(workspace)
    charges = context.ledger.charges(context.asset.name)
    for path in modules:
        path.write_text(path.read_text(encoding="utf-8") + COMMENT, encoding="utf-8")
    targets = [name for name in stage_names(workspace) if name.partition("@")[0] in {*SPENDERS, "pplm_generate"}]
    done = subprocess.run([sys.executable, "-m", "dvc", "repro", *targets], cwd=workspace, env=environment())
    now, after = rows(workspace), context.ledger.charges(context.asset.name)
    other = sorted(name for name in before if before[name] != now.get(name))
    print(f"dvc repro ended with {done.returncode}; {len(before)} files of rows, {len(other)} are others: {other}")
    print(f"charges before and after: {len(charges)}, {len(after)}")
    return done.returncode == 0 and not other and charges == after


if __name__ == "__main__":
    raise SystemExit(main())
