"""Filters remove what they name and count it, and it does not matter how the candidates were cut into calls."""

import math
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.shared.postprocess import (
    Candidate,
    Duplicates,
    Filter,
    FilterChain,
    Label,
    LengthFilter,
    Perplexity,
    PersonalData,
    perplexity_limit,
)
from palimpsest.records.personal import is_personal, mod97
from palimpsest.records.record import Record


def candidates(*texts: str) -> list[Candidate]:
    return [Candidate(Record(text, "a"), 0.5) for text in texts]


def kept(filter_: Filter, *texts: str) -> list[str]:
    return [text for text, keep in zip(texts, filter_.keeps(candidates(*texts)), strict=True) if keep]


def passes(text: str) -> bool:
    return PersonalData().keeps(candidates(text)) == [True]


@pytest.mark.parametrize(
    ("record", "keeps"),
    [
        (Record("what is his address", "bob.smith@example.com"), False),
        (Record("what is his address", "an address"), True),
        (Record('{"mail": "bob\\u0040example.com"}'), False),
        (Record('{"a": [{"call 0171\\n555 0123 now": 1}]}'), False),
        (Record('{"a": [{"call": 1}]}'), True),
    ],
)
def test_personal_data_is_looked_for_in_all_that_a_reader_reads(record: Record, keeps: bool) -> None:
    """A release is refused for it there, so its remedy must remove it there."""
    assert PersonalData().keeps([Candidate(record, math.nan)]) == [keeps]
    assert is_personal(record) is not keeps


# The chain.


def vowel_share(texts: Sequence[str]) -> np.ndarray:
    """A stand-in for a public model's loss that is a function of the text alone; nan for an empty text."""
    return np.array([sum(text.count(vowel) for vowel in "aeiou") / len(text) if text else math.nan for text in texts])


def full_chain() -> FilterChain:
    return FilterChain(
        [LengthFilter(2, 5), PersonalData(), Duplicates(0.5, 1), Perplexity(vowel_share, 0.35), Label(0.4)]
    )


DRAWN = st.lists(
    st.builds(
        Candidate,
        st.builds(
            Record,
            st.lists(st.sampled_from(["oar", "a", "tin", "Rhythm", "me@you.org"]), max_size=6).map(" ".join),
            st.sampled_from(["x", "y"]),
        ),
        st.sampled_from([0.3, 0.4, 0.9]),
    ),
    max_size=30,
)


@given(DRAWN, st.lists(st.integers(0, 30), max_size=3))
def test_how_the_candidates_are_cut_into_calls_does_not_matter(drawn: list[Candidate], cuts: list[int]) -> None:
    whole, parts = full_chain(), full_chain()
    borders = [0, *sorted(cuts), len(drawn)]
    in_parts = [each for start, stop in pairwise(borders) for each in parts.apply(drawn[start:stop])]
    assert in_parts == whole.apply(drawn)
    assert (parts.seen, parts.removed) == (whole.seen, whole.removed)


@given(DRAWN)
def test_what_is_seen_is_kept_in_order_or_counted_as_removed(drawn: list[Candidate]) -> None:
    chain = full_chain()
    rest = iter(drawn)
    result = chain.apply(drawn)
    assert all(any(each is other for other in rest) for each in result)
    assert chain.seen == len(drawn) == len(result) + sum(chain.removed.values())
    assert list(chain.removed) == ["length", "personal_data", "duplicates", "perplexity", "label"]


def test_each_filter_sees_only_what_the_ones_before_it_kept() -> None:
    texts = ["one two three", "one", "one two three", "one"]
    orders: list[list[Filter]] = [
        [LengthFilter(2, None), Duplicates(1.0, 1)],
        [Duplicates(1.0, 1), LengthFilter(2, None)],
    ]
    for filters in orders:
        chain = FilterChain(filters)
        assert list(chain.removed.items()) == [(each.name, 0) for each in filters]
        assert chain.apply(candidates(*texts)) == candidates("one two three")
        assert list(chain.removed.items()) == [(filters[0].name, 2), (filters[1].name, 1)]


def test_the_counts_cannot_be_changed_from_outside() -> None:
    chain = FilterChain([LengthFilter(1, None)])
    chain.removed["length"] += 1
    assert chain.removed == {"length": 0}


def test_two_filters_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="different names"):
        FilterChain([LengthFilter(1, None), LengthFilter(2, None)])


# Length, label, perplexity.


def test_length_counts_words_and_both_ends_are_allowed() -> None:
    texts = ["one - !", "one - two!", "one two three", "one two three four"]
    assert kept(LengthFilter(2, 3), *texts) == texts[1:3]
    assert kept(LengthFilter(2, None), *texts) == texts[1:]
    assert kept(LengthFilter(0, None), "") == [""]


def test_label_keeps_the_threshold_itself() -> None:
    drawn = [Candidate(Record("text", "a"), probability) for probability in (0.0, 0.59, 0.6, 1.0)]
    assert Label(0.6).keeps(drawn) == [False, False, True, True]
    assert Label(0.0).keeps(drawn) == [True] * 4


def test_label_without_a_discriminator_is_an_error_with_a_remedy() -> None:
    drawn = [Candidate(Record("secret text", "a"), 0.9), Candidate(Record("secret text", "a"), math.nan)]
    with pytest.raises(ParamsError) as caught:
        Label(0.0).keeps(drawn)
    assert "no discriminator" in caught.value.problem
    assert "filters.chain" in caught.value.remedy
    assert "secret" not in str(caught.value)


def test_perplexity_keeps_the_limit_itself_and_removes_texts_without_a_loss() -> None:
    losses = {"at": 2.0, "below": 1.0, "above": 2.1, "none": math.nan, "endless": math.inf}
    score = Perplexity(lambda texts: np.array([losses[text] for text in texts]), 2.0)
    assert kept(score, *losses) == ["at", "below"]


def test_perplexity_asks_the_model_nothing_about_no_texts() -> None:
    asked: list[Sequence[str]] = []

    def loss(texts: Sequence[str]) -> np.ndarray:
        asked.append(texts)
        return np.zeros(len(texts))

    assert Perplexity(loss, 1.0).keeps([]) == []
    assert asked == []


def test_perplexity_needs_one_loss_per_text_and_a_finite_limit() -> None:
    with pytest.raises(ValueError, match="shape"):
        Perplexity(lambda texts: np.zeros(1), 1.0).keeps(candidates("one", "two"))
    with pytest.raises(ValueError, match="limit"):
        Perplexity(vowel_share, math.nan)


@given(st.lists(st.floats(0.01, 20), min_size=1, max_size=50), st.integers(1, 20))
def test_the_limit_is_the_smallest_loss_that_keeps_the_share_of_held_out_texts(losses: list[float], parts: int) -> None:
    limit = perplexity_limit(np.array(losses), parts / 20)
    assert limit in losses
    assert sum(loss <= limit for loss in losses) * 20 >= parts * len(losses)
    assert sum(loss < limit for loss in losses) * 20 < parts * len(losses)


@pytest.mark.parametrize("losses", [[], [1.0, math.nan], [1.0, math.inf]])
def test_no_limit_without_finite_held_out_losses(losses: list[float]) -> None:
    with pytest.raises(DataError, match="held-out public texts"):
        perplexity_limit(np.array(losses), 0.5)


@pytest.mark.parametrize("quantile", [0.0, 1.1, math.nan])
def test_the_quantile_is_a_share(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        perplexity_limit(np.array([1.0]), quantile)


# Duplicates.


def first_of_its_kind(texts: Sequence[str], similarity: float, shingle: int) -> list[bool]:
    """The definition, pair by pair; texts of plain lower-case words."""
    sets: list[set[str]] = []
    result = []
    for text in texts:
        tokens = text.split()
        own = {" ".join(tokens[at : at + shingle]) for at in range(max(1, len(tokens) - shingle + 1))}
        result.append(all(len(own & other) / len(own | other) < similarity for other in sets))
        sets += [own] * result[-1]
    return result


@pytest.mark.parametrize(("similarity", "shingle"), [*product([0.3, 0.5, 2 / 3, 0.8, 1.0], [1, 2, 3])])
def test_duplicates_are_those_of_the_definition(similarity: float, shingle: int) -> None:
    rng = np.random.default_rng(0)
    bases = [[f"w{number}" for number in rng.integers(0, 9, size)] for size in rng.integers(0, 12, 100)]
    swapped = [[*tokens[:3], "other", *tokens[4:]] for tokens in bases]
    texts = rng.permutation([" ".join(tokens) for tokens in (*bases, *swapped)]).tolist()
    expected = first_of_its_kind(texts, similarity, shingle)
    assert 0 < sum(expected) < len(texts)
    assert Duplicates(similarity, shingle).keeps(candidates(*texts)) == expected


def test_equal_wording_is_a_duplicate_at_every_similarity_and_under_every_label() -> None:
    for similarity in (0.1, 1.0):
        drawn = [Candidate(Record(text, text), 0.5) for text in ("One, two: three.", "ONE two three", "", "!?", "four")]
        assert Duplicates(similarity, 2).keeps(drawn) == [True, False, True, False, True]


def test_a_removed_text_removes_no_other() -> None:
    first, near, far = "a b c d e f g h", "a b c d e f x y", "x y z e f u v w"
    between = "a b c d e f x y z"
    assert kept(Duplicates(0.5, 1), first, near, between, far) == [first, far]
    assert kept(Duplicates(0.5, 1), near, first, between) == [near]
    chain = "a b c d", "b c d e", "c d e f", "d e f g"
    assert kept(Duplicates(0.6, 1), *chain) == [chain[0], chain[2]]


def test_texts_kept_in_an_earlier_call_are_remembered() -> None:
    duplicates = Duplicates(0.7, 2)
    assert kept(duplicates, "so it goes on and on", "quite another matter") == [
        "so it goes on and on",
        "quite another matter",
    ]
    assert kept(duplicates, "So it goes on and on!", "a third one") == ["a third one"]


# Personal data.

WORD = st.sampled_from(["the", "pump", "I", "paid", "of", "version", "A", "café", "in", "for", "won", "(see)", "and"])
YEAR = st.integers(1800, 2199).map(str)
TWO = st.integers(1, 12).map("{:02d}".format)
PRICE = st.builds(
    str.format,
    st.sampled_from(["${:,.2f}", "{:.2f} EUR", "£{:,.0f}", "{:.0f}", "-{:.1f}%", "+{:.0f}"]),
    st.floats(0, 99_999),
)
HALF = st.integers(0, 150)
SCORE = st.builds("{}{}{}".format, HALF, st.sampled_from(["-", ":", "–", "/", " : "]), HALF)
DATE = st.one_of(
    st.builds("{2}{0}{1}{0}{3}".format, st.sampled_from("./-"), TWO, TWO, YEAR),
    st.builds("{2}{0}{1}{0}{3}".format, st.sampled_from("./-"), TWO, TWO, TWO),
    st.builds("{}-{}-{}T{}:{}:{}Z".format, YEAR, TWO, TWO, TWO, TWO, TWO),
    st.builds("{}:{}".format, TWO, TWO),
    st.builds("{}/{}".format, TWO, YEAR),
    st.builds("{0}–{1}".format, YEAR, YEAR),
)
MODEL = st.one_of(
    st.from_regex(r"[A-Z]{1,3}-?[0-9]{2,5}[A-Z]{0,2}", fullmatch=True),
    st.from_regex(r"[A-Z]{2}-[0-9]{3}-[0-9]{4}", fullmatch=True),
    st.from_regex(r"v[0-9]\.[0-9]{1,2}\.[0-9]{1,2}", fullmatch=True),
)
NUMBER = st.one_of(
    st.integers(0, 99_999_999).map(str),
    st.integers(0, 10**12).map("{:,}".format),
    st.floats(0, 1).map("{:.15f}".format),
    st.integers(2, 6).map(lambda size: " ".join(str(1990 + at) for at in range(size))),
)
HARMLESS = st.one_of(YEAR, PRICE, SCORE, DATE, MODEL, NUMBER)
# What may stand around a find: words, and numbers that do not run into it.
AROUND = st.lists(st.one_of(WORD, HARMLESS.map("{},".format)), max_size=4).map(lambda parts: " ".join([*parts, ""]))


@given(st.lists(st.tuples(HARMLESS, WORD), max_size=6))
def test_years_prices_scores_dates_and_model_numbers_pass(parts: list[tuple[str, str]]) -> None:
    assert passes(" ".join(f"{number} {word}" for number, word in parts))


@pytest.mark.parametrize(
    "text",
    [
        "It cost $1,299.99 in 2019, down from $1,499 in 2017-2018.",
        "2015 2016 2017 2018 were good years, 1996-1997-1998-1999 were not",
        "On 01.02.2003 10.30 and from 03.04.21 10.30 to 12/2019",
        "on 01 02 2003 10 30, in 01/2019 2020 2021",
        "03.04.21 - 05.06.21, 01/2019 02/2020 and 2003-04-05 06:07:08",
        "odds of +150 -110 -110 -120, a draw at 2-2, 6-4 6-3 7-5",
        "RTX 4090, i7-12700K, WH-1000XM5, B07XJ8C8F5, ABC-200-300-4000 and ISO 9001:2015",
        "pi is 3.14159265358979, a billion 1,000,000,000 or 1 000 000 000 or 1.000.000.000",
        "10,000,000 +10 000 000 people from 192.168.100.200",
        "ISBN 978-3-16-148410-0",
        "5@1.50 each, @handle, https://medium.com/@user/post?x=a@b, a @ b.com",
        "https://example.org:8080/path and mailto:",
        "between 200-300 2000 times, 250 300 2000 pieces, 555-1234",
        "AE-000-0060 1800 1800 and 3000 0010 0000 0000",
        "MI25 WITH THIS 2024 NEXT YEAR",
        "0.123 0.456 0.789 0.123",
        "",
    ],
)
def test_ordinary_numbers_and_links_pass(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "found",
    [
        "jane.doe+news@mail.example.co.uk", "ＪＡＮＥ＠EXAMPLE．ORG", "mailto:j_d@müller.de",
        "https://jane:hunter2@example.org/x", "ftp://jane@10.0.0.1", "+44 20 7946 0958", "+1 (415) 555-0123",
        "+1.415.555.0123", "+49 (0)30/1234567", "0049-30-1234567", "+14155550123", "(415) 555-0123", "(415)555-0123",
        "415-555-0123", "1-800-555-0199", "415.555.0123", "415‑555‑0123", "030 1234567", "(030) 123 45 67",
        "0171/1234567", "020 7946 0958", "01 23 45 67 89", "01.23.45.67.89", "4111 1111 1111 1111",
        "5500-0000-0000-0004", "3400 000000 00009", "GB82 WEST 1234 5698 7654 32", "DE89 3704 0044 0532 0130 00",
        "IT60X0542811101000000123456", "NO93 8601 1117 947", "SN123456789", "٠١٢٣٤٥٦٧٨",
    ],
)  # fmt: skip
def test_what_reaches_or_charges_a_person_is_found(found: str) -> None:
    for text in (found, f"Write to {found}.", f"({found}), since 2019 or so", f"It was 2019, {found}\nand that's all"):
        assert not passes(text), text


@given(
    AROUND,
    AROUND,
    st.from_regex(r"[a-z0-9](?:[a-z0-9._+-]{0,8}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[a-z0-9]{1,9}(?:\.[a-z0-9]{1,4})?\.(?:org|com|de|co\.uk)", fullmatch=True),
)
def test_an_address_is_found_in_any_text(before: str, after: str, local: str, domain: str) -> None:
    assert not passes(f"{before}{local}@{domain} {after}")
    assert not passes(f"{before}https://{local}@{domain}/x {after}")


@given(AROUND, AROUND, st.integers(1, 9), st.lists(st.integers(0, 9), min_size=1, max_size=25))
def test_runs_of_nine_digits_or_more_are_found_and_shorter_ones_pass(
    before: str, after: str, first: int, rest: list[int]
) -> None:
    run = "".join(str(digit) for digit in (first, *rest))
    assert passes(f"{before}{run}, {after}") == (len(run) < 9)


@given(
    AROUND,
    AROUND,
    st.integers(10, 999),
    st.lists(st.integers(0, 9), min_size=8, max_size=12),
    st.lists(st.sampled_from(["", " ", "-", ".", "/"]), min_size=12, max_size=12),
)
def test_international_numbers_are_found_however_they_are_grouped(
    before: str, after: str, country: int, digits: list[int], joints: list[str]
) -> None:
    number = "".join(f"{joint}{digit}" for joint, digit in zip(joints, digits, strict=False))
    assert not passes(f"{before}+{country}{number} {after}")


def luhn_digit(digits: Sequence[int]) -> int:
    """The check digit, by the table of doubled digits."""
    doubled = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
    return -sum(doubled[digit] if at % 2 == 0 else digit for at, digit in enumerate(reversed(digits))) % 10


CARD = st.one_of(
    st.lists(st.integers(0, 9), min_size=14, max_size=14).map(lambda rest: [4, *rest]),
    st.lists(st.integers(0, 9), min_size=13, max_size=13).map(lambda rest: [3, *rest]),
)


@given(AROUND, AROUND, CARD, st.sampled_from(" -"), st.sampled_from([0, 0, 1, 5, 9]))
@example("", "", [4, *[1] * 14], " ", 0)
def test_a_card_number_is_found_by_its_check_digit(
    before: str, after: str, start: list[int], joint: str, error: int
) -> None:
    digits = "".join(str(digit) for digit in (*start, (luhn_digit(start) + error) % 10))
    borders = (0, 4, 8, 12, 16) if len(digits) == 16 else (0, 4, 10, 15)
    card = joint.join(digits[one:other] for one, other in pairwise(borders))
    assert passes(f"{before}{card}, {after}") == (error != 0)


@given(
    AROUND,
    st.sampled_from(["DE", "AT", "GB", "es"]),
    st.sampled_from(["", "WEST", "X"]),
    st.text("1789", min_size=10, max_size=20),
    st.sampled_from([0, 0, 1, 50, 96]),
)
def test_an_iban_is_found_by_its_check_digits(before: str, country: str, bank: str, account: str, error: int) -> None:
    rest = 0
    for character in f"{bank}{account}{country}00":
        value = int(character, 36)
        rest = (rest * (10 if value < 10 else 100) + value) % 97
    iban = f"{country}{(98 - rest + error) % 97:02d}{bank}{account}"
    assume(error == 0 or not any(mod97(iban[:size]) for size in (20, 22, 24)))  # its beginning may be one by chance
    spaced = " ".join(iban[start : start + 4] for start in range(0, len(iban), 4))
    assert passes(f"{before}{spaced}") == (error != 0)
