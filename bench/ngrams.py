"""Counting shared n-grams at scale: time and memory.

    python -m bench.ngrams --texts 1000000

Synthetic and private texts are drawn word by word from one Zipf vocabulary; every tenth synthetic text repeats a span
of a private one, so that long n-grams are shared too. `read` is reading and splitting by the audit's own rule, `count`
the counting, in seconds of the processor, which other jobs disturb less than the wall clock; `peak` is the highest
resident set of a process that does both.

Feeds docs/results/audit.md. It needs no folder.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 50_000
WORDS = 30  # of a text
COPIED = 15  # of these, in every tenth synthetic text
ORDERS = (3, 4, 5, 6, 7, 13)
AT_ONCE = 20_000  # texts that are made at once
SIDES = ("synthetic", "private")


def main() -> None:
    args = arguments()
    if args.part:
        print(json.dumps({"make": make, "count": count}[args.part](args)))
        return
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        in_process("make", args, folder)
        found = in_process("count", args, folder)
    print(f"{args.texts:,} synthetic and {args.texts:,} private texts of {WORDS} words")
    print(f"read {found['read']:.1f} s, count {found['count']:.1f} s, peak {found['peak']:.2f} GiB")
    print(f"shared n-grams by n: {found['counts']}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1_000_000, help="of either side")
    parser.add_argument("--orders", type=int, nargs="+", default=ORDERS)
    parser.add_argument("--scratch", type=Path, help="where the texts are put; the system's place if not given")
    parser.add_argument("--part", choices=("make", "count"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_process(part: str, args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """One part in a process of its own, so that no memory is another's."""
    wanted = [str(order) for order in args.orders]
    given = ["--part", part, "--folder", folder, "--texts", str(args.texts), "--orders", *wanted]
    done = subprocess.run([sys.executable, "-m", "bench.ngrams", *given], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def make(args: argparse.Namespace) -> dict[str, Any]:
    """Write synthetic.txt and private.txt, a text a line."""
    rng = np.random.default_rng(0)
    share = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    with (args.folder / "private.txt").open("w") as private, (args.folder / "synthetic.txt").open("w") as synthetic:
        for start in range(0, args.texts, AT_ONCE):
            mine, theirs = (drawn(rng, share, min(AT_ONCE, args.texts - start)) for _ in SIDES)
            mine[::10, :COPIED] = theirs[::10, -COPIED:]
            synthetic.writelines(lines(mine))
            private.writelines(lines(theirs))
    return {}


def drawn(rng: np.random.Generator, share: np.ndarray, texts: int) -> np.ndarray:
    """Numbers of words, int64 of shape (texts, WORDS)."""
    return np.searchsorted(share, rng.random((texts, WORDS)) * share[-1])


def lines(numbers: np.ndarray) -> Iterator[str]:
    """Each text on a line, with a capital and a full stop that splitting has to drop."""
    for text in numbers.tolist():
        yield " ".join(f"w{number:x}" for number in text).capitalize() + ".\n"


def read(folder: Path, side: str) -> list[str]:
    """The texts of one side."""
    return (folder / f"{side}.txt").read_text(encoding="utf-8").splitlines()


def count(args: argparse.Namespace) -> dict[str, Any]:
    """All orders in one pass over each part, as the audit counts."""
    from palimpsest.audit.ngrams import WordIds, parts_of, shared_ngrams

    start, vocabulary = time.process_time(), dict[str, int]()
    synthetic, private = (WordIds.read(read(args.folder, side), vocabulary) for side in SIDES)
    between = time.process_time()
    counts, parts = dict[int, int](), parts_of(synthetic, private)
    for part in range(parts):
        for shared in islice(shared_ngrams(synthetic, private, part, parts), max(args.orders)):
            if shared.order in args.orders:
                counts[shared.order] = counts.get(shared.order, 0) + len(shared.first.gram)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"read": between - start, "count": time.process_time() - between, "peak": peak, "counts": counts}


if __name__ == "__main__":
    main()
