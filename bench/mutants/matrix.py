"""What a run of all mutants came to, as plain values and as a page. Outcomes on invented data: publishable."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.mutants.listing import RANDOMISED, TIERS, Listing, Mutant
from bench.mutants.trial import FAILED, PASSED, Outcome

_WORDS = {FAILED: "killed", PASSED: "not noticed"}
_SIGNS = {"killed": "✗ killed", "not noticed": "not noticed"}

Outcomes = Mapping[tuple[str, str], Outcome]  # (mutant, tier) -> what its tests came to


def killed(mutant: Mutant, outcomes: Outcomes) -> bool:
    """Whether the tests of some tier noticed the mutant."""
    return any(outcomes[mutant.id, tier].kind == FAILED for tier in mutant.tests)


def body(listing: Listing, outcomes: Outcomes, repeats: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
    """The published JSON.

    Args:
        listing: all mutants.
        outcomes: of every tier that a mutant names.
        repeats: {"runs", "failures", "tests"} of the randomised tests on the code as it is; None where none ran.
        seconds: what all mutants took together.
    """
    dead = sum(killed(mutant, outcomes) for mutant in listing.mutants)
    return {
        "zone": "publishable",
        "score": {"mutants": len(listing.mutants), "killed": dead, "share": dead / len(listing.mutants)},
        "tiers": TIERS,
        "items": dict(listing.items),
        "mutants": [_line(mutant, outcomes) for mutant in listing.mutants],
        "unmutated": {"tests": len(listing.tests), "passed": True},
        "repeats": repeats,
        "seconds": round(seconds),
    }


def _line(mutant: Mutant, outcomes: Outcomes) -> dict[str, Any]:
    found = {tier: outcomes[mutant.id, tier] for tier in mutant.tests}
    return {
        "id": mutant.id,
        "item": mutant.item,
        "sentence": mutant.sentence,
        "law": mutant.law,
        "files": list(mutant.files),
        "killed": killed(mutant, outcomes),
        "tiers": {tier: _WORDS.get(one.kind, one.kind) for tier, one in found.items()},
        "by": {tier: one.test for tier, one in found.items() if one.kind == FAILED},
    }


def page(found: Mapping[str, Any]) -> str:
    """The same as Markdown."""
    score, tiers = found["score"], found["tiers"]
    names = [tier for tier in tiers if any(tier in one["tiers"] for one in found["mutants"])]
    head = [
        "# Mutants: faults planted in the privacy code, and the tests that notice them",
        "",
        "`make mutants` copies the project, plants one fault at a time in the source of the copy, and runs the tests "
        "that must notice it. A fault that no test notices is a missing test, and the target fails.",
        "",
        f"**{score['killed']} of {score['mutants']} mutants are killed ({score['share']:.0%}).** The "
        f"{found['unmutated']['tests']} tests that must notice them pass on the code as it is."
        f"{_repeats(found['repeats'])} All runs together took {found['seconds'] / 60:.0f} minutes by the clock.",
        "",
        "A mutant counts as killed only where a test fails on what it asserts, or the code itself refuses to go on; "
        "one that merely crashes (a name or type error) counts as broken, and a run with such a one fails. Each mutant "
        "is run against the tiers that should notice it, not against all: an empty cell was not tried, and in one that "
        "says `not noticed` the tier's tests passed, so that another tier had to.",
        "",
        *(f"- **{tier}** {tiers[tier]}" for tier in names),
        "",
    ]
    return "\n".join([*head, *_tables(found, names)]).rstrip() + "\n"


def _repeats(repeats: Mapping[str, Any] | None) -> str:
    if repeats is None:
        return ""
    return (
        f" The {repeats['tests']} of {' and '.join(RANDOMISED)} that a draw decides ran {repeats['runs']} times on the "
        f"correct code, with fresh noise each time: {repeats['failures']} false alarms. Those of T4 are "
        "repeated by `bench/twins.py`."
    )


def _tables(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for key, title in found["items"].items():
        lines += [f"## {title[0].upper()}{title[1:]}", "", f"| mutant | what it does | {' | '.join(names)} |"]
        lines.append(f"|---|---|{'---|' * len(names)}")
        for one in (one for one in found["mutants"] if one["item"] == key):
            cells = [_SIGNS.get(one["tiers"].get(tier, ""), one["tiers"].get(tier, "")) for tier in names]
            lines.append(f"| `{one['id']}` | {one['sentence']} *{one['law']}* | {' | '.join(cells)} |")
        lines.append("")
    return lines
