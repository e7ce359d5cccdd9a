"""What must hold after a blow: the next run finishes, nothing differs that need not, and the books are right."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from bench.chaos.place import ASSET, SELECTED, Place
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.receipt import read_receipt
from palimpsest.workspace import RECEIPTS

# What no noise and no run decides; and what noise alone decides, so that a seed for it makes it the same. A training
# draws stand-ins of labels from the system's entropy besides.
FIXED = ("data/public", "data/private/*.parquet", "data/private/manifest.json", "models/base", "data/synthetic/public*")
NOISY = (f"data/synthetic/{SELECTED}.*",)


def digests(place: Place, patterns: Collection[str]) -> dict[str, str]:
    """Path -> hash of each file that the patterns find, folders with all that is in them."""
    found = (path for pattern in patterns for path in place.workspace.glob(pattern))
    files = (file for path in found for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    names = {file.relative_to(place.workspace).as_posix(): file for file in files}
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in names.items() if ".git" not in name}


def differing(ours: Mapping[str, str], clean: Mapping[str, str]) -> list[str]:
    """Names of the files that are not the same on both sides."""
    return sorted(name for name in {*ours, *clean} if ours.get(name) != clean.get(name))


def uncovered(place: Place, before: Sequence[Charge]) -> list[str]:
    """What the ledger should count and does not: of the receipts, and of what had begun when the blow fell."""
    now = {charge.id: charge for charge in place.charges}
    gone = [f"{one.query} of {one.variant}" for one in before if one.looked and not _counts(now.get(one.id))]
    spent, told = place.ledger.balance(ASSET).spent, []
    for path in (place.workspace / RECEIPTS).rglob("*.json"):
        receipt = read_receipt(path)
        problems = list(receipt.problems(place.ledger.asset(ASSET), list(now.values())))
        dearer = receipt.epsilon is not None and receipt.zone != "private" and receipt.epsilon > spent
        told += [f"receipt {path.stem}: {problem}" for problem in problems] + [f"{path.stem} > total"] * dearer
    return gone + told


def _counts(charge: Charge | None) -> bool:
    return charge is not None and charge.looked


def charged_twice(before: Sequence[Charge], after: Sequence[Charge]) -> list[str]:
    """Queries that were answered or committed when the blow fell, and were charged once more after it."""
    done = {(one.run_key, one.index) for one in before if one.state in ("answered", "committed")}
    count = Counter((one.run_key, one.index) for one in after if one.state in ("answered", "committed"))
    names = {(one.run_key, one.index): f"{one.query} of {one.variant}" for one in after}
    return sorted(names[key] for key in done if count[key] > 1)


def lost(before: Sequence[Charge], after: Sequence[Charge]) -> int:
    """Queries that had begun when the blow fell and were charged again, as they must be where nothing was kept."""
    unfinished = {one.id for one in after if one.state == "begun"}
    return sum(one.id in unfinished for one in before)
