"""A chain that notes what it removes removes the same, and keeps a fair part of it."""

import json
from collections import Counter

from palimpsest.methods.shared.postprocess import Candidate, FilterChain, LengthFilter, PersonalData
from palimpsest.methods.shared.removed import NotingChain, noted_in
from palimpsest.records.record import Record
from palimpsest.report.release.allowed import GENERATION, publishable

SHORT, MAIL = "short", "write to me@you.org now"


def drawn(count: int) -> list[Candidate]:
    texts = {0: f"{SHORT}", 1: MAIL, 2: "this one is kept"}
    return [Candidate(Record(texts[number % 3], str(number)), 0.5) for number in range(count)]


def plain() -> FilterChain:
    return FilterChain([LengthFilter(2, None), PersonalData()])


def noting(*parts: list[Candidate]) -> NotingChain:
    made = NotingChain(plain())
    for part in parts:
        made.apply(part)
    return made


def test_it_removes_what_the_chain_removes() -> None:
    one, other = plain(), NotingChain(plain())
    assert other.apply(drawn(50)) == one.apply(drawn(50))
    assert (other.seen, other.removed) == (one.seen, one.removed)


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
    assert noted_in(json.loads(json.dumps(made.to_json()))) == made.noted
    assert noted_in({"drawn": 3}) == {}


def test_no_removed_row_leaves_with_a_release() -> None:
    document = {"zone": "dp", "drawn": 9, "rows": 3, "removed": {"length": 3}} | noting(drawn(9)).to_json()
    assert publishable(document, GENERATION, "generation.json") == {"drawn": 9, "rows": 3, "removed": {"length": 3}}
