from pathlib import Path

import pytest

from flows.graph import FlowNode
from flows.runner import How, StageOutcome
from flows.summary import card, links, row
from palimpsest.files import write_json
from palimpsest.workspace import STATEMENT
from tests.receipts import a_receipt

SPENDER = FlowNode("train", "", zone="dp", receipt="receipt.json")


@pytest.mark.parametrize(
    ("outcome", "spent"),
    [
        (StageOutcome(How.REPRODUCED, 2.04), "2.988"),
        (StageOutcome(How.CACHED, 0.1), "0 (cached)"),
        (StageOutcome(How.RESTORED, 0.1), "0 (cached)"),
        (StageOutcome(None, 0.1), "see the ledger"),
        (None, "0 (not run)"),
    ],
)
def test_only_a_stage_that_ran_has_spent(tmp_path: Path, outcome: StageOutcome | None, spent: str) -> None:
    write_json(tmp_path / "receipt.json", a_receipt(epsilon=2.98765).to_json())
    assert row(tmp_path, SPENDER, "state", outcome)["epsilon spent"] == spent


def test_an_unbounded_charge_is_said_to_be_one(tmp_path: Path) -> None:
    write_json(tmp_path / "receipt.json", a_receipt(epsilon=None).to_json())
    assert row(tmp_path, SPENDER, "Completed", StageOutcome(How.REPRODUCED, 1))["epsilon spent"] == "unbounded"


def test_a_missing_receipt_is_not_taken_for_nothing(tmp_path: Path) -> None:
    assert row(tmp_path, SPENDER, "Completed", StageOutcome(How.REPRODUCED, 1))["epsilon spent"] == "see the ledger"


def test_a_stage_that_charges_nothing_says_nothing(tmp_path: Path) -> None:
    line = row(tmp_path, FlowNode("evaluate", ""), "Completed", StageOutcome(How.REPRODUCED, 1.26))
    assert line == {"stage": "evaluate", "does": "", "state": "Completed", "seconds": 1.3, "epsilon spent": ""}


def test_every_page_that_is_there_is_linked_with_what_it_may_be_used_for(tmp_path: Path) -> None:
    assert "No report yet" in links(tmp_path)
    for name in ("reports/internal.html", "release/card.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = links(tmp_path)
    assert (tmp_path / "reports" / "internal.html").as_uri() in found
    assert (tmp_path / "release" / "card.html").as_uri() in found
    assert "Private zone: do not share it." in found
    assert "reports/card.html" not in found


def test_the_card_is_the_public_statement_in_short(tmp_path: Path) -> None:
    unit = {"description": "One record: its text.", "note": "Nothing bounds the rows of one person."}
    bounded = {"variant": "dp3", "method": "dp_lm", "epsilon": 2.98765, "meaning": {"sentence": "It finds 5 in 100."}}
    unbounded = {"variant": "test", "method": "select", "epsilon": None, "meaning": None}
    document = {"status": "NOT PRIVATE", "reasons": ["Why."], "unit": unit, "releases": [bounded, unbounded]}
    write_json(tmp_path / STATEMENT, document)
    told = card(tmp_path)
    assert told.startswith("**NOT PRIVATE**\n\nWhy.\n\nOne record: its text. Nothing bounds the rows of one person.")
    assert told.endswith(
        "**dp3** (dp_lm): epsilon 2.988. It finds 5 in 100.\n\n**test** (select): epsilon unbounded. It bounds nothing."
    )
