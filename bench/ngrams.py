"""Counting shared n-grams at scale: time and memory beside Python sets of tuples, and whether the counts agree.

    python -m bench.ngrams --texts 1000000

Synthetic and private texts are drawn word by word from one Zipf vocabulary; every tenth synthetic text repeats a span
of a private one, so that long n-grams are shared too. Both ways start from the same files of texts and split them into
words by the audit's own rule. Each runs in a process of its own, and the sets in one for each n, so that their memory
is that of one n. `read` is reading and splitting, `count` the counting, in seconds of the processor, which other jobs
disturb less than the wall clock; the sets read once in the sum, though each process does. `ratio` is the sum of the
sets over ours, also without reading and on the wall clock; `peak` is the highest resident set.

Feeds docs/results/audit.md. It needs no folder.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
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
        print(json.dumps({"make": make, "ours": ours, "sets": sets}[args.part](args)))
        return
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        in_process("make", args, folder)
        mine = in_process("ours", args, folder)
        theirs = {order: in_process("sets", args, folder, order) for order in args.orders}
    show(args, mine, theirs)
    if args.out:
        found = {"texts": args.texts, "ours": mine, "sets": theirs}
        args.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1_000_000, help="of either side")
    parser.add_argument("--orders", type=int, nargs="+", default=ORDERS)
    parser.add_argument("--scratch", type=Path, help="where the texts are put; the system's place if not given")
    parser.add_argument("--out", type=Path, help="the figures as JSON too")
    parser.add_argument("--part", choices=("make", "ours", "sets"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_process(part: str, args: argparse.Namespace, folder: str, *orders: int) -> dict[str, Any]:
    """One part in a process of its own, so that no memory is another's."""
    wanted = [str(order) for order in orders or args.orders]
    given = ["--part", part, "--folder", folder, "--texts", str(args.texts), "--orders", *wanted]
    command = [sys.executable, "-m", "bench.ngrams", *given]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(f"{part} {' '.join(wanted)}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    return json.loads(done.stdout)


# --- the texts -------------------------------------------------------------------------------------------------


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


# --- two ways to count -----------------------------------------------------------------------------------------


def ours(args: argparse.Namespace) -> dict[str, Any]:
    """All orders in one pass over each part, as the audit counts."""
    from palimpsest.audit.ngrams import WordIds, parts_of, shared_ngrams

    clock = Clock()
    vocabulary: dict[str, int] = {}
    synthetic, private = (WordIds.read(read(args.folder, side), vocabulary) for side in SIDES)
    clock.lap("read")
    counts, parts = dict[int, int](), parts_of(synthetic, private)
    for part in range(parts):
        for shared in islice(shared_ngrams(synthetic, private, part, parts), max(args.orders)):
            if shared.order in args.orders:
                counts[shared.order] = counts.get(shared.order, 0) + len(shared.first.gram)
    clock.lap("count")
    return measured(clock, counts)


def sets(args: argparse.Namespace) -> dict[str, Any]:
    """One order, as one would write it down."""
    from palimpsest.records.segment import words

    clock = Clock()
    synthetic, private = ([words(text) for text in read(args.folder, side)] for side in SIDES)
    clock.lap("read")
    counts = {}
    for order in args.orders:
        known = {gram for text in private for gram in grams(text, order)}
        counts[order] = sum(gram in known for text in synthetic for gram in grams(text, order))
    clock.lap("count")
    return measured(clock, counts)


def grams(text: Sequence[str], order: int) -> Iterator[tuple[str, ...]]:
    return zip(*(text[start:] for start in range(order)), strict=False)


class Clock:
    """Seconds of the processor and on the wall clock since the last lap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def lap(self, name: str) -> None:
        """Write down what the part called `name` took."""
        cpu, wall = time.process_time(), time.perf_counter()
        self.seconds |= {name: cpu - self._cpu, f"{name} wall": wall - self._wall}
        self._cpu, self._wall = cpu, wall


def measured(clock: Clock, counts: dict[int, int]) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {**clock.seconds, "peak": peak, "counts": counts}


# --- what came out ---------------------------------------------------------------------------------------------


def show(args: argparse.Namespace, mine: dict[str, Any], theirs: dict[int, dict[str, Any]]) -> None:
    """The tables."""
    print(f"{args.texts:,} synthetic and {args.texts:,} private texts of {WORDS} words\n")
    print("| n | shared | same | sets: count, s | peak, GiB |\n|---|---|---|---|---|")
    for order, found in theirs.items():
        shared, expected = mine["counts"].get(str(order), 0), found["counts"][str(order)]
        print(f"| {order} | {shared:,} | {shared == expected} | {found['count']:.1f} | {found['peak']:.2f} |")
    summed = {f"count{kind}": sum(found[f"count{kind}"] for found in theirs.values()) for kind in ("", " wall")}
    summed |= {f"read{kind}": min(found[f"read{kind}"] for found in theirs.values()) for kind in ("", " wall")}
    print("\n| | read, s | count, s | peak, GiB |\n|---|---|---|---|")
    print(f"| ours | {mine['read']:.1f} | {mine['count']:.1f} | {mine['peak']:.2f} |")
    print(
        f"| sets | {summed['read']:.1f} | {summed['count']:.1f} | {max(one['peak'] for one in theirs.values()):.2f} |"
    )
    print(f"\nratio {ratio(summed, mine, 'read', 'count'):.2f}, of counting alone {ratio(summed, mine, 'count'):.2f}")
    print(f"on the wall clock {ratio(summed, mine, 'read wall', 'count wall'):.2f}")


def ratio(theirs: dict[str, Any], mine: dict[str, Any], *parts: str) -> float:
    return sum(theirs[part] for part in parts) / sum(mine[part] for part in parts)


if __name__ == "__main__":
    main()
