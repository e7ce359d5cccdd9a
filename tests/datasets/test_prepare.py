"""Placing depends on each record alone, and what recurs in a public text is found."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.records.keyed import normalise
from palimpsest_lab.datasets.declaration import Form, Item
from palimpsest_lab.datasets.known import KNOWN
from palimpsest_lab.datasets.prepare import Cut, Found, Seen, Tally, evaluated_items, private_items, sentences

LONG = "this sentence has more than forty letters so that chance does not repeat it"
TEXTS = st.lists(st.text("ab \u00e9A", max_size=4), max_size=30)


def placed(texts: list[str], cut: Cut, person: str | None = None) -> tuple[list[str], list[str]]:
    made = [Item(text, ("negative",), person) for text in texts]
    paths = {"train": (Path("a"),)}
    found = Found(KNOWN["imdb"], Form("made", {}, lambda paths, part: iter(made), 1, "here"), paths)  # type: ignore[arg-type]
    return [item.text for item in private_items(found, cut)], [item.text for item in evaluated_items(found, cut)]


@given(TEXTS, st.text("ab ", max_size=4), st.integers(0, 3))
def test_each_record_is_placed_by_itself_and_equal_texts_together(texts: list[str], more: str, seed: int) -> None:
    cut = Cut(0.5, seed)
    private, test = placed(texts, cut)
    assert sorted(private + test) == sorted(texts)
    assert not {normalise(text) for text in private} & {normalise(text) for text in test}
    own, tested = placed([*texts, more], cut)
    assert (own[: len(private)], tested[: len(test)]) == (private, test)


def test_the_share_is_kept_the_seed_counts_and_a_person_s_records_stay_together() -> None:
    texts = [f"text {number}" for number in range(4000)]
    _, test = placed(texts, Cut(0.2))
    assert abs(len(test) / 4000 - 0.2) < 0.03
    assert placed(texts, Cut(0.2, 1))[1] != test
    assert 4000 in {len(part) for part in placed(texts, Cut(0.2), "one person")}


def test_what_recurs_is_counted_exactly_by_its_letters_and_by_a_sentence() -> None:
    seen = Seen()
    for text in ("Good film .", f"Before. {LONG.capitalize()}! After."):
        seen.add(text)
    tally = Tally()
    rows = [
        "Good film .",  # as it is
        " good , film",  # its letters
        f"Another. {LONG} ?",  # a sentence
        "After.",  # too short to count
        f'{{"title": "x", "extract": "{LONG}."}}',  # the text of an object
    ]
    for text in rows:
        tally.add(Item(text, ("positive",)), seen)
    assert (tally.rows, tally.exact, tally.same, tally.pieces) == (5, 1, 2, 4)
    assert tally.labels == {"positive": 5}


def test_sentences_are_spread_over_all_texts_and_stay_within_their_length() -> None:
    texts = ["A first sentence of one. And then a second one!", "Short. The first that is long enough?", "x" * 90 + "."]
    first, second = "A first sentence of one.", "And then a second one!"
    other = "The first that is long enough?"
    assert list(sentences(texts, 40, 9)) == [first, other, second]
    assert list(sentences(texts, 40, 2)) == [first, other]
    assert list(sentences(texts, 24, 9)) == [first, second]
