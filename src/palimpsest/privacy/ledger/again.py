"""The owner's word for a second charge of one variant, in the environment of the process that reserves it."""

import re
from collections.abc import Iterable, Mapping

from palimpsest.privacy.ledger.records import Charge, Run, canonical_json, digest_of

VARIABLE = "PALIMPSEST_CHARGE_AGAIN"  # of the environment: the word is a person's, and no setting
_DIGITS = 12


def earlier_looks(run: Run, charges: Iterable[Charge]) -> list[Charge]:
    """Return the charges under which this stage and variant looked at these rows, whatever was asked."""
    own = (run.stage, run.variant, run.fingerprint)
    return [one for one in charges if one.looked and (one.stage, one.variant, one.fingerprint) == own]


def consent_word(run: Run, charges: Iterable[Charge]) -> str:
    """Return the owner's word. It names the run and all looks charged to its stage and variant on these rows so far.

    Guarantee: it holds for one further charge. As soon as that has begun, the word for the next one is another, so that
    one which a shell exported, or a schedule kept, pays for nothing more.
    """
    known = {"run": run.key, "looks": sorted(one.id for one in earlier_looks(run, charges))}
    return f"{run.stage}@{run.variant}:{digest_of(canonical_json(known))[:_DIGITS]}"


def read_words(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the words in an environment, divided by commas or spaces."""
    return frozenset(filter(None, re.split(r"[\s,]+", variables.get(VARIABLE, ""))))
