"""The first page of a run: what it says of the audits that are still to come, and what it does not show yet."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest
from report_world import (
    results,
    world_ledger,
    world_metrics,
    world_provenance,
    world_receipts,
    world_schema,
    world_stages,
)

from palimpsest.params.load import loads
from palimpsest.report.page import Coming, drop_coming, find_coming, render_internal
from palimpsest.report.statement import statement
from palimpsest.report.summary import summarise

FULL = loads((Path(__file__).parents[2] / "params.full.yaml").read_text(encoding="utf-8"))
AWAITED = ("dp3/membership.json", "dp3/text_membership.json", "dp3/fidelity.json", "inf/text_membership.json")


def drawn(still: Collection[Coming]) -> str:
    """The page's words: of a world in which files of an earlier run lie where later ones will."""
    receipts, ledger, stages = world_receipts(), world_ledger(), world_stages()
    found = drop_coming(results(world_metrics()), still)
    promise = statement(receipts, ledger, world_schema(), stages)
    summary, own = summarise(found, receipts, ledger), tuple(still)
    page = render_internal(summary, found, receipts, ledger, promise, stages, world_provenance(), own)
    return page.partition('<script type="application/json"')[0]


@pytest.fixture(scope="module")
def first() -> str:
    return drawn(find_coming(FULL, AWAITED))


def test_what_is_to_come_is_what_runs_and_has_a_section() -> None:
    found = find_coming(FULL, [*AWAITED, "gone/fidelity.json", "pretrain.json"])
    assert {(one.metric.name, one.names) for one in found} == {
        ("membership", ("dp3",)), ("text_membership", ("dp3", "inf")), ("fidelity", ("dp3",)),
    }  # fmt: skip


def test_the_first_page_begins_with_its_date_and_with_what_is_to_come(first: str) -> None:
    alerts = re.findall(r"<li class=\"\w+\">(.*?)</li>", first)
    assert world_provenance()["created"] in alerts[0]
    assert "Still to come: membership (dp3); text membership (dp3, inf); fidelity (dp3)." in alerts[0]
    assert "dp3 was not attacked" not in first


def test_each_missing_part_says_so_where_it_will_be(first: str) -> None:
    under = dict(re.findall(r"<h3>([\w ]+)</h3>\s*<p class=\"aside\">(Still to come: .*?)</p>", first))
    assert under == {
        "Privacy": "Still to come: membership (dp3); text membership (dp3, inf).",
        "Fidelity": "Still to come: fidelity (dp3).",
    }


def test_what_an_earlier_run_measured_is_not_shown(first: str) -> None:
    last = drawn(())
    assert "Membership attacks on dp3" in last
    assert "Membership attacks on dp3" not in first
    assert "Membership attacks on inf" in first  # which is not measured anew


def test_the_last_page_says_nothing_of_it() -> None:
    assert "to come" not in drawn(())
