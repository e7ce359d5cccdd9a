"""Sequences that make their rows anew: the same rows as a list has, in the same order."""

from collections.abc import Sequence
from itertools import compress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.privacy.rows import PrivateRow
from palimpsest.records import write
from palimpsest.records.private import RawRow, SplitRow
from palimpsest.records.write import Chosen, Mapped, Packed

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ROWS = st.lists(st.builds(RawRow, TEXT, TEXT | st.none(), TEXT | st.none(), st.booleans()))


def same(made: Sequence[RawRow], rows: list[RawRow]) -> None:
    assert list(made) == rows == made
    assert [made[place] for place in range(-len(rows), len(rows))] == rows * 2
    assert made[1:-1] == rows[1:-1]
    assert made != [*rows, RawRow("one more")]
    with pytest.raises(IndexError):
        made[len(rows)]


@given(rows=ROWS, at_once=st.integers(1, 5), data=st.data())
def test_rows_are_those_of_the_list(rows: list[RawRow], at_once: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_PACKED_AT_ONCE", at_once)
        made = Packed.of(RawRow, iter(rows))
        same(made, rows)
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=bool)
        same(Chosen(made, mask), list(compress(rows, mask)))
        same(Mapped(lambda row, cut: RawRow(row.text, cut=bool(cut)), made, mask), [
            RawRow(row.text, cut=cut) for row, cut in zip(rows, mask.tolist(), strict=True)
        ])  # fmt: skip


def test_rows_of_another_kind_have_its_attributes() -> None:
    rows = Packed.of(SplitRow, [SplitRow("t", None, True, "p"), SplitRow("u", "a")])
    assert rows.convert(PrivateRow) == [PrivateRow("t", None, "p"), PrivateRow("u", "a", None)]


def test_no_text_is_shown() -> None:
    assert "secret" not in repr(Packed.of(RawRow, [RawRow("secret")]))
