"""The sample browser as a person uses it: in a real browser, with rows that would break a page that lets them."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from in_browser import Open, assert_can_be_read_out, assert_marked_private, assert_quiet
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from palimpsest.methods.shared.settings import FilterName
from palimpsest.records.record import Record
from palimpsest.report.samples import WHY, Browsed, Near, Removal, Round, Sizes, Written, render_samples

HOSTILE = "<img src=x onerror='window.broken=1'></script><script>window.broken=1</script>&amp;\x1b[2J ${1} {{ 1 }}"
SEEN = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")
SIZES = Sizes(read=3596, unread=404, words=3)


def row(text: str, label: str = "", private: str = "a private row", **changes: Any) -> Written:
    made = Written((text,), label, 2, Near((private,), label, 0.5, None), 0.4)
    return replace(made, **changes)


def variant(name: str, *rows: Written, **changes: Any) -> Browsed:
    return replace(Browsed(name, "select, for release", len(rows), rows, (), (), False), **changes)


def page(*variants: Browsed, asset: str = "tickets") -> str:
    return render_samples(asset, variants, SIZES, "2026-01-01")


def show(shown: webdriver.Chrome, **chosen: str) -> None:
    """Choose values as a person does, by what is seen of them; text is typed."""
    for name, words in chosen.items():
        found = shown.find_element(By.ID, name)
        if found.tag_name == "select":
            Select(found).select_by_visible_text(words)
        else:
            found.clear()
            found.send_keys(words)


def lines(shown: webdriver.Chrome) -> list[str]:
    """The text of each line, its cells with bars between."""
    script = """return [...document.querySelectorAll('#rows tr')]
      .map(line => [...line.children].map(cell => cell.innerText).join(' | '))"""
    return list(shown.execute_script(script))


def word(shown: webdriver.Chrome, name: str) -> str:
    return str(shown.find_element(By.ID, name).text)


def test_rows_that_are_code_stay_text_in_every_view(opened: Open) -> None:
    record = Record(HOSTILE, HOSTILE)
    bad = variant(
        HOSTILE,
        row(HOSTILE, HOSTILE, HOSTILE),
        removed=(Removal("length", 1, (record,)),),
        rounds=(Round((), ((record, 2),)),),
    )
    shown = opened(page(bad, bad, asset=HOSTILE))
    headings = set()
    for view in Select(shown.find_element(By.ID, "view")).options:
        view.click()
        assert SEEN in lines(shown)[0], view.text
        headings.add(word(shown, "headings"))
    assert len(headings) == 4
    assert shown.execute_script("return window.broken") is None
    assert shown.find_elements(By.CSS_SELECTOR, "img") == []
    assert len(shown.find_elements(By.CSS_SELECTOR, "script")) == 2
    assert_marked_private(shown)
    assert_quiet(shown)


def test_ten_thousand_rows_come_page_by_page(opened: Open) -> None:
    shown = opened(page(variant("select3", *(row(f"row {number} ends", "ab"[number % 2]) for number in range(10_000)))))
    assert (len(lines(shown)), word(shown, "place")) == (25, "1 to 25 of 10000")
    assert not shown.find_element(By.ID, "back").is_enabled()
    shown.find_element(By.ID, "on").click()
    assert (lines(shown)[0].split(" | ")[1].splitlines()[0], word(shown, "place")) == (
        "row 25 ends",
        "26 to 50 of 10000",
    )
    show(shown, search="ROW 99")
    assert word(shown, "place") == "1 to 25 of 111"
    show(shown, label="b")
    assert word(shown, "place") == "1 to 25 of 56"
    show(shown, search="row 999 ends")
    assert [line.split("\n")[0] for line in lines(shown)] == ["b | row 999 ends"]
    assert not shown.find_element(By.ID, "on").is_enabled()
    show(shown, search="nowhere")
    assert (lines(shown), word(shown, "place")) == ([], "no rows")


def test_the_private_row_stands_beside_and_what_both_say_is_marked(opened: Open) -> None:
    near = Near(("", "the lid is shut", "!"), "", 0.91, "1a2b3c4d")
    rows = [
        row("far", private="another text"),
        row("", pieces=("So ", "the lid is shut", "."), near=near, longest=4, unread=None),
        row("alone", near=None),
    ]
    shown = opened(page(variant("select3", *rows, total=40)))
    assert word(shown, "told") == "select3: select, for release, 40 rows, of which 3 are here, drawn at random."
    assert [mark.text for mark in shown.find_elements(By.TAG_NAME, "mark")] == ["the lid is shut"] * 2
    assert not shown.find_element(By.ID, "label").is_displayed()  # without labels there is none to choose
    show(shown, order="nearest to a private row first")
    first, *_, last = lines(shown)
    assert ["near 0.910" in first, "person 1a2b3c4d" in first, "not read" in first] == [True, True, False]
    assert "near 0.500, and 0.400 of a row that was not read" in lines(shown)[1]
    assert "no row is near" in last
    show(shown, order="longest shared run of words first", search="ANOTHER")
    assert len(lines(shown)) == 1  # what is private is searched, too
    assert_can_be_read_out(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_fields_stand_below_each_row(opened: Open) -> None:
    near = Near(("private",), "", 0.5, None, "age: 15 to 20")
    one = variant("tabulate3", row("text", near=near, fields=f"age: 17, part: {HOSTILE}"))
    shown = opened(page(one, variant("plain", row("other"))))
    assert all(words in lines(shown)[0] for words in ("age: 15 to 20", f"age: 17, part: {SEEN}"))
    show(shown, view="Two side by side")
    assert lines(shown) == [f" | text\nage: 17, part: {SEEN} | other"]


def test_two_variants_stand_side_by_side_label_by_label(opened: Open) -> None:
    one = variant("select3", row("first a", "a"), row("first b", "b"), row("second a", "a"))
    shown = opened(page(one, variant("inf", row("other b", "b"), row("other a", "a"))))
    show(shown, view="Two side by side")
    assert lines(shown) == ["a | first a | other a", "a | second a | ", "b | first b | other b"]
    show(shown, label="b")
    assert lines(shown) == ["b | first b | other b"]
    show(shown, label="all labels", other="select3", search="second")
    assert lines(shown) == ["a | second a | second a"]


def test_what_filters_removed_is_shown_with_the_reason_and_the_count(opened: Open) -> None:
    removed = (Removal("length", 70, (Record("short", "a"),)), Removal("personal_data", 2, ()))
    shown = opened(page(variant("dp3", row("kept", "a"), removed=removed)))
    show(shown, view="Removed by filters")
    assert lines(shown) == ["a | short | length"]
    notes = word(shown, "notes")
    assert "length removed 70, of which 1 are here: shorter than filters.min_words" in notes
    assert "personal_data removed 2, of which 0 are here: " in notes


def test_rounds_stand_before_and_after(opened: Open) -> None:
    one, two, new = Record("one", "a"), Record("two", "a"), Record("new", "a")
    rounds = (Round((), ((one, 1), (two, 3))), Round(((one, 1), (two, 3)), ((new, 2), (two, 1))))
    shown = opened(page(variant("evolve3", rounds=rounds), variant("embed3", rounds=rounds[:1], stands=True)))
    show(shown, view="Round by round")
    assert lines(shown) == ["a |  | one", "a |  | two\n3 times"]
    show(shown, round="2")
    assert lines(shown) == ["a | one | new\n2 times", "a | two\n3 times | two\nwas there before"]
    assert word(shown, "notes") == ""
    show(shown, variant="embed3")
    assert "stands for it" in word(shown, "notes")


def test_a_variant_without_rows_rounds_or_removals_is_shown_empty(opened: Open) -> None:
    shown = opened(page(variant("bare")))
    for view in Select(shown.find_element(By.ID, "view")).options:
        view.click()
        assert word(shown, "place") == "no rows"
    assert_quiet(shown)


def test_every_filter_has_its_reason() -> None:
    assert {*get_args(FilterName)} <= {*WHY}


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window(opened: Open, width: int) -> None:
    shown = opened(page(variant("select3", row("x" * 500, "a" * 40, "y" * 500))), width)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
