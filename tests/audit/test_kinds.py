"""Kinds of records as people have them: each is judged, or a sentence says why it cannot be; none passes unread."""

import numpy as np
import pytest

from bench.scripts import GRAMMARS, draw_records
from palimpsest.audit.membership import bag_of_words_control
from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.text_membership import text_attacks
from palimpsest.audit.units import Released, find_planted, finds_copies, plant
from palimpsest.errors import DataError
from palimpsest.records.duplicates import find_guessable
from palimpsest.records.record import Record

SIDE = 80
RNG = np.random.default_rng(0)


def judge(texts: list[str]) -> dict[str, bool]:
    """Go the way of the stages, from private texts to what judges: attack or n -> whether it finds copies."""
    kept = [text for text, guess in zip(texts, find_guessable(texts, similarity=0.6, shingle=3), strict=True) if guess]
    records = [Record(text, "good") for text in kept]
    half = len(records) // 2
    released = Released([Record("another text", "good")], records[:half], records[half:], ["some public text"])
    bag_of_words_control([one.text for one in released.members], [one.text for one in released.nonmembers], seed=0)
    found = find_planted(text_attacks(plant(released, 0), order=3, labelled=False, seed=0))
    orders = ngram_audit(released, [], [5], Bootstrap(resamples=128, seed=0)).orders
    return {name: finds_copies(auc) for name, auc in found.items()} | {"5-grams": orders[5].judges}


def documents(words: int) -> list[str]:
    """Texts of so many words."""
    return [" ".join(f"w{word}" for word in RNG.zipf(1.3, words) % 5000) for _ in range(2 * SIDE)]


@pytest.mark.parametrize("script", ["Chinese", "Hindi", "Thai"])
def test_short_texts_of_other_scripts_are_judged(script: str) -> None:
    texts = [row.text for row in draw_records(GRAMMARS[script], 4 * SIDE, RNG)]
    assert sum(judge(texts).values()) >= 4


@pytest.mark.slow
def test_long_documents_are_judged() -> None:
    assert all(judge(documents(2000)).values())


def test_short_titles_are_judged_by_attacks_and_not_by_long_ngrams() -> None:
    found = judge([f"{one} x{number}" for number, one in enumerate(documents(2))])
    assert found.pop("5-grams") is False
    assert any(found.values())


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["👍" * (1 + number % 7) for number in range(4 * SIDE)], "no member or no non-member|holds? no word"),
        ([("Thank you, we will look into it.", "Your ticket is closed.")[number % 2] for number in range(4 * SIDE)],
         "no member or no non-member"),
    ],
    ids=["without a word", "canned answers"],
)  # fmt: skip
def test_what_cannot_be_judged_is_told(texts: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        judge(texts)
