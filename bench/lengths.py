"""Seconds of each stage, by how long the private and public texts are.

    python -m bench.lengths

A workspace of 80 private and 80 public rows of so many words each, of two labels, is made and run with the method
`select` and all of its audits: the processor's cores as they are, nothing kept from before. Each length runs in
processes of its own. The words come from one Zipf vocabulary; a fifth of a label's words are its own.

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

from stages.common import SECONDS

LENGTHS, ROWS, LABELS = (100, 1_000), 80, ("good", "bad")
WORDS = np.array([f"w{number}" for number in range(5_000)])
COMMON = 1 / np.arange(1, len(WORDS) + 1)


def main() -> None:
    """Print a table: stage, seconds at each length."""
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
        print(f"| `{stage}` | {' | '.join(f'{one[stage]}' for one in found)} |")


def measure(length: int) -> dict[str, int]:
    """Run one length in a process of its own."""
    command = [sys.executable, "-m", "bench.lengths", "--one", str(length)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(length, done.stdout.splitlines()[-1], file=sys.stderr, flush=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(length: int) -> dict[str, int]:
    """Make a workspace, run it, and return stage -> its seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        for part in ("private", "public", "test"):
            write(folder / f"{part}.jsonl", length, rng, labelled=part != "public")
        palimpsest(folder, "init", "private.jsonl", "--text", "text", "--label", "label", "--labels", ",".join(LABELS),
                   "--public", "public.jsonl", "--test", "test.jsonl", "--rows-about", str(ROWS), "--asset", "lengths",
                   "--max-length", str(20 * length), "-w", "work")  # fmt: skip
        palimpsest(folder, "run", "-w", "work")
        told = sorted((folder / "work" / SECONDS).glob("*.json"))
        return {path.stem.rstrip("@"): json.loads(path.read_text())["seconds"] for path in told}


def write(path: Path, length: int, rng: np.random.Generator, labelled: bool) -> None:
    """Write rows of so many words."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            own = [f"{LABELS[number % 2]}{word}" for word in rng.integers(50, size=length // 5)]
            words = [*rng.choice(WORDS, length - len(own), p=COMMON / COMMON.sum()), *own]
            row = {"text": " ".join(rng.permutation(words)), **({"label": LABELS[number % 2]} if labelled else {})}
            file.write(json.dumps(row) + "\n")


def palimpsest(folder: Path, *words: str) -> None:
    """Run a command as a user would."""
    environ = {**os.environ, "PALIMPSEST_LEDGER": str(folder / "ledger"), "XDG_CONFIG_HOME": str(folder)}
    command = [sys.executable, "-m", "palimpsest", *words]
    subprocess.run(command, cwd=folder, env=environ, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
