"""A record's batch is its own: a keyed function of the record alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palimpsest.prediction.cells import SCHEME, Cells, part
from palimpsest.privacy.rows import PrivateRow

CELLS = Cells({"a": 3, "b": 5}, {"a": 2, "b": 5}, bytes(32))
RECORDS = st.builds(PrivateRow, st.text(max_size=6), st.sampled_from(["a", "b", "unheard of", "", None]))
ANY_CELLS = st.builds(
    lambda a, b, left, key: Cells({"a": a, "b": b}, {"a": max(1, a - left), "b": b}, key),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 3),
    st.binary(min_size=32, max_size=32),
)


def cell(cells: Cells, *own: PrivateRow) -> int | None:
    """The batch of one unit of privacy, by its rows."""
    found = cells.of(own)
    return None if found is None else found[0]


def batches(cells: Cells, rows: Sequence[PrivateRow]) -> dict[int, Counter[PrivateRow]]:
    found: dict[int, Counter[PrivateRow]] = {}
    for row in rows:
        place = cell(cells, row)
        if place is not None:
            found.setdefault(place, Counter())[row] += 1
    return found


@settings(deadline=None)
@given(ANY_CELLS, st.lists(RECORDS, max_size=12), RECORDS, st.integers(0, 12))
def test_a_record_changes_one_batch_by_itself(cells, rows, extra, place) -> None:
    before, after = batches(cells, rows), batches(cells, [*rows[:place], extra, *rows[place:]])
    changed = [batch for batch in after if after[batch] != before.get(batch, Counter())]
    own = cell(cells, extra)
    assert changed == ([] if own is None else [own])
    for batch in changed:
        assert after[batch] - before.get(batch, Counter()) == Counter([extra])


@settings(deadline=None)
@given(ANY_CELLS, RECORDS)
def test_a_batch_is_of_the_records_label_or_there_is_none(cells, row) -> None:
    place = cell(cells, row)
    if place is None:
        assert row.label not in cells.counts or cells.used[row.label] < cells.counts[row.label]
    else:
        assert cells.labels[place] == row.label


def test_batches_are_label_after_label() -> None:
    assert CELLS.labels == ("a", "a", "b", "b", "b", "b", "b")


def test_records_spread_evenly_and_some_over_batches_that_are_not_written_from() -> None:
    found = Counter(cell(CELLS, PrivateRow(f"text {number}", "a")) for number in range(6000))
    assert set(found) == {0, 1, None}
    assert stats.chisquare(list(found.values())).pvalue > 1e-6
    found = Counter(cell(CELLS, PrivateRow(f"text {number}", "b")) for number in range(6000))
    assert set(found) == {2, 3, 4, 5, 6}
    assert stats.chisquare(list(found.values())).pvalue > 1e-6


def test_another_key_gives_unrelated_batches() -> None:
    other = replace(CELLS, key=bytes([1] * 32))
    rows = [PrivateRow(f"text {number}", "b") for number in range(5000)]
    same = sum(cell(CELLS, row) == cell(other, row) for row in rows)
    assert 800 < same < 1200


@pytest.mark.parametrize("label", ["unheard of", "", None])
def test_unknown_labels_are_in_no_batch(label: str | None) -> None:
    assert cell(CELLS, PrivateRow("a text", label)) is None


def test_without_labels_every_record_has_a_batch() -> None:
    cells = Cells({"": 4}, {"": 4}, bytes(32))
    assert cells.labels == ("",) * 4
    rows = [PrivateRow(f"text {number}", label) for number in range(200) for label in (None, "free text")]
    assert {cell(cells, row) for row in rows} == {0, 1, 2, 3}
    assert any(cell(cells, rows[at]) != cell(cells, rows[at + 1]) for at in range(0, 400, 2))


@pytest.mark.parametrize("used", [0, 4, -1])
def test_numbers_that_name_no_batch_are_refused(used: int) -> None:
    with pytest.raises(ValueError, match="used"):
        Cells({"a": 3}, {"a": used}, bytes(32))


def test_parts_that_hold_other_batches_have_other_names() -> None:
    assert part(0, 4)[0] == part(4, 8)[0] == SCHEME
    assert len({part(0, 4)[1], part(4, 8)[1], part(0, 48)[1]}) == 3
