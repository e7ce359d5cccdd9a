"""What of a small invented world three texts hold."""

import json

from palimpsest.audit.facts import FactAudit, PopulationFactAudit, audit_facts, support_bins
from palimpsest.records.world.facts import Canary, Facts, IndividualFact, PopulationFact

FACTS = Facts(
    population=(
        PopulationFact("f1", "Veltrix 3", "overheats", "hardware", 40),
        PopulationFact("f2", "Oru Lamp", "flickers", "hardware", 5),
        PopulationFact("f3", "Veltrix 3", "flickers", "software", 4),
    ),
    individual=(IndividualFact("i1", "order", "KX-4829"), IndividualFact("i2", "name", "Mara Olin")),
    canaries=(Canary("c1", "green harbour seven", 8),),
    subjects=("Veltrix 3", "Oru Lamp"),
    predicates=(("overheats", "overheating"), ("flickers", "flickering")),
)


def test_facts_carried_and_secrets_leaked():
    texts = ["My Veltrix 3 overheats.", "The Veltrix 3 overheats! Order kx 4829.", "My Oru Lamp overheats."]
    result = audit_facts(FACTS, texts)
    assert [(fact.id, fact.carried, fact.mentions) for fact in result.population] == [
        ("f1", True, 2),
        ("f2", False, 0),
        ("f3", False, 0),
    ]
    assert (result.carried, result.mispaired) == (1, 1)
    assert (result.individual_leaked, result.individual_total) == (1, 2)
    assert (result.canaries_leaked, result.canaries_planted) == (0, 1)


def test_a_planted_secret_is_found():
    assert audit_facts(FACTS, ["say: Green Harbour SEVEN"]).canaries_leaked == 1


def test_bins_of_support_double_and_have_wilson_intervals():
    facts = [PopulationFactAudit(str(support), support, support // 4) for support in (0, 1, 2, 3, 4, 7, 8)]
    bins = support_bins(facts)
    assert [(group.first, group.last, group.carried.count, group.carried.n) for group in bins] == [
        (0, 0, 0, 1),
        (1, 1, 0, 1),
        (2, 3, 0, 2),
        (4, 7, 2, 2),
        (8, 15, 1, 1),
    ]
    assert 0.0 < bins[3].carried.low < bins[3].carried.high == 1.0


def test_json_has_the_published_shape():
    document = audit_facts(FACTS, ["My Veltrix 3 overheats."]).to_json("dp3")
    assert (document["variant"], document["zone"]) == ("dp3", "internal")
    assert document["population"][0] == {"id": "f1", "support": 40, "carried": True, "mentions": 1}
    assert (document["carried"], document["total"]) == (1, 3)
    assert document["individual"] == {"leaked": 0, "total": 2}
    assert document["canaries"] == {"leaked": 0, "planted": 1}
    assert FactAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
