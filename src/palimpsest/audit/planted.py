"""Plants near copies of private records, which an attack must find before its silence says anything.

An attack that cannot read texts of a kind finds nothing in any release. So each one is tried on rows that do repeat
records of the data's own language, and where it does not find them it cannot judge.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from palimpsest.audit.statistics import Estimate, auc_with_interval
from palimpsest.audit.units import Released, Scores
from palimpsest.errors import DataError
from palimpsest.records.record import Record
from palimpsest.records.segment import find_words

_MOST = 100  # records that are copied, and as many that are not
_PUBLIC = 2000  # public texts that copies are compared with
_MISTYPED = 0.1  # share of a copy's signs that are replaced


def draw_sides(
    records: Sequence[Record], seed: int | np.random.Generator, most: int = _MOST
) -> tuple[list[Record], list[Record]]:
    """Draw records to plant, at most so many, and as many others."""
    order = np.random.default_rng(seed).permutation(len(records))
    most = min(most, len(order) // 2)
    return [records[place] for place in order[:most]], [records[place] for place in order[most : 2 * most]]


def mistype(text: str, rng: np.random.Generator) -> str:
    """Return the text with every tenth sign, on average, replaced by another one of the same text."""
    signs = np.array(list(text))
    letters = np.flatnonzero([sign.isalpha() for sign in signs])
    wrong = letters[rng.random(len(letters)) < _MISTYPED]
    if len(wrong):
        signs[wrong] = signs[rng.choice(letters, len(wrong))]
    return "".join(signs.tolist())


def cut(text: str, _: np.random.Generator) -> str:
    """Return the text without its last tenth of words, one at least; a single word loses its second half."""
    starts = [start for start, _ in find_words(text)]
    return text[: starts[-max(1, len(starts) // 10)]] if len(starts) > 1 else text[: len(text) // 2]


def plant(released: Released, seed: int, spoil: Callable[[str, np.random.Generator], str] = mistype) -> Released:
    """Return a release of near copies of some records: these are its members, as many other records are not.

    With copies to the letter an attack would find texts that it takes for a single word, so each copy is spoilt. Coins
    and rows of the given release play no part.
    """
    rng = np.random.default_rng(seed)
    copied, others = draw_sides(released.records, rng)
    public = [released.public[place] for place in rng.permutation(len(released.public))[:_PUBLIC]]
    return Released([Record(spoil(one.text, rng), one.label) for one in copied], copied, others, public)


def find_planted(attacks: Mapping[str, Scores], model: str = "encoder") -> dict[str, Estimate]:
    """Return how well each attack tells planted records from others: its AUC, by its scores on these.

    Args:
        model: the key, among `models`, of the model by which the attacks read texts.

    Raises:
        DataError: no attack tells them, so none could have seen a leak.
    """
    found = {name: auc_with_interval(scores.members, scores.nonmembers) for name, scores in attacks.items()}
    if not any(map(finds_copies, found.values())):
        raise DataError(
            "No attack finds such records, planted to try it, so none can judge.",
            f"Name a model for the language of the texts (models.{model}), or audit more or longer texts.",
        )
    return found


def finds_copies(planted: Estimate) -> bool:
    """Tell whether an attack found what was planted; its silence says nothing where it did not."""
    return planted.low > 0.5
