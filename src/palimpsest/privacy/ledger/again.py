"""The word of the data's owner for a second charge of one run, in the environment of the process that reserves it."""

import re
from collections.abc import Iterable, Mapping

from palimpsest.privacy.ledger.records import Charge, canonical, digest_of

VARIABLE = "PALIMPSEST_CHARGE_AGAIN"  # the environment's: the word is a person's, and not a setting
_DIGITS = 12


def word(stage: str, variant: str, run_key: str, charges: Iterable[Charge]) -> str:
    """What the owner's word names: the stage, and all looks that were charged to this run so far.

    Guarantee: it holds for one further charge. As soon as that has begun, the word for the next one is another, so that
    one which a shell exported, or a schedule kept, pays for nothing more.
    """
    looks = sorted(charge.id for charge in charges if charge.run_key == run_key and charge.looked)
    return f"{stage}@{variant}:{digest_of(canonical({'run': run_key, 'looks': looks}))[:_DIGITS]}"


def given(variables: Mapping[str, str]) -> frozenset[str]:
    """The words in an environment, divided by commas or spaces."""
    return frozenset(filter(None, re.split(r"[\s,]+", variables.get(VARIABLE, ""))))
