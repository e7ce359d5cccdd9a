"""Plant every mutant, run the tests that must notice it, and write down the matrix.

    python -m bench.mutants                    # all, going on where an earlier run stopped
    python -m bench.mutants --only votes       # those whose name or item has this in it
    python -m bench.mutants --seeds 20 --write   # writes docs/lab/mutants.md and build/mutants.md too

Ends with status 1 if the unmutated code fails, if a mutant survives or does not run, or if a randomised test fails on
the correct code.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.mutants import matrix
from bench.mutants.listing import ROOT, Listing, Mutant, read
from bench.mutants.trial import FAILED, PASSED, Copy, Outcome, copied
from palimpsest.files import read_json, write_json
from palimpsest.progress import track

SUMMARY = ROOT / "docs" / "lab" / "mutants.md"


def main() -> None:
    """See the module."""
    args = parse()
    listing = chosen(read(), args.only)
    book = Book.at(args.work / "results.json", fresh=args.fresh)
    with copied(ROOT, args.timeout) as copy:
        require_sound(listing, copy, book)
        outcomes, planted_now = tried(listing, copy, book)
        repeats = repeated(listing, copy, book, args.seeds) if args.seeds else None
    if args.write and not args.only:
        run = listing, outcomes, repeats, len(planted_now)
        SUMMARY.write_text(matrix.summary(*run), encoding="utf-8")
        args.write.mkdir(parents=True, exist_ok=True)
        (args.write / "mutants.md").write_text(matrix.page(*run), encoding="utf-8")
    sys.exit(told(listing, outcomes, repeats))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="plant only mutants whose name or item contains this")
    parser.add_argument("--seeds", type=int, default=0, help="repeat the randomised tests on the correct code")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run of tests")
    parser.add_argument("--work", type=Path, default=ROOT / "mutants", help="where finished runs are kept")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=ROOT / "build",
        help="write the summary, and mutants.md into this folder, else into build/",
    )  # fmt: skip
    return parser.parse_args()


def chosen(listing: Listing, only: str) -> Listing:
    """Those whose name or item contains a word."""
    found = tuple(one for one in listing.mutants if only in one.id or only in one.item)
    return replace(listing, mutants=found)


@dataclass(frozen=True)
class Book:
    """What earlier runs found, by a digest of all that they hang on: a stopped run loses none of it."""

    path: Path
    known: dict[str, Outcome]

    @classmethod
    def at(cls, path: Path, fresh: bool) -> "Book":
        """The book of that file; empty where there is none."""
        body = {} if fresh or not path.is_file() else read_json(path)
        return cls(path, {key: Outcome(**one["outcome"]) for key, one in body.items()})

    def once(self, key: str, run: Callable[[], Outcome]) -> Outcome:
        """What the run of this key came to; it is made where the book has none."""
        if key not in self.known:
            self.known[key] = run()
            self._write()
        return self.known[key]

    def forget(self, key: str) -> None:
        """Make the run of this key again next time."""
        del self.known[key]
        self._write()

    def _write(self) -> None:
        write_json(self.path, {key: {"outcome": asdict(one)} for key, one in self.known.items()})


def digest(root: Path, body: object, *files: str) -> str:
    """Of a plain value and the contents of files."""
    found = hashlib.sha256(json.dumps(body).encode())
    for file in sorted(set(files)):
        found.update((root / file).read_bytes())
    return found.hexdigest()


def sources(root: Path) -> list[str]:
    """Every file of code."""
    return [path.relative_to(root).as_posix() for folder in ("src", "stages") for path in (root / folder).rglob("*.py")]


def files_of(tests: Iterable[str]) -> list[str]:
    """The files of node ids."""
    return [node.split("::")[0] for node in tests]


def require_sound(listing: Listing, copy: Copy, book: Book) -> None:
    """End the run where a test fails on the code as it is: it would notice anything."""
    by_file = {file: list(tests) for file, tests in groupby(listing.tests, key=lambda node: node.split("::")[0])}
    code = sources(copy.folder)
    for file, tests in track(by_file.items(), name="unmutated", total=len(by_file), private=False, unit="file"):
        key = digest(copy.folder, ["unmutated", tests], file, *code)
        found = book.once(key, partial(copy.run, tests, stop=False))
        if found.kind != PASSED:
            book.forget(key)
            sys.exit(f"the unmutated code fails ({found.kind}): {found.why}")


def tried(listing: Listing, copy: Copy, book: Book) -> tuple[dict[tuple[str, str], Outcome], set[str]]:
    """What every mutant came to in every tier that it names, and the mutants that were planted for it in this run."""
    jobs = [(mutant, tier) for mutant in listing.mutants for tier in mutant.tests]
    found, now = {}, set[str]()
    for mutant, tier in track(jobs, name="mutants", total=len(jobs), private=False, unit="run"):
        tests = mutant.tests[tier]
        body = [asdict(mutant)["edits"], list(tests)]
        key = digest(copy.folder, body, *mutant.files, *files_of(tests))
        now |= set() if key in book.known else {mutant.id}
        found[mutant.id, tier] = book.once(key, partial(planted, mutant, tier, copy))
    return found, now


def planted(mutant: Mutant, tier: str, copy: Copy) -> Outcome:
    """One mutant against the tests of one tier."""
    with copy.mutated(mutant):
        outcome = copy.run(mutant.tests[tier])
    print(f"{mutant.id} {tier}: {outcome.kind} {outcome.why}", flush=True)
    return outcome


def repeated(listing: Listing, copy: Copy, book: Book, runs: int) -> dict[str, Any]:
    """The randomised tests on the correct code, again and again: every failure is a false alarm."""
    tests, code = listing.randomised, sources(copy.folder)
    alarms = 0
    for number in track(range(runs), name="correct code", total=runs, private=False, unit="run"):
        key = digest(copy.folder, ["repeated", number, tests], *code, *files_of(tests))
        found = book.once(key, partial(copy.run, tests, stop=False))
        alarms += found.kind != PASSED
        if found.kind != PASSED:
            print(f"false alarm: {found.why}", flush=True)
    return {"runs": runs, "failures": alarms, "tests": len(tests)}


def told(listing: Listing, outcomes: matrix.Outcomes, repeats: dict[str, Any] | None) -> int:
    """Say what is wrong; the exit status."""
    alive = [mutant.id for mutant in listing.mutants if not matrix.killed(mutant, outcomes)]
    broken = [f"{name} {tier}" for (name, tier), one in outcomes.items() if one.kind not in (PASSED, FAILED)]
    print(f"{len(listing.mutants) - len(alive)} of {len(listing.mutants)} mutants killed")
    for words, names in (("survived", alive), ("did not run", broken)):
        if names:
            print(f"{words}: {', '.join(names)}")
    return int(bool(alive or broken or (repeats and repeats["failures"])))


if __name__ == "__main__":
    main()
