"""The card as a browser sees it, and that nothing of the private zone can be on it."""

import re
from dataclasses import replace
from typing import Any

import pytest
from in_browser import Open, assert_can_be_read_out, assert_drawn, assert_fits_on_paper, assert_quiet
from report_world import (
    receipt,
    world_ledger,
    world_metrics,
    world_provenance,
    world_receipts,
    world_schema,
    world_stages,
)
from selenium.webdriver.common.by import By

from palimpsest.errors import DataError
from palimpsest.records.record import Record
from palimpsest.report.card import gates, render_card
from palimpsest.report.page import public_claims
from palimpsest.report.samples import select_few
from palimpsest.report.statement import statement

HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>"


def scores(**accuracies: float) -> dict[str, Any]:
    found = {name: {"accuracy": value, "low": value - 0.02, "high": value + 0.02} for name, value in accuracies.items()}
    return {
        "zone": "publishable",
        "rows": dict.fromkeys(accuracies, 4000),
        "test_rows": dict.fromkeys(accuracies, 1000),
        "variants": {name: {"tfidf_lr": own} for name, own in found.items()},
    }


def card(receipts: dict[str, Any] | None = None, **more: Any) -> str:
    receipts, ledger, stages = receipts or world_receipts(), more.pop("ledger", world_ledger()), world_stages()
    promise = statement(receipts, ledger, world_schema(), stages)
    given = {"variants": ["dp3"], "scores": scores(dp3=0.8, public_only=0.6)} | more
    return render_card(promise, ledger, receipts, stages, world_provenance(), **given)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_card_in_a_browser(opened: Open, width: int, scheme: str) -> None:
    shown = opened(card(fingerprint="ed25519:0a1b"), width, scheme)
    assert assert_drawn(shown) == 5
    assert_can_be_read_out(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    assert "ed25519:0a1b" in shown.find_element(By.TAG_NAME, "footer").text
    assert_quiet(shown)
    assert_fits_on_paper(shown)


def test_the_card_does_without_scores(opened: Open) -> None:
    shown = opened(card(scores=None))
    assert assert_drawn(shown) == 4
    assert "Not signed" in shown.find_element(By.TAG_NAME, "footer").text
    assert_quiet(shown)


def test_a_name_that_is_code_stays_a_name(opened: Open) -> None:
    receipts = world_receipts() | {HOSTILE: receipt(HOSTILE, 1.0)}
    shown = opened(card(receipts, variants=["dp3", HOSTILE], ledger=replace(world_ledger(), asset=HOSTILE)))
    assert shown.execute_script("return window.broken") is None
    assert shown.find_elements(By.CSS_SELECTOR, "img") == []
    assert_quiet(shown)


def test_a_few_rows_of_what_is_released_are_on_the_card_as_text(opened: Open) -> None:
    rows = select_few([Record(HOSTILE, "a"), Record("a plain row", "b")], by_label=True, seed=7)
    shown = opened(card(samples={"dp3": rows, "dp9": [Record("of another", "a")]}))
    section = shown.find_element(By.ID, "samples").text
    assert [text in section for text in (HOSTILE, "a plain row", "of another")] == [True, True, False]
    assert shown.execute_script("return window.broken") is None
    assert_quiet(shown)
    assert 'id="samples"' not in card()


def test_rows_of_the_card_are_few_short_and_reach_nobody() -> None:
    rows = [Record(f"row {number} {'long ' * 99}\x1b[2J", "ab"[number % 2]) for number in range(40)]
    mails = [Record(f"write to m{number}@you.org", "c") for number in range(9)]
    shown = select_few(rows + mails, by_label=True, seed=7)
    assert [row.label for row in shown] == ["a", "a", "b", "b"]
    assert {len(row.text) for row in shown} == {401}
    assert "\x1b" not in "".join(row.text for row in select_few([Record("a\x1b[2Jb")], by_label=False, seed=1))
    assert shown == select_few(rows + mails, by_label=True, seed=7) != select_few(rows + mails, by_label=True, seed=8)
    assert len(select_few([Record(str(number), str(number)) for number in range(60)], by_label=True, seed=7)) == 12
    assert len(select_few([Record(str(number)) for number in range(60)], by_label=False, seed=7)) == 6


def test_a_document_of_the_private_zone_is_refused() -> None:
    with pytest.raises(DataError, match="not publishable"):
        card(scores=scores(dp3=0.8) | {"zone": "internal"})


def test_no_measurement_of_private_rows_can_reach_the_card() -> None:
    """The card is a function of documents that hold none: it takes no metrics, and no verdict of a private attack."""
    quiet = card()
    internal = [str(found["auc"]) for found in world_metrics()["dp3"]["membership"]["attacks"].values()]
    assert [number for number in internal if number in quiet] == []
    ids = [claim.id for claim in claims_of_card()]
    assert [name for name in ids if name.startswith(("M-", "G-", "F-"))] == []
    assert {"P-dp3", "P-total", "T-dp_lm"} <= set(ids)


def claims_of_card() -> tuple[Any, ...]:
    promise = statement(world_receipts(), world_ledger(), world_schema(), world_stages())
    return public_claims(promise, world_receipts(), world_ledger())


def test_what_is_not_released_is_not_shown() -> None:
    html = card(receipts=world_receipts() | {"dp9": receipt("dp9", 8.9)}, scores=scores(dp3=0.8, dp9=0.85))
    overview = html.partition('id="overview"')[2].partition('id="promise"')[0]
    assert "dp3" in overview
    assert "dp9" not in overview
    figures = html.partition('id="figures"')[2].partition('id="layers"')[0]
    assert "0.85" not in figures


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        ("not refuted", "tested"),
        ("inconclusive", "not covered"),
        ("not examined", "not covered"),
        ("refuted", "tested"),
    ],
)
def test_an_audit_that_could_not_have_failed_is_no_pass(verdict: str, status: str) -> None:
    promise = statement(world_receipts(), world_ledger(), world_schema(), world_stages())
    promise["end_to_end"] = [{"method": "dp_lm", "verdict": verdict, "sentence": "What came of it."}]
    found = {gate.name: gate for gate in gates(promise, promise["releases"])}["Attack on dp_lm, end to end"]
    assert (found.outcome, found.sentence) == (verdict, "What came of it.")
    claims = {claim.id: claim for claim in public_claims(promise, world_receipts(), world_ledger())}
    assert (claims["T-dp_lm"].status, claims["T-dp_lm"].sentence) == (status, "What came of it.")


def test_fixed_noise_stops_the_reader() -> None:
    html = card(receipts=world_receipts() | {"dp3": receipt("dp3", 2.98, noise_fixed=True)})
    assert '<b class="stop">not private</b>' in html
    assert "NOT PRIVATE: The noise of dp3 is fixed by a seed." in html
    assert not re.search(r"bounded below|What ε = ", html)
