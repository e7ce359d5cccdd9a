"""Plants near copies of private records, which an attack must find before its silence says anything.

An attack that cannot read texts of a kind finds nothing in any release. So each one is tried on rows that do repeat
records of the data's own language, and where it does not find them it cannot judge.
"""

import numpy as np

from palimpsest.audit.units import Released
from palimpsest.records.record import Record

_MOST = 100  # records that are copied, and as many that are not
_PUBLIC = 2000  # public texts that copies are compared with
_MISTYPED = 0.1  # share of a copy's signs that are replaced


def plant(released: Released, seed: int) -> Released:
    """Return a release of near copies of some records: these are its members, as many other records are not.

    Every tenth sign of a copy, on average, is another one of the same text: with copies to the letter an attack would
    find texts that it takes for a single word. Coins and rows of the given release play no part.
    """
    rng, records = np.random.default_rng(seed), released.records
    order = rng.permutation(len(records))
    most = min(_MOST, len(order) // 2)
    copied, others = ([records[place] for place in some] for some in (order[:most], order[most : 2 * most]))
    public = [released.public[place] for place in rng.permutation(len(released.public))[:_PUBLIC]]
    return Released([Record(_mistype(one.text, rng), one.label) for one in copied], copied, others, public)


def _mistype(text: str, rng: np.random.Generator) -> str:
    signs = np.array(list(text))
    letters = np.flatnonzero([sign.isalpha() for sign in signs])
    wrong = letters[rng.random(len(letters)) < _MISTYPED]
    if len(wrong):
        signs[wrong] = signs[rng.choice(letters, len(wrong))]
    return "".join(signs.tolist())
