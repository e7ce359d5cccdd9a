"""Voting at scale: what it takes to find every row's nearest candidate exactly, beside faiss.

    python -m bench.evolution_scale --rows 1000000 --candidates 20000 --dimensions 384

Rows and candidates are unit vectors in float32 around random centres. `peak` is the highest resident set of a process
of its own that answers all rows out of a memory-mapped file, the pages of the file included, and `seconds` what that
took. `ratio` is the time of `palimpsest.privacy.nearest` over that of `faiss.IndexFlatIP` (extra `test`), k = 1, the
same rows, candidates and threads, in one process, by turns: the median of the chunks' ratios, on the wall clock and in
CPU time. faiss rounds its products and we do not, so the answers differ where two candidates are about as near; `same`
says how many do not.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

CENTRES = 500
AT_ONCE = 10_000  # rows that are made at once


@dataclass(frozen=True)
class Took:
    """Seconds on the wall clock and of the processors."""

    wall: float
    cpu: float


def main() -> None:
    args = arguments()
    if args.part:
        {"make": make, "peak": peak, "ratio": ratio}[args.part](args)
        return
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        found = {}
        for part in ("make", "peak", "ratio"):
            found.update(in_process(part, args, Path(folder)))
    rows = f"{args.rows:,} rows, {args.candidates:,} candidates, {args.dimensions} dimensions, {args.threads} threads"
    print(f"{rows}\n\n| | |\n|---|---|")
    print("\n".join(f"| {name} | {value} |" for name, value in found.items()))
    if args.out:
        args.out.write_text(json.dumps({**vars(args), **found}, indent=2, default=str) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--candidates", type=int, default=20_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=7, help="chunks of rows that both answer")
    parser.add_argument("--chunk", type=int, default=20_000, help="rows of a chunk")
    parser.add_argument(
        "--scratch", type=Path, help="where the rows are put meanwhile; the system's place if not given"
    )
    parser.add_argument("--out", type=Path, help="the figures as JSON too")
    parser.add_argument("--part", choices=("make", "peak", "ratio"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_process(part: str, args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One part in a process of its own, so that neither memory nor threads are another's."""
    names = ("rows", "candidates", "dimensions", "threads", "chunks", "chunk")
    given = [text for name in names for text in (f"--{name}", str(getattr(args, name)))]
    command = [sys.executable, "-m", "bench.evolution_scale", "--part", part, "--folder", str(folder), *given]
    threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads})
    return json.loads(done.stdout.strip().splitlines()[-1])


def make(args: argparse.Namespace) -> None:
    """Write rows.npy and candidates.npy."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, args.dimensions), dtype=np.float32)
    for name, count in (("rows", args.rows), ("candidates", args.candidates)):
        path, shape = args.folder / f"{name}.npy", (count, args.dimensions)
        file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        for start in range(0, count, AT_ONCE):
            file[start : start + AT_ONCE] = around(centres, min(AT_ONCE, count - start), rng)
        file.flush()
    print("{}")


def around(centres: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors, half centre and half noise."""
    vectors = centres[rng.integers(0, len(centres), count)]
    vectors = vectors + rng.standard_normal(vectors.shape, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Memory-mapped rows and the candidates."""
    return np.load(args.folder / "rows.npy", mmap_mode="r"), np.load(args.folder / "candidates.npy")


def peak(args: argparse.Namespace) -> None:
    """Answer all rows; print the seconds and the highest resident set."""
    from palimpsest.privacy.nearest import find_nearest

    rows, candidates = read(args)
    took = timed(lambda: find_nearest(rows, candidates))[0]
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds, all rows": round(took.wall, 1), "peak, GiB": round(gigabytes, 2)}))


def ratio(args: argparse.Namespace) -> None:
    """Answer the same chunks with both, by turns."""
    import faiss

    from palimpsest.privacy.nearest import find_nearest

    faiss.omp_set_num_threads(args.threads)
    rows, candidates = read(args)
    index = faiss.IndexFlatIP(args.dimensions)
    index.add(candidates)
    ways: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "ours": lambda part: find_nearest(part, candidates),
        "faiss": lambda part: index.search(part, 1)[1],
    }
    took: dict[str, list[Took]] = {name: [] for name in ways}
    same = []
    for turn in range(args.chunks + 1):  # the first warms up
        start = turn * args.chunk % max(1, len(rows) - args.chunk)
        part = np.array(rows[start : start + args.chunk])
        found = {}
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            seconds, found[name] = timed(partial(ways[name], part))
            took[name] += [seconds] if turn else []
        same.append(float((found["ours"] == found["faiss"]).mean()))
    print(json.dumps({**medians(took), "same": round(statistics.mean(same), 5)}))


def medians(took: dict[str, list[Took]]) -> dict[str, float]:
    """Seconds of a chunk, and ratios to faiss."""
    found = {f"{name}, s / chunk": statistics.median(one.wall for one in all_) for name, all_ in took.items()}
    for kind in ("wall", "cpu"):
        pairs = zip(took["ours"], took["faiss"], strict=True)
        ratios = [getattr(ours, kind) / getattr(faiss, kind) for ours, faiss in pairs]
        found[f"ratio, {kind}"] = statistics.median(ratios)
        found |= {f"lowest ratio, {kind}": min(ratios), f"highest ratio, {kind}": max(ratios)}
    return {name: round(value, 3) for name, value in found.items()}


def timed(work: Callable[[], np.ndarray]) -> tuple[Took, np.ndarray]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Took(time.perf_counter() - wall, time.process_time() - cpu), result


if __name__ == "__main__":
    main()
