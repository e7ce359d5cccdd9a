"""All that is shown speaks of the unit that is protected, and of no other."""

import re
from functools import cache
from html.parser import HTMLParser

import pytest
from report_world import (
    decoder,
    results,
    whole_world,
    world_ledger,
    world_models,
    world_provenance,
    world_receipts,
    world_schema,
    world_stages,
)
from test_card import scores

from palimpsest.params.schema import ReleaseSettings
from palimpsest.records.schema import PublicSchema
from palimpsest.records.write import Counts
from palimpsest.report.card import render_card
from palimpsest.report.formats import Unit
from palimpsest.report.page import render_internal
from palimpsest.report.release.card import Described, croissant, read_epsilons, readme
from palimpsest.report.statement import statement
from palimpsest.report.summary import summarise

# Where a text about persons may say "record": what is attacked end to end is invented, and a record set is a format's.
ALLOWED = ("invented records", "recordSet", "RecordSet")
# Where a text about records may name a person without saying that one is protected.
BESIDE = (
    "A person has one row", "A person with", "a person with several rows", "rows of one person", "A person's choice",
    "as a person may have", "to reach one person", "no person annotated", "only your word", "your word",
)  # fmt: skip


class Words(HTMLParser):
    """The text of a page, its labels and what its drawings say; not its styles and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._tag = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = "drawings" if ("id", "drawings") in attrs else tag
        self.found += [value for name, value in attrs if name in ("aria-label", "title", "data-label") and value]

    def handle_data(self, data: str) -> None:
        if self._tag not in ("style", "script"):
            self.found.append(data)


pytestmark = pytest.mark.xdist_group("unit words")  # the pages are drawn once

NAMES = ("statement", "card", "page", "README", "croissant")


@cache
def texts(unit: str) -> dict[str, str]:
    """Every text about a release and of the private page, of one unit of privacy."""
    world = whole_world(unit)
    receipts, ledger, metrics, stages = world["receipts"], world["ledger"], world["metrics"], world_stages()
    promise = statement(receipts, ledger, world["facts"], stages)
    assert promise["status"] == "DIFFERENTIALLY PRIVATE"
    shown = [release["variant"] for release in promise["releases"]]
    card = render_card(
        promise, ledger, receipts, stages, world_provenance(),
        variants=shown, scores=scores(**dict.fromkeys((*shown, "public_only"), 0.7)),
    )  # fmt: skip
    measured = results(metrics, world_models(), {"small": decoder()})
    summary = summarise(measured, receipts, ledger)
    page = render_internal(summary, measured, receipts, ledger, promise, stages, world_provenance())
    release = ReleaseSettings.model_validate(
        {"variants": shown, "title": "Tickets", "license": None, "gates": {"accuracy": None}}
    )
    persons = {"unit_column": "customer", "max_rows_per_unit": 3, "n_persons": 2000} if unit == "person" else {}
    data = PublicSchema("tickets", "classify", "body", n_public=5000, max_length=100, label="topic", **persons)
    described = Described(release, data, promise, dict.fromkeys(shown, Counts(9, 9)), "SHA256:0a", "1.0", "2031-05-04")
    files = {f"data/{name}.parquet": "ab" for name in shown}
    words = ("\n".join(Words(shown).found) for shown in (card, page))
    exported = (readme(described), repr(croissant(described, files, dict.fromkeys(files, 1))))
    return dict(zip(NAMES, (repr(promise), *words, *exported), strict=True))


def test_no_name_of_a_card_is_read_as_html_or_as_its_end() -> None:
    release = ReleaseSettings(variants=("dp3",), title="Tickets ---")
    facts = world_schema() | {"unit_column": "customer <!-- `", "max_rows_per_unit": 3, "n_persons": 2000}
    promise = statement(world_receipts(), world_ledger(), facts, world_stages())
    data = PublicSchema("tickets", "classify", "te`xt <img>", n_public=5000, max_length=100, label="topic")
    text = readme(Described(release, data, promise, {"dp3": Counts(9, 9)}, "SHA256:0a", "1.0", "2031-05-04"))
    assert read_epsilons(text).keys() == {release["variant"] for release in promise["releases"]}
    assert "customer \\<\\!-- \\`" in text
    assert "te\\`xt \\<img\\>" in text
    assert "<" not in text.replace("\\<", "").replace("n<1K", "")


def around(word: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    """Where a word stands in a text, outside what is allowed."""
    for phrase in allowed:
        text = text.replace(phrase, "")
    return [text[max(0, at.start() - 60) : at.end() + 60] for at in re.finditer(rf"(?i){word}", text)]


@pytest.mark.parametrize("name", NAMES)
def test_where_persons_are_protected_no_text_speaks_of_records(name: str) -> None:
    assert around("record", texts("person")[name], ALLOWED) == []


@pytest.mark.parametrize("name", NAMES)
def test_where_records_are_protected_no_text_promises_anything_to_persons(name: str) -> None:
    assert around(r"\bpersons?\b", texts("record")[name], BESIDE) == []


@pytest.mark.parametrize("name", ["statement", "card", "page", "README"])
@pytest.mark.parametrize("unit", ["record", "person"])
def test_every_text_says_who_is_protected_and_what_a_changed_row_costs(name: str, unit: str) -> None:
    text = texts(unit)[name]
    assert f"One {unit}: " in text
    assert f"a group of two {unit}s does: ε ≤ " in text
    assert ("does not imply the same ε for one row" in text) == (unit == "person")


def test_groups_of_persons_are_persons_and_groups_of_records_are_rows() -> None:
    assert "for several persons together: 2 persons ε ≤ 5.96; 5 persons" in texts("person")["README"]
    assert "for a person with several rows: 2 rows ε ≤ 5.96; 5 rows" in texts("record")["README"]
    assert "2 persons" in texts("person")["card"]
    assert "A person with 2 rows" in texts("record")["card"]


@pytest.mark.parametrize("unit", ["record", "person"])
def test_a_unit_comes_back_from_its_statement(unit: str) -> None:
    promise = statement(
        whole_world(unit)["receipts"], whole_world(unit)["ledger"], whole_world(unit)["facts"], world_stages()
    )
    assert Unit.from_statement(promise).to_json() == promise["unit"]
    assert Unit.from_statement(promise) == Unit.of(whole_world(unit)["facts"])
