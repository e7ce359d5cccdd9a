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


def page(listing: Listing, outcomes: Outcomes, repeats: Mapping[str, Any] | None, seconds: float) -> str:
    """The published page.

    Args:
        listing: all mutants.
        outcomes: of every tier that a mutant names.
        repeats: {"runs", "failures", "tests"} of the randomised tests on the code as it is; None where none ran.
        seconds: what all mutants took together.
    """
    dead, every = sum(killed(mutant, outcomes) for mutant in listing.mutants), len(listing.mutants)
    names = [tier for tier in TIERS if any(tier in mutant.tests for mutant in listing.mutants)]
    head = [
        "# Mutants: faults planted in the privacy code, and the tests that notice them",
        "",
        "`make mutants` copies the project, plants one fault at a time in the source of the copy, and runs the tests "
        "that must notice it. A fault that no test notices is a missing test, and the target fails.",
        "",
        f"**{dead} of {every} mutants are killed ({dead / every:.0%}).** The "
        f"{len(listing.tests)} tests that must notice them pass on the code as it is."
        f"{_repeats(repeats)} All runs together took {seconds / 60:.0f} minutes by the clock.",
        "",
        "A mutant counts as killed only where a test fails on what it asserts, or the code itself refuses to go on; "
        "one that merely crashes (a name or type error) counts as broken, and a run with such a one fails. Each mutant "
        "is run against the tiers that should notice it, not against all: an empty cell was not tried, and in one that "
        "says `not noticed` the tier's tests passed, so that another tier had to.",
        "",
        *(f"- **{tier}** {TIERS[tier]}" for tier in names),
        "",
    ]
    return "\n".join([*head, *_tables(listing, outcomes, names)]).rstrip() + "\n"


def _repeats(repeats: Mapping[str, Any] | None) -> str:
    if repeats is None:
        return ""
    return (
        f" The {repeats['tests']} of {' and '.join(RANDOMISED)} that a draw decides ran {repeats['runs']} times on the "
        f"correct code, with fresh noise each time: {repeats['failures']} false alarms. Those of T4 are "
        "repeated by `make test-slow`."
    )


def _tables(listing: Listing, outcomes: Outcomes, names: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for key, title in listing.items.items():
        lines += [f"## {title[0].upper()}{title[1:]}", "", f"| mutant | what it does | {' | '.join(names)} |"]
        lines.append(f"|---|---|{'---|' * len(names)}")
        lines += [_row(mutant, outcomes, names) for mutant in listing.mutants if mutant.item == key]
        lines.append("")
    return lines


def _row(mutant: Mutant, outcomes: Outcomes, names: Sequence[str]) -> str:
    kinds = [outcomes[mutant.id, tier].kind if tier in mutant.tests else "" for tier in names]
    return f"{named(mutant)}{' | '.join(_WORDS.get(kind, kind) for kind in kinds)} |"


def named(mutant: Mutant) -> str:
    """How the row of a mutant begins."""
    return f"| `{mutant.id}` | {mutant.sentence} *{mutant.law}* | "
