"""End-to-end audits of every method over many seeds: how often a twin is caught, and the code as it is refuted.

    OMP_NUM_THREADS=1 python -m bench.twins [--seeds 20] [--methods select evolve ...]

For each method and seed new canaries, models and coins are made; the method's own stages run on them in a temporary
workspace, as they are and once with each planted fault (`palimpsest.twins`). Prints a table: for the code as it
is, and for each fault, how many runs were refuted, the right guesses of 200 (fewest, mean, most), and the CPU seconds
of one run. Reads nothing but params.yaml.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.params.load import load
from palimpsest.twins.result import ALPHA, TwinAudit
from palimpsest.twins.scenes import COINS, SCENES
from stages.twins import audited


@dataclass(frozen=True)
class Line:
    """One row of the table.

    Attributes:
        method: whose code ran.
        fault: what was wrong; "none" for the code as it is.
        refuted: runs whose claim was refuted.
        correct: right guesses of each run.
        seconds: CPU seconds of a run, on average over the method's.
    """

    method: str
    fault: str
    refuted: int
    correct: Sequence[int]
    seconds: float

    def __str__(self) -> str:
        fewest, mean, most = min(self.correct), sum(self.correct) / len(self.correct), max(self.correct)
        return (
            f"| {self.method} | {self.fault} | {self.refuted}/{len(self.correct)} | {fewest} / {mean:.0f} / {most} "
            f"| {self.seconds:.2f} |"
        )


def lines(method: str, seeds: int) -> list[Line]:
    """The rows of one method."""
    params, start = load(), time.process_time()
    found = [audited(SCENES[method](seed), params.model_copy(update={"seed": seed})) for seed in range(seeds)]
    seconds = (time.process_time() - start) / sum(1 + len(one.twins) for one in found)
    own = Line(method, "none", sum(one.trial.refuted for one in found), [one.trial.correct for one in found], seconds)
    return [own, *(Line(method, fault, *counts, seconds) for fault, counts in _by_fault(found).items())]


def _by_fault(found: Sequence[TwinAudit]) -> Mapping[str, tuple[int, list[int]]]:
    faults = [twin.fault for twin in found[0].twins]
    columns = zip(*(one.twins for one in found), strict=True)
    return {
        fault: (sum(twin.caught for twin in own), [twin.trial.correct for twin in own])
        for fault, own in zip(faults, columns, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--methods", nargs="+", choices=list(SCENES), default=list(SCENES))
    asked = parser.parse_args()
    print(f"{COINS} canaries, every coin guessed, alpha {ALPHA:g}\n")
    print("| method | fault | refuted | right guesses | seconds |\n|---|---|---|---|---|")
    for method in asked.methods:
        for line in lines(method, asked.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
