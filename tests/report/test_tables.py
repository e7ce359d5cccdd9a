import math
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from report_world import (
    charge,
    page_of,
    results,
    stated,
    world_ledger,
    world_metrics,
    world_of_audits,
    world_receipts,
    world_stages,
)

from palimpsest.audit.facts import PopulationFactAudit
from palimpsest.audit.membership import MembershipAudit
from palimpsest.report.sections import budget, fidelity, membership, pipeline, utility


def test_the_band_of_chance_is_that_of_all_orders() -> None:
    """Three members and three non-members: every one of the 20 orders is equally likely."""
    orders = set(permutations("mmmnnn"))
    counts: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for order in orders:
        for rank in counts:
            cut = [index for index, kind in enumerate(order) if kind == "n"][rank - 1]
            counts[rank].append(order[:cut].count("m"))
    band = membership.null_band(3, 3)
    for row, (rank, found) in zip(band, counts.items(), strict=True):
        assert row["fpr"] == rank / 3
        low = min(k for k in range(4) if sum(c <= k for c in found) >= 0.025 * len(found))
        high = min(k for k in range(4) if sum(c <= k for c in found) >= 0.975 * len(found))
        assert row["high"] == pytest.approx(high / 3)
        assert row["low"] == pytest.approx(max(low, 0.5) / 3)


def test_wilson_bands_of_facts() -> None:
    """0 of 10: 0 to 0.278; 5 of 10: 0.237 to 0.763 (Wilson 1927; Brown, Cai and DasGupta 2001)."""
    found = [PopulationFactAudit("few", 5, 0)] * 10 + [PopulationFactAudit("many", 40, i % 2) for i in range(10)]
    none, half = fidelity.carried_shares(results({"dp3": {"facts": stated(tuple(found)).to_json("dp3")}}))
    assert (none["support"], none["share"], none["low"]) == (pytest.approx(5), 0, 0)
    assert none["high"] == pytest.approx(0.2775, abs=1e-4)
    assert (half["low"], half["high"]) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))


def test_the_waterfall_ends_at_what_the_ledger_counts() -> None:
    rows = budget.waterfall(world_ledger())
    assert [row["kind"] for row in rows] == ["committed", "committed", "reserved", "composition", "total"]
    assert rows[-1]["end"] == rows[-2]["end"] == 3.62
    assert all(math.isclose(after["start"], before["end"]) for before, after in pairwise(rows[:-1]))


def test_a_single_charge_is_the_total() -> None:
    only = replace(world_ledger(), charges=(charge(1, "dp3", "dp_sgd", "committed", "release", 3.62),))
    assert [row["kind"] for row in budget.waterfall(only)] == ["committed", "total"]
    assert [row["kind"] for row in budget.waterfall(replace(only, charges=(), spent_epsilon=0.0))] == ["total"]


def test_a_reference_has_no_cap_and_no_place_on_the_epsilon_axis() -> None:
    summary = page_of(world_metrics(), world_receipts()).summary
    assert [row["kind"] for row in utility.bracket(summary) if row["variant"] == "inf"] == [
        utility.ATTACKED,
        utility.DETECTABLE,
    ]
    assert [row["epsilon"] for row in utility.frontier(summary, "tfidf_lr")] == [2.98, None, None, None]


def test_zero_rates_fit_on_a_logarithmic_axis() -> None:
    found = MembershipAudit.from_json(world_metrics()["dp3"]["membership"])
    rows = membership.roc(found)
    assert min(min(row["fpr"], row["tpr"]) for row in rows) == membership.rate_floor(found) > 0


def test_arrows_point_right_and_no_two_stages_share_a_place() -> None:
    stages = world_stages()
    places = pipeline.layer_stages(stages)
    assert len(set(places.values())) == len(stages)
    assert all(places[dep][0] < places[stage["name"]][0] for stage in stages for dep in stage["deps"])


def test_files_among_the_needs_are_not_stages() -> None:
    stages = [{"name": "only", "desc": "", "zone": "public", "state": "cached", "deps": ["data/raw.csv"]}]
    assert pipeline.layer_stages(stages) == {"only": (0.0, 0.0)}
    assert pipeline.edges(stages) == []
    assert pipeline.nodes(stages)[0]["needs"] == ""


# Lengths and labels.


def test_lengths_are_shares_per_word_beside_the_real_rows() -> None:
    """One text of each length: 18 of 2 to 19 words, and 28 real ones of 2 to 29."""
    rows = fidelity.lengths(results(world_of_audits()["metrics"]))
    assert list(dict.fromkeys(row["variant"] for row in rows)) == ["dp3", "inf", "real"]
    for variant, texts in (("dp3", 18), ("inf", 18), ("real", 28)):
        shares = [row["share"] for row in rows if row["variant"] == variant]
        assert max(shares) == pytest.approx(1 / texts)
        assert 2 * sum(shares) == pytest.approx(1)  # in bins of two words


def test_labels_are_shares_beside_the_real_rows() -> None:
    rows = fidelity.label_shares(results(world_of_audits()["metrics"]))
    assert [(row["variant"], row["label"], row["share"]) for row in rows] == [
        ("dp3", "billing", 0.75), ("dp3", "returns", 0.25), ("inf", "billing", 0.75), ("inf", "returns", 0.25),
        ("real", "billing", 0.6), ("real", "returns", 0.4),
    ]  # fmt: skip


def test_free_labels_are_never_counted() -> None:
    metrics = world_of_audits()["metrics"]
    for name in ("dp3", "inf"):
        metrics[name]["fidelity"]["labels"] = {}
    assert fidelity.label_shares(results(metrics)) == []
    assert len(fidelity.lengths(results(metrics))) > 0
