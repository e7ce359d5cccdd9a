"""A chain notes a fair part of what it removes."""

import json
from collections import Counter

from palimpsest.methods.shared.postprocess import Candidate, FilterChain, LengthFilter, PersonalData, read_noted
from palimpsest.records.record import Record
from palimpsest.report.release.bundle import GENERATION_SHAPE, copy_publishable

SHORT, MAIL = "short", "write to me@you.org now"


def drawn(count: int) -> list[Candidate]:
    texts = {0: f"{SHORT}", 1: MAIL, 2: "this one is kept"}
    return [Candidate(Record(texts[number % 3], str(number)), 0.5) for number in range(count)]


def plain() -> FilterChain:
    return FilterChain([LengthFilter(2, None), PersonalData()])


def noting(*parts: list[Candidate]) -> FilterChain:
    made = plain()
    for part in parts:
        made.apply(part)
    return made


def test_it_notes_each_row_under_the_filter_that_removed_it() -> None:
    noted = noting(drawn(9)).noted
    assert {name: [row.label for row in rows] for name, rows in noted.items()} == {
        "length": ["0", "3", "6"],
        "personal_data": ["1", "4", "7"],
    }


def test_of_many_it_keeps_a_few_from_all_over_however_they_come() -> None:
    rows = drawn(3000)
    noted = noting(rows).noted
    assert noted == noting(rows[:7], rows[7:2000], rows[2000:]).noted
    assert {name: len(kept) for name, kept in noted.items()} == {"length": 30, "personal_data": 30}
    thirds = Counter(int(row.label or "") // 1000 for row in noted["length"])
    assert min(thirds[third] for third in range(3)) >= 4


def test_what_is_written_is_read() -> None:
    made = noting(drawn(9))
    assert read_noted(json.loads(json.dumps(made.noted_as_json()))) == made.noted
    assert read_noted({"drawn": 3}) == {}


def test_no_removed_row_leaves_with_a_release() -> None:
    document = {"zone": "dp", "drawn": 9, "rows": 3, "removed": {"length": 3}} | noting(drawn(9)).noted_as_json()
    assert copy_publishable(document, GENERATION_SHAPE, "generation.json") == {
        "drawn": 9,
        "rows": 3,
        "removed": {"length": 3},
    }
