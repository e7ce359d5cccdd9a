"""What a run of all mutants came to, as a page. Outcomes on invented data: publishable."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.mutants.listing import RANDOMISED, TIERS, Listing, Mutant
from bench.mutants.trial import FAILED, PASSED, Outcome

KILLED = "✗ killed"
_WORDS = {FAILED: KILLED, PASSED: "not noticed"}

Outcomes = Mapping[tuple[str, str], Outcome]  # (mutant, tier) -> what its tests came to


def killed(mutant: Mutant, outcomes: Outcomes) -> bool:
    """Whether the tests of some tier noticed the mutant."""
    return any(outcomes[mutant.id, tier].kind == FAILED for tier in mutant.tests)


def summary(listing: Listing, outcomes: Outcomes, repeats: Mapping[str, Any] | None, planted: int) -> str:
    """What mutants are, what came of all of them, and how many there are for each tier.

    Args:
        listing: all mutants.
        outcomes: of every tier that a mutant names.
        repeats: {"runs", "failures", "tests"} of the randomised tests on the code as it is; None where none ran.
        planted: how many mutants were planted in this run; what became of the others was known from earlier ones.
    """
    dead, every = sum(killed(mutant, outcomes) for mutant in listing.mutants), len(listing.mutants)
    head = [
        "# Mutants: faults planted in the privacy code, and the tests that notice them",
        "",
        "`make mutants` copies the project, plants one fault at a time in the source of the copy, and runs the tests "
        "that must notice it. A fault that no test notices is a missing test, and the target fails.",
        "",
        f"**{dead} of {every} mutants are killed ({dead / every:.0%}).** The "
        f"{len(listing.tests)} tests that must notice them pass on the code as it is."
        f"{_repeats(repeats)} {planted} were planted in one run, {every - planted} in others.",
        "",
        "A mutant is killed only where a test fails on what it asserts, or the code refuses to go on. "
        "`build/mutants.md` gets a row for each.",
        "",
    ]
    return "\n".join([*head, counts(listing)])


def counts(listing: Listing) -> str:
    """The table of the summary: how many mutants are for each tier."""
    tiers = [
        (f"**{tier}** {TIERS[tier]}", sum(tier in mutant.tests for mutant in listing.mutants))
        for tier in _tiers(listing)
    ]
    return _counted("tests that must notice", tiers)


def _counted(head: str, rows: Sequence[tuple[str, int]]) -> str:
    lines = [f"| {head} | mutants |", "|---|---|", *(f"| {words} | {number} |" for words, number in rows)]
    return "\n".join(lines) + "\n"


def _tiers(listing: Listing) -> list[str]:
    return [tier for tier in TIERS if any(tier in mutant.tests for mutant in listing.mutants)]


def page(listing: Listing, outcomes: Outcomes, repeats: Mapping[str, Any] | None, planted: int) -> str:
    """The summary, and a row for each mutant."""
    cells = (
        "An empty cell was not tried. In one that says `not noticed` the tier's tests passed, so that another had to.\n"
    )
    tables = "\n".join(_tables(listing, outcomes, _tiers(listing)))
    return "\n".join([summary(listing, outcomes, repeats, planted), cells, tables]).rstrip() + "\n"


def _repeats(repeats: Mapping[str, Any] | None) -> str:
    if repeats is None:
        return ""
    return (
        f" The {repeats['tests']} of {' and '.join(RANDOMISED)} that a draw decides ran {repeats['runs']} times on the "
        f"correct code, with fresh noise each time: {repeats['failures']} false alarms."
    )


def _tables(listing: Listing, outcomes: Outcomes, names: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for key, title in listing.items.items():
        lines += [f"## {_capital(title)}", "", f"| mutant | what it does | {' | '.join(names)} |"]
        lines.append(f"|---|---|{'---|' * len(names)}")
        lines += [_row(mutant, outcomes, names) for mutant in listing.mutants if mutant.item == key]
        lines.append("")
    return lines


def _row(mutant: Mutant, outcomes: Outcomes, names: Sequence[str]) -> str:
    kinds = [outcomes[mutant.id, tier].kind if tier in mutant.tests else "" for tier in names]
    cells = " | ".join(_WORDS.get(kind, kind) for kind in kinds)
    return f"| `{mutant.id}` | {mutant.sentence} *{mutant.law}* | {cells} |"


def _capital(title: str) -> str:
    return title[0].upper() + title[1:]
