"""With a unit column the person is the unit: small worlds with and without a whole person, from file to split."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from palimpsest.errors import DataError
from palimpsest.records.duplicates import find_guessable
from palimpsest.records.preprocess import Preprocessed, assign, cap_rows, person_id, preprocess, split_rows
from palimpsest.records.private import RawRow, SplitRow
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.schema import PublicSchema

KEY = bytes(range(32))
PEOPLE = ("ann", "bob", "cyd", "dan")
SAYINGS = (("a b c", "x"), ("a b c", "y"), ("d e f", "x"))
LIKENESS = partial(find_guessable, similarity=0.5, shingle=1)
ROW = st.builds(RawRow, st.sampled_from(["a b", "b a", "c", ""]), st.sampled_from("xy"), st.sampled_from(PEOPLE))
ROWS = st.lists(ROW | st.builds(RawRow, st.just("a b"), st.sampled_from("xy")), max_size=20)

Placed = Counter[tuple[str, str, str | None, str | None]]


def run(rows: Sequence[RawRow], cap: int = 2, *, n_persons: int = 4, size: int = 3, likeness: Any = LIKENESS) -> Any:
    schema = PublicSchema(
        "x", "classify", "text", 1000, 50, "label", {"x": "", "y": ""}, "who", cap, n_persons=n_persons
    )
    settings: dict[str, Any] = {"schema": schema, "key": KEY, "audit_size": size, "test_rate": 0.3, "batch_size": 1}
    return preprocess(rows, None, **settings, guessable=likeness)


def parts(done: Preprocessed) -> list[tuple[str, SplitRow]]:
    return [(name, row) for name in ("train", "holdout", "test") for row in getattr(done.split, name)]


def placed(done: Preprocessed) -> Placed:
    """Where each row went and whose it is: all but who may be guessed about."""
    return Counter((name, row.text, row.label, row.person) for name, row in parts(done))


def id_of(person: str) -> str:
    return person_id(RawRow("", None, person), KEY)


def said(person: str) -> list[list[RawRow]]:
    """All that one may have said: nothing to three rows."""
    rows = [RawRow(*saying, person) for saying in SAYINGS]
    return [[*own] for count in range(4) for own in combinations_with_replacement(rows, count)]


def worlds() -> Iterator[list[RawRow]]:
    """Two persons, one before the other, a third that is always there, and a row of nobody."""
    for first, second in product(said("ann"), said("bob")):
        yield [RawRow("a b c", "x"), *first, RawRow("g", "y", "cyd"), *second]


def hold_apart(rows: Sequence[RawRow], cap: int, person: str) -> None:
    """Without the person only their kept rows are missing, all from one part."""
    whole, fewer = placed(run(rows, cap)), placed(run([row for row in rows if row.unit != person], cap))
    gone = whole - fewer
    assert fewer <= whole
    assert {owner for _, _, _, owner in gone} <= {id_of(person)}
    assert len({part for part, _, _, _ in gone}) <= 1
    assert gone.total() == min(cap, sum(row.unit == person for row in rows))


@pytest.mark.parametrize("cap", [1, 2])
def test_without_a_person_every_part_lacks_their_rows_alone(cap: int) -> None:
    for rows in worlds():
        for person in ("ann", "bob"):
            hold_apart(rows, cap, person)


@given(ROWS, st.integers(1, 4), st.sampled_from(PEOPLE))
def test_without_a_person_nothing_else_moves_in_any_world(rows: list[RawRow], cap: int, person: str) -> None:
    hold_apart(rows, cap, person)


@given(ROWS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows: list[RawRow], cap: int, shuffler: Any) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert Counter(parts(run(shuffled, cap))) == Counter(parts(run(rows, cap)))


@given(ROWS, st.integers(1, 4))
def test_all_rows_of_a_person_go_one_way_and_share_one_mark(rows: list[RawRow], cap: int) -> None:
    ways: dict[str | None, set[tuple[str, bool]]] = {}
    for name, row in parts(run(rows, cap)):
        ways.setdefault(row.person, set()).add((name, row.guess))
    assert None not in ways
    assert all(len(way) == 1 for way in ways.values())


@given(st.lists(ROW, min_size=1, max_size=12), st.text(max_size=5), st.text(max_size=2) | st.none())
def test_where_a_person_goes_does_not_depend_on_what_the_rows_say(
    rows: list[RawRow], text: str, label: str | None
) -> None:
    for row in rows:
        assert assign(row, KEY, 0.7, 0.2) == assign(RawRow(text, label, row.unit), KEY, 0.7, 0.2)


def test_what_a_person_says_is_no_coin_of_a_record_and_names_have_draws_of_their_own() -> None:
    places = Counter(assign(RawRow("t", "x", str(i)), KEY, 0.4, 0.25) for i in range(20_000))
    counts = Counter({(place.part, place.audit): count for place, count in places.items()})
    cells = [("test", False), ("train", False), ("train", True), ("holdout", True)]
    assert set(counts) == set(cells)
    expected = [0.25 * 20_000, 0.45 * 20_000, 0.15 * 20_000, 0.15 * 20_000]
    assert chisquare([counts[cell] for cell in cells], expected).pvalue > 1e-6
    # A person who is called what a record says does not go where the record goes.
    agree = sum(assign(RawRow("", None, str(i)), KEY, 1, 0) == assign(RawRow(str(i)), KEY, 1, 0) for i in range(4000))
    assert binomtest(agree, 4000, 0.5).pvalue > 1e-6


@given(ROWS, st.integers(0, 5), st.integers(1, 3))
def test_rows_that_name_nobody_are_left_out_each_by_itself(rows: list[RawRow], more: int, cap: int) -> None:
    """However many there are and whatever they say: they are no person, so none of them is kept and none counts."""
    named = [row for row in rows if row.unit is not None]
    done, bare = run([*rows, *[RawRow("a b", "x")] * more], cap), run(named, cap)
    assert parts(done) == parts(bare)
    count = {name: done.report["rows"][name] - bare.report["rows"][name] for name in ("nobody", "over_cap", "read")}
    nobody = more + len(rows) - len(named)
    assert count == {"nobody": nobody, "over_cap": 0, "read": nobody}


def test_a_row_of_nobody_has_no_cap_and_no_id() -> None:
    for call in (partial(cap_rows, [RawRow("t")], KEY, 1), partial(person_id, RawRow("t"), KEY)):
        with pytest.raises(ValueError, match="nobody"):
            call()


def test_who_may_be_guessed_about_is_asked_of_the_rows_that_are_kept() -> None:
    """A row that the cap left out is in no part: it carries nobody's words into the training part."""
    asked: list[tuple[Sequence[str], list[str]]] = []

    def watched(texts: Sequence[str], persons: np.ndarray, audited: Any) -> Any:
        asked.append((texts, [person.ljust(32, b"\0").hex() for person in persons]))
        return LIKENESS(texts, persons, audited)

    for rows in worlds():
        asked.clear()
        done = run(rows, 1, likeness=watched)
        found = Counter((row.text, row.person) for _, row in parts(done))
        assert len(asked) == 1
        assert Counter(zip(*asked[0], strict=True)) == found
        assert max(Counter(asked[0][1]).values()) == 1


def test_the_audit_subset_is_drawn_from_persons_at_a_rate_of_persons() -> None:
    """All of them, where as many as there are persons are wanted, however many records there are."""
    rows = [RawRow(f"text {number}", "x", str(number % 40)) for number in range(400)]
    done = run(rows, 10, n_persons=40, size=40)
    assert done.report["rows"]["persons"] == 40
    assert done.split.audit_size + len({row.person for row in done.split.test}) == 40
    assert {row.guess for row in done.split.train} == {True}
    half = run([RawRow("t", "x", str(number)) for number in range(4000)], 1, n_persons=4000, size=2000)
    coins = half.split.audit_size
    assert binomtest(coins, 4000 - len(half.split.test), 0.5).pvalue > 1e-6


def test_rows_of_one_data_set_all_name_their_person_or_none() -> None:
    with pytest.raises(ValueError, match="all name their person"):
        split_rows([RawRow("t"), RawRow("t", None, "p")], KEY, 0.5, 0.5, LIKENESS(["t", "t"]))


@given(ROWS)
def test_without_a_unit_column_whom_a_row_names_does_not_matter(rows: list[RawRow]) -> None:
    schema = PublicSchema("x", "classify", "text", 40, 50, "label", {"x": "", "y": ""})
    settings: dict[str, Any] = {"schema": schema, "key": KEY, "audit_size": 20, "test_rate": 0.3, "batch_size": 1}
    bare = [RawRow(row.text, row.label) for row in rows]
    named, unnamed = (preprocess(each, None, **settings, guessable=LIKENESS) for each in (rows, bare))
    assert parts(named) == parts(unnamed)
    assert named.report == unnamed.report
    assert {row.person for _, row in parts(named)} <= {None}


def test_the_id_is_of_the_exact_value_under_the_key() -> None:
    names = ["ann", "Ann", "ann ", "\u00e4", "a\u0308", "1", "01"]
    ids = {person_id(RawRow("t", "x", name), key) for name in names for key in (KEY, bytes(32))}
    assert len(ids) == 2 * len(names)
    assert all(len(bytes.fromhex(each)) == 32 for each in ids)
    assert person_id(RawRow("t", "x", "ann"), KEY) == person_id(RawRow("other", None, "ann", cut=True), KEY)


# --- reading


@pytest.mark.parametrize("blank", ['""', '" "', '"\\t \\u00a0"', "null"])
def test_a_blank_name_is_nobody_and_is_dropped_or_refused_by_choice(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"t": "one", "who": " ann "}}\n{{"t": "SECRET", "who": {blank}}}\n')
    assert [row.unit for row in read_rows(path, ColumnNames("t", unit="who", nobody=True), 9)] == [" ann ", None]
    with pytest.raises(DataError) as caught:
        read_rows(path, ColumnNames("t", unit="who"), 9)
    assert "'rows.jsonl', row 2: column 'who' is empty" in caught.value.problem
    assert "missing: drop" in caught.value.remedy
    assert "SECRET" not in str(caught.value)


def test_a_line_without_the_key_is_nobodys_unless_no_line_has_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"t": "one", "who": 7}\n{"t": "two"}\n')
    assert [row.unit for row in read_rows(path, ColumnNames("t", unit="who", nobody=True), 9)] == ["7", None]
    with pytest.raises(DataError, match="row 2"):
        read_rows(path, ColumnNames("t", unit="who"), 9)
    path.write_text('{"t": "one"}\n')
    for columns in (ColumnNames("t", unit="who", nobody=True), ColumnNames("*", unit="who", keys=("t",), nobody=True)):
        with pytest.raises(DataError, match="no row has the key 'who'"):
            read_rows(path, columns, 9)


# --- who may be guessed about

TEXTS = ("a b c d", "a b c d!", "a b c e", "f g h i", "f g h j", "")


def near(one: str, other: str) -> bool:
    left, right = (set(text.strip("!").split(" ")) for text in (one, other))
    return len(left & right) >= 0.5 * len(left | right)


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(PEOPLE)), max_size=9))
def test_only_near_duplicates_of_another_person_put_both_out(pairs: list[tuple[str, str]]) -> None:
    out = {who for one, other in combinations(pairs, 2) for _, who in (one, other) if clash(one, other)}
    mask = LIKENESS([text for text, _ in pairs], [who for _, who in pairs])
    assert mask.tolist() == [who not in out for _, who in pairs]


def clash(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[1] != other[1] and near(one[0], other[0])


def test_ones_own_duplicates_do_not_count_and_those_of_another_put_out_all_rows_of_both() -> None:
    texts = ["a b c d", "a b c d", "a b c e", "f g h i", "k l m n", "k l m o", "p q r s"]
    persons = ["ann", "ann", "ann", "bob", "bob", "cyd", "dan"]
    assert LIKENESS(texts, persons).tolist() == [True, True, True, False, False, False, True]
    assert LIKENESS(texts).tolist() == [False, False, False, True, False, False, True]
