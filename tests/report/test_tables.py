import math
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from report_world import charge, world_ledger, world_metrics, world_receipts, world_stages

from palimpsest.report import tables
from palimpsest.report.layout import layered
from palimpsest.report.summary import summarise


def test_the_band_of_chance_is_that_of_all_orders() -> None:
    """Three members and three non-members: every one of the 20 orders is equally likely."""
    orders = set(permutations("mmmnnn"))
    counts: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for order in orders:
        for rank in counts:
            cut = [index for index, kind in enumerate(order) if kind == "n"][rank - 1]
            counts[rank].append(order[:cut].count("m"))
    band = tables.null_band({"members": 3, "nonmembers": 3})
    for row, (rank, found) in zip(band, counts.items(), strict=True):
        assert row["fpr"] == rank / 3
        low = min(k for k in range(4) if sum(c <= k for c in found) >= 0.025 * len(found))
        high = min(k for k in range(4) if sum(c <= k for c in found) >= 0.975 * len(found))
        assert row["high"] == pytest.approx(high / 3)
        assert row["low"] == pytest.approx(max(low, 0.5) / 3)


def test_wilson_bands_of_facts() -> None:
    """0 of 10: 0 to 0.278; 5 of 10: 0.237 to 0.763 (Wilson 1927; Brown, Cai and DasGupta 2001)."""
    facts = [{"support": 5, "carried": False}] * 10 + [{"support": 40, "carried": i % 2 == 0} for i in range(10)]
    none, half = tables.carried({"dp3": {"facts": {"population": facts}}})
    assert (none["support"], none["share"], none["low"]) == (pytest.approx(5), 0, 0)
    assert none["high"] == pytest.approx(0.2775, abs=1e-4)
    assert (half["low"], half["high"]) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))


def test_the_waterfall_ends_at_what_the_ledger_counts() -> None:
    rows = tables.waterfall(world_ledger())
    assert [row["kind"] for row in rows] == ["committed", "committed", "reserved", "composition", "total"]
    assert rows[-1]["end"] == rows[-2]["end"] == 3.62
    assert all(math.isclose(after["start"], before["end"]) for before, after in pairwise(rows[:-1]))


def test_a_single_charge_is_the_total() -> None:
    only = replace(world_ledger(), charges=(charge(1, "dp3", "dp_sgd", "committed", "release", 3.62),))
    assert [row["kind"] for row in tables.waterfall(only)] == ["committed", "total"]
    assert [row["kind"] for row in tables.waterfall(replace(only, charges=(), spent_epsilon=0.0))] == ["total"]


def test_a_reference_has_no_cap_and_no_place_on_the_epsilon_axis() -> None:
    summary = summarise(world_metrics(), world_receipts(), world_ledger())
    assert [row["kind"] for row in tables.bracket(summary) if row["variant"] == "inf"] == [
        tables.ATTACKED,
        tables.DETECTABLE,
    ]
    assert [row["epsilon"] for row in tables.frontier(summary, "tfidf_lr")] == [2.98, None, None, None]


def test_zero_rates_fit_on_a_logarithmic_axis() -> None:
    found = world_metrics()["dp3"]["membership"]
    rows = tables.roc(found)
    assert min(min(row["fpr"], row["tpr"]) for row in rows) == tables.rate_floor(found) > 0


def test_arrows_point_right_and_no_two_stages_share_a_place() -> None:
    stages = world_stages()
    places = layered(stages)
    assert len(set(places.values())) == len(stages)
    assert all(places[dep][0] < places[stage["name"]][0] for stage in stages for dep in stage["deps"])


def test_files_among_the_needs_are_not_stages() -> None:
    stages = [{"name": "only", "desc": "", "zone": "public", "state": "cached", "deps": ["data/raw.csv"]}]
    assert layered(stages) == {"only": (0.0, 0.0)}
    assert tables.edges(stages) == []
    assert tables.nodes(stages)[0]["needs"] == ""


def test_shapes_are_shares() -> None:
    metrics = {"dp3": {"shape": {"labels": {"a": 3, "b": 1}, "lengths": {"edges": [0, 10, 20], "counts": [1, 3]}}}}
    assert [row["share"] for row in tables.label_shares(metrics)] == [0.75, 0.25]
    assert [(row["length"], row["share"]) for row in tables.lengths(metrics)] == [(5.0, 0.25), (15.0, 0.75)]
