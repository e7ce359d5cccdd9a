"""Tables of fields and means of their values: one unit moves all together by at most 1, and noise is as charged.

Answers are whole steps of 1 / GRID times a public factor, so sensitivities are computed in integers.
"""

import math
from collections.abc import Sequence
from itertools import chain, combinations_with_replacement, product

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import ModelError
from palimpsest.privacy import tables
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.means import GRID
from palimpsest.privacy.query import is_for_persons, is_registered
from palimpsest.privacy.rows import PrivateRow, select_one_each, sort_unit
from palimpsest.privacy.tables import FieldMeans, FieldTables
from palimpsest.records.preprocess import cap_rows
from palimpsest.records.private import RawRow
from tests.privacy.persons import IDS, Noted

LABELS, SIZES = ("refund", "praise"), (2, 3)
TABLES = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
KINDS = [("refund", "0,0"), ("refund", "1,2"), ("praise", "0,2"), ("unheard of", "0,0"), (None, "1,1"), ("praise", "")]
VECTORS = {"0": [3.0, 4.0, 0.0], "1": [0.0, 0.0, 1e-200], "2": [np.nan, 1.0, 0.0], "3": [0.0, 0.0, 0.0]}


def encode(texts: Sequence[str]) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts])


def tables_of(sigma: float = 0.0, kind: type[FieldTables] = FieldTables) -> FieldTables:
    return kind(LABELS, SIZES, TABLES, sigma)


def means_of(sigma: float = 0.0) -> FieldMeans:
    return FieldMeans(LABELS, SIZES, encode, 3, sigma)


def row(kind: tuple[str | None, str], person: str | None = None, text: str = "0") -> PrivateRow:
    return PrivateRow(text, kind[0], person, kind[1])


def steps_of(query: FieldTables | FieldMeans, rows: Sequence[PrivateRow]) -> list[int]:
    """The exact answer in steps."""
    factor = query.std / query.sigma if query.sigma else (6**0.5 if isinstance(query, FieldTables) else 3**0.5)
    return [round(number / factor * GRID) for own in query.run(rows, NoiseSource()) for number in own]


def moved(query: FieldTables | FieldMeans, more: Sequence[PrivateRow], less: Sequence[PrivateRow]) -> int:
    """The squared distance of two answers in steps."""
    return sum((new - old) ** 2 for new, old in zip(steps_of(query, more), steps_of(query, less), strict=True))


def data_of(people: Sequence[Sequence[tuple[str | None, str]]]) -> list[PrivateRow]:
    return [row(kind, IDS[at]) for at, own in enumerate(people) for kind in own]


@pytest.mark.parametrize("query", [tables_of(), means_of()])
def test_a_record_moves_all_answers_together_by_at_most_one(query) -> None:
    for size in range(3):
        for kinds in combinations_with_replacement(KINDS, size):
            rows = [row(kind) for kind in kinds]
            assert all(moved(query, [*rows, row(kind)], rows) <= GRID**2 for kind in KINDS)


@pytest.mark.parametrize("query", [tables_of(), means_of()])
def test_a_person_moves_all_answers_together_by_at_most_one(query) -> None:
    everyone = list(chain(*(combinations_with_replacement(KINDS, size) for size in range(4))))
    for other, own in product(everyone[:8], everyone):
        assert moved(query, data_of([other, own]), data_of([other])) <= GRID**2
    assert is_registered(query)
    assert is_for_persons(query)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(KINDS), max_size=6), st.lists(st.sampled_from(sorted(VECTORS)), min_size=6, max_size=6))
def test_whatever_the_vectors_and_rows_of_a_person_are(kinds, texts) -> None:
    own = [row(kind, IDS[0], text) for kind, text in zip(kinds, texts, strict=False)]
    other = [row(("refund", "1,1"), IDS[1])]
    assert moved(means_of(), [*other, *own], other) <= GRID**2


def test_counts_are_those_of_the_rows() -> None:
    rows = [row(KINDS[0]), row(KINDS[0]), row(KINDS[1]), row(KINDS[2]), *map(row, KINDS[3:])]
    answer = [np.array(own).round(6).tolist() for own in tables_of().run(rows, NoiseSource())]
    assert answer[:3] == [[3.0, 1.0], [3.0, 1.0], [2.0, 0.0, 2.0]]
    assert answer[4] == [2.0, 0.0, 1.0, 0.0, 0.0, 1.0]  # label by second field, the field running fastest


def test_sums_are_of_vectors_of_length_one() -> None:
    answer = np.array(means_of().run([row(KINDS[0]), row(KINDS[0]), row(KINDS[3])], NoiseSource()))
    assert np.allclose(answer[[0, 2, 4]], [1.2, 1.6, 0.0], atol=1e-6)
    assert not answer[[1, 3, 5, 6]].any()


@pytest.mark.parametrize("query", [tables_of(2.5), means_of(2.5)])
def test_noise_is_what_is_charged(query) -> None:
    noted = Noted()
    query.run([row(KINDS[0])], noted)
    count = sum(math.prod((2, 2, 3)[axis] for axis in axes) for axes in TABLES) if query.name == "field_tables" else 21
    assert noted.drawn == [(count, 2.5 * GRID)]
    assert query.event() == dpa.GaussianDpEvent(2.5)


def test_an_exact_answer_is_not_private() -> None:
    assert isinstance(tables_of().event(), dpa.NonPrivateDpEvent)
    assert not tables_of().stores_answer


@pytest.mark.parametrize(
    "wrong",
    [
        {"tables": ((0,), (0,))},
        {"tables": ((1, 1),)},
        {"labels": ("refund", "refund")},
        {"sigma": -1.0},
        {"sizes": (2**11, 2**10), "tables": ((1, 2),)},
    ],
)
def test_what_would_count_twice_or_too_much_is_refused(wrong) -> None:
    asked = {"labels": LABELS, "sizes": SIZES, "tables": TABLES, "sigma": 1.0} | wrong
    with pytest.raises(ValueError, match=r"must|cells|sigma"):
        FieldTables(**asked)


def test_no_error_quotes_a_row() -> None:
    query = FieldMeans(LABELS, SIZES, lambda texts: np.zeros((len(texts), 2)), 3, 1.0)
    with pytest.raises(ModelError) as caught:
        query.run([PrivateRow("a secret", "refund", None, "0,0")], NoiseSource())
    assert "secret" not in str(caught.value)


def test_parts_that_are_counted_apart_add_up(monkeypatch) -> None:
    rows = [row(KINDS[at % 3]) for at in range(50)]
    whole = [query.run(rows, NoiseSource()) for query in (tables_of(), means_of())]
    monkeypatch.setattr(tables, "_AT_ONCE", 8)
    assert [query.run(rows, NoiseSource()) for query in (tables_of(), means_of())] == whole


def test_rows_of_a_person_that_differ_in_their_fields_alone_stand_in_no_order_of_the_file() -> None:
    own = [row(("refund", cells), IDS[0]) for cells in ("0,0", "0,1", "1,2")]
    assert sort_unit(own) == sort_unit(own[::-1])
    assert select_one_each(own) == select_one_each(own[::-1])
    raw = [RawRow("a", "refund", "me", fields=cells) for cells in ("0,0", "0,1", "1,2")]
    kept = [{one.fields for one in cap_rows(some, bytes(32), 1)} for some in (raw, raw[::-1])]
    assert kept[0] == kept[1]
