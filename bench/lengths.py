"""Processor time and peak memory of each stage, by how long the private and public texts are.

    python -m bench.lengths

A workspace of 24 private, 24 public and 24 test rows of so many words each, of two labels, is made and run with the
method `select` and all of its audits, nothing kept from before. Both figures are of the stage's own process
(getrusage): seconds without starting Python, and the most that was resident at once, in MiB, with the libraries that
stages share. The words are the encoder's own, drawn as Zipf has it; a fifth of a label's words are its own.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from palimpsest.models.sources import embedded_folder

LENGTHS, ROWS, LABELS, OWN = (100, 1_000, 10_000), 24, ("good", "bad"), 50
WORDS = np.array([word for word in (embedded_folder() / "vocab.txt").read_text().split() if word.isalpha()][:5_000])
COMMON = 1 / np.arange(1, len(WORDS) + 1)
# Read by every Python process at its start: a stage's tells what it took when it ends.
HOOK = """\
import atexit, json, os, pathlib, re, resource, sys
def tell():
    found = re.search(r"\\bstages[./](\\w+?)(\\.py)?$", sys.argv[0])
    if found:
        used = resource.getrusage(resource.RUSAGE_SELF)
        told = [round(used.ru_utime + used.ru_stime, 1), used.ru_maxrss // 1024]
        name = "@".join([found[1], *(one for one in sys.argv[1:2] if "/" not in one)])
        pathlib.Path(os.environ["PALIMPSEST_TOLD"], name).write_text(json.dumps(told))
atexit.register(tell)
"""


def main() -> None:
    """Print a table: stage, seconds and MiB at each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run(args.one)))
        return
    found = [measure(length) for length in args.lengths]
    print(f"| stage | {' | '.join(f'{length:,} words' for length in args.lengths)} |\n|{'---|' * (len(found) + 1)}")
    for stage in found[0]:
        print(f"| `{stage}` | {' | '.join('{:.0f} s, {} MiB'.format(*one[stage]) for one in found)} |")


def measure(length: int) -> dict[str, list[float]]:
    """Run one length in a process of its own."""
    command = [sys.executable, "-m", "bench.lengths", "--one", str(length)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(length, done.stdout.splitlines()[-1], file=sys.stderr, flush=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(length: int) -> dict[str, list[float]]:
    """Make a workspace, run it, and return stage -> its seconds and MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        (folder / "sitecustomize.py").write_text(HOOK)
        (folder / "told").mkdir()
        for part in ("private", "public", "test"):
            write(folder / f"{part}.jsonl", length, rng, labelled=part != "public")
        palimpsest(folder, "init", "private.jsonl", "--text", "text", "--label", "label", "--labels", ",".join(LABELS),
                   "--public", "public.jsonl", "--test", "test.jsonl", "--rows-about", str(ROWS), "--asset", "lengths",
                   "--max-length", str(20 * length), "-w", "work")  # fmt: skip
        palimpsest(folder, "run", "-w", "work")
        return {path.name: json.loads(path.read_text()) for path in sorted((folder / "told").iterdir())}


def write(path: Path, length: int, rng: np.random.Generator, labelled: bool) -> None:
    """Write rows of so many words."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            own = WORDS[-OWN * (1 + number % 2) :][:OWN]
            words = [*rng.choice(WORDS, length - length // 5, p=COMMON / COMMON.sum()), *rng.choice(own, length // 5)]
            row = {"text": " ".join(rng.permutation(words)), **({"label": LABELS[number % 2]} if labelled else {})}
            file.write(json.dumps(row) + "\n")


def palimpsest(folder: Path, *words: str) -> None:
    """Run a command as a user would."""
    environ = {**os.environ, "PALIMPSEST_LEDGER": str(folder / "ledger"), "XDG_CONFIG_HOME": str(folder)}
    environ |= {"PYTHONPATH": str(folder), "PALIMPSEST_TOLD": str(folder / "told")}
    command = [sys.executable, "-m", "palimpsest", *words]
    subprocess.run(command, cwd=folder, env=environ, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
