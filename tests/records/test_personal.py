"""Personal data in ten scripts are found whatever stands beside them; the numbers of ordinary texts are let through.

Filter, candidates, gate and shown rows are asked alike: a rule that one of them lacks stops a release late, or never.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import DataError
from palimpsest.methods.embed.fit import _samples
from palimpsest.methods.shared.means import public_candidates
from palimpsest.methods.shared.postprocess import Candidate, PersonalData
from palimpsest.records.personal import looks_personal
from palimpsest.records.record import Record
from palimpsest.report.release import gates
from palimpsest.report.samples import select_few
from tests.records.written import KINDS, SCRIPTS, clean, planted

PLANTED, CLEAN = planted(1000, seed=7), clean(1000, seed=7)


def filtered(texts: list[str]) -> list[str]:
    kept = PersonalData().keeps([Candidate(Record(text), 1.0) for text in texts])
    return [text for text, keep in zip(texts, kept, strict=True) if keep]


def candidates(texts: list[str]) -> list[str]:
    tools = SimpleNamespace(texts=lambda: texts, embeddings=lambda: {"texts": np.ones((len(texts), 2))})
    return [*public_candidates(cast(Any, tools)).texts]


def released(texts: list[str]) -> list[str]:
    return [text for text in texts if not [*gates.check_rows("a variant", [Record(text)], None)]]


def on_the_card(texts: list[str]) -> list[str]:
    return [row.text for text in texts for row in select_few([Record(text)], by_label=False, seed=0)]


def sampled(texts: list[str]) -> list[str]:
    """Looked at one by one: of many only a few are shown."""
    shown = [_samples([Record(text)], lambda rows: np.ones(len(rows))) for text in texts]
    return [str(row["text"]) for rows in shown for row in rows]


def test_every_script_has_every_kind_of_personal_data() -> None:
    counts = Counter((row.script, row.kind) for row in PLANTED)
    assert set(counts) == {(script, kind) for script in SCRIPTS for kind in KINDS}
    assert min(counts.values()) >= 20


@pytest.mark.parametrize("leaves", [filtered, candidates, released, on_the_card, sampled])
def test_no_planted_row_leaves(leaves) -> None:
    """With a public text that may be chosen, since none at all is an error of its own."""
    texts = [row.text for row in PLANTED]
    assert leaves([*texts, "a text about nobody"]) == ["a text about nobody"]


def test_rows_that_reach_somebody_alone_are_no_candidates() -> None:
    with pytest.raises(DataError, match="no public text to choose from"):
        candidates([row.text for row in PLANTED[:20]])


@pytest.mark.parametrize("leaves", [filtered, candidates, released, on_the_card])
def test_at_most_one_clean_row_in_a_hundred_is_dropped(leaves) -> None:
    assert len(leaves(CLEAN)) >= 990


NUMBERS = (
    "090-1234-5678", "0532 123 45 67", "0 (212) 345 67 89", "+90 532 123 45 67", "0090 532 123 45 67",
    "8 (912) 345-67-89", "512 345 678", "(11) 96123-4567", "415-555-0123", "415 555 0123", "131 2345 6789",
    "010-2000-0000", "02 2345 6789", "DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432",
    "SA03-8000-0000-6080-1016-7519", "4111 1111 1111 1111", "3782-822463-10005", "536-90-4399", "36 574 261 809",
    "1 84 12 76 451 089 46", "110105 19491231 002X", "971013-9019902", "6214 9832 0257", "1-2345-45678-78-1",
    "390.533.447-05", "ACUPA7085R", "54362315-K", "RCCMNL83S18D969H", "131052-308T", "taro@example.com",
    "ПОЧТА@пример.рф", "राम@डाक.भारत",
)  # fmt: skip
BESIDE = ("電話", "です", "전화", "로", "โทร", "नंबर", "รับ", "मैं", "هاتف", "טל", "тел", "τηλ", "yı", "No", "x", ":", "№")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_found_whatever_letters_stand_beside_it(number: str) -> None:
    assert looks_personal(number)
    for before in BESIDE:
        for after in ("", "です", "로 연락", "ครับ", "'yi ara", "nolu", "yi", "को", "го"):
            assert looks_personal(f"{before}{number}{after}"), f"{before}{number}{after}"


@pytest.mark.parametrize(
    "text",
    [
        "０９０ー１２３４ー５６７８",
        "๐๘๑-๒๓๔-๕๖๗๘",
        "०९८७६ ५४३२१०",
        "٠٥٠ ١٢٣ ٤٥٦٧",
        "‎050‑234‑5678‎",
        "050\N{ZERO WIDTH SPACE}-234\N{RIGHT-TO-LEFT MARK}-5678",
        "090−1234−5678",
        "090・1234・5678",
        "090-1234-5678/080-1234-5678",
        "2019 03-1234-5678 2020",
        "(415) 555-0123 (415) 555-0124",
    ],
)
def test_signs_of_other_scripts_are_read(text: str) -> None:
    assert looks_personal(text)


@pytest.mark.parametrize("number", ["2345 6789", "32 12 34 56"])
def test_eight_digits_are_a_telephone_number_where_their_region_is_named(number: str) -> None:
    assert not looks_personal(number)
    assert looks_personal(number, ("HK", "DK"))
    assert looks_personal(f"電話{number}です", ("HK", "DK"))


@pytest.mark.parametrize(
    "text",
    [
        "東京1964年10月10日、2020年",
        "주문번호 48291345입니다",
        "№2023-04512 от 01.02.2003 10.30",
        "ราคา 1,299.50 บาท",
        "pi 3,14159265358979",
        "AB-200-300-4000",
        "120.192.185.30 and 192.168.100.200",
        "PO-2024-77398, INV-2024-881234",
        "20240315-1, 20240315-2, 20240315-3, 20240315-4, 20240315-5, 20240315-6, 20240315-7, 20240315-8",
        "DE88 3704 0044 0532 0130 00 has wrong check digits",
        "1990 1991 1992 and 2010 2011 2012",
        "IEEE 802.11-2012",
    ],
)
def test_numbers_of_nobody_pass(text: str) -> None:
    assert not looks_personal(text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("aZ09 @.+-()/é１٣०年ー:\N{ZERO WIDTH SPACE}x"), max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    assert looks_personal(text) in (True, False)
