"""What is said of the audits that come with palimpsest: which code they examined, and which they did not."""

from dataclasses import replace
from typing import Any

import pytest

from palimpsest.privacy.planned import TOOLS, versions_of
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.statement import end_to_end_verdicts
from palimpsest.report.twins import read_shipped
from tests.receipts import a_line, a_receipt


def of(method: str, **versions: int) -> Receipt:
    """A release of a method that was charged for these versions."""
    return replace(a_receipt(variant="dp3", method=method), queries=(a_line("a1", versions=versions),))


def verdicts(*receipts: Receipt, audits: Any = None) -> dict[str, str]:
    return {
        one["method"]: one["verdict"]
        for one in end_to_end_verdicts(receipts, read_shipped() if audits is None else audits)
    }


def test_a_result_is_quoted_with_the_version_that_it_was_measured_on() -> None:
    audit = read_shipped()["select"] | {"palimpsest": "0.9.1", "epsilon_lower": 0.25, "eps_max": 2.5, "claim": 1.0}
    (found,) = end_to_end_verdicts([of("select", **dict(versions_of("class_means")))], {"select": audit})
    assert found == {
        "method": "select",
        "verdict": "not refuted",
        "sentence": "The code of method select in palimpsest 0.9.1 was attacked on 200 invented records, claiming ε = "
        "1: not refuted. The attack shows ε ≥ 0.25 and could have shown 2.5; it caught 1 of 1 versions that were "
        "broken on purpose.",
    }


def test_a_method_without_a_result_is_said_to_be_not_examined() -> None:
    for method in ("custext", "a_method_of_another_package"):
        (found,) = end_to_end_verdicts([of(method)], read_shipped())
        assert found["verdict"] == "not examined"
        assert f"The code of method {method} was not examined end to end" in found["sentence"]


def test_rows_that_were_charged_for_other_versions_are_not_examined() -> None:
    (found,) = end_to_end_verdicts(
        [of("select", class_means=2, encoder=TOOLS["encoder"], label_histogram=4)], read_shipped()
    )
    assert found["verdict"] == "not examined"
    assert found["sentence"].endswith("other versions, which it did not run: class_means 2.")
    refuted = {"select": read_shipped()["select"] | {"verdict": "refuted"}}
    assert verdicts(of("select", class_means=2), audits=refuted) == {"select": "refuted"}
    both = of("select", class_means=1), of("select", class_means=2)
    assert verdicts(*both) == verdicts(*reversed(both)) == {"select": "not examined"}


def test_a_discriminator_behind_a_model_is_code_of_the_release_too() -> None:
    alone, judged = of("dp_lm", train=1), of("dp_lm", train=1, discriminator=1)
    assert verdicts(alone) == {"dp_lm": "not refuted"}
    assert verdicts(alone, judged) == dict.fromkeys(("discriminator", "dp_lm"), "not refuted")
    assert verdicts(judged, audits={"dp_lm": read_shipped()["dp_lm"]})["discriminator"] == "not examined"


@pytest.mark.parametrize("verdict", ["inconclusive", "refuted"])
def test_no_other_verdict_becomes_a_better_one(verdict: str) -> None:
    audits = {"select": read_shipped()["select"] | {"verdict": verdict}}
    assert verdicts(of("select", class_means=1), audits=audits) == {"select": verdict}
