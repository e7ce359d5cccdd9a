"""A leaky model is refuted, an honest one is not, and an audit without power or with unfair coins says so."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from palimpsest.audit.membership import (
    Control,
    MembershipAudit,
    audit_membership,
    bag_of_words_control,
    correct_guesses,
    guess_count,
    loss_attack,
    min_k_attack,
    most_right,
    record_losses,
    reference_attack,
    zlib_attack,
)
from palimpsest.audit.statistics import Estimate, Interval
from palimpsest.audit.units import Scores
from palimpsest.errors import DataError
from palimpsest.methods.dp_lm.likelihood import record_losses as model_losses
from palimpsest.methods.dp_lm.model import new_model
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.models.lm import pretrain_lm
from palimpsest.models.settings import EmbeddedLm
from palimpsest.records.record import Record
from stages.mia import standardise_scores, token_scores

PASSED = Control(Estimate(0.5, 0.4, 0.6), Interval(0.4, 0.6))
FAILED = Control(Estimate(0.9, 0.8, 1.0), Interval(0.4, 0.6))


def scores(shift, size=300, seed=0):
    rng = np.random.default_rng(seed)
    return Scores(rng.normal(shift, 1, size), rng.normal(0, 1, size))


def audit(attacks, control=PASSED, claim=1.0, guess_share=0.2, seed=0, guessed="both"):
    return audit_membership(
        attacks, control, claim=claim, delta=1e-5, guess_share=guess_share, alpha=0.05, seed=seed, guessed=guessed,
    )  # fmt: skip


def told(rng):
    """Randomised response at epsilon 1 on each of 200 coins; scores are its answers, so all are ties."""
    coins, truthful = rng.random(200) < 0.5, rng.random(200) < np.e / (1 + np.e)
    answers = (coins == truthful).astype(float)
    return Scores(answers[coins], answers[~coins])


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{word}" for word in rng.zipf(1.5, 12) % 300) for _ in range(count)]


def test_a_leaky_model_is_refuted():
    result = audit({"loss": scores(0.0), "reference": scores(6.0)})
    assert result.attacks["reference"].auc.value > 0.99
    assert result.attacks["reference"].tpr_at_1pct.rate > 0.9
    assert (result.epsilon_lower.attack, result.epsilon_lower.correct) == ("reference", 120)
    assert result.epsilon_lower.value > 1.0
    assert result.verdict == "refuted"


def test_an_honest_model_is_not_refuted():
    verdicts = [audit({"loss": scores(0.0, seed=seed)}, seed=seed).verdict for seed in range(20)]
    assert verdicts == ["not refuted"] * 20


@pytest.mark.parametrize(("guessed", "share"), [("both", 1.0), ("members", 0.4)])
def test_a_mechanism_that_spends_exactly_its_claim_is_rarely_refuted(guessed, share):
    refuted = 0
    for seed in range(200):
        response = told(np.random.default_rng(seed))
        refuted += audit({"response": response}, guess_share=share, seed=seed, guessed=guessed).verdict == "refuted"
    assert refuted <= 0.05 * 200


@pytest.mark.parametrize(
    ("control", "claim"), [(FAILED, 1.0), (PASSED, 20.0), (PASSED, None)], ids=["control", "no power", "no claim"]
)
def test_inconclusive_even_when_the_attack_succeeds(control, claim):
    assert audit({"loss": scores(9.0)}, control, claim).verdict == "inconclusive"


@pytest.mark.parametrize("guessed", ["both", "members"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 1.0])
def test_a_perfect_attack_shows_what_is_said_to_be_its_most(guessed, share):
    """Guesses beyond the units of a kind cannot be right, so that they cannot have refuted anything either."""
    perfect = Scores(np.ones(110), np.zeros(90))
    found = audit({"a": perfect}, guess_share=share, guessed=guessed)
    assert found.epsilon_lower.value == found.eps_max
    right = found.epsilon_lower.correct
    assert right == most_right(110, 90, found.epsilon_lower.guesses, guessed) <= found.epsilon_lower.guesses


@pytest.mark.parametrize("audits", [1, 2, 6])
def test_an_audit_among_others_is_conclusive_only_where_a_perfect_attack_would_refute(audits):
    """Whatever is claimed: what a perfect attack shows beside so many other audits is what is said to be its most."""
    perfect = Scores(np.ones(100), np.zeros(100))
    for claim in np.linspace(0.5, 5.0, 19):
        found = audit({"a": perfect, "b": perfect}, claim=float(claim)).among(audits)
        assert found.verdict == ("refuted" if claim < found.eps_max else "inconclusive")
        assert (found.p <= 0.05 / audits) == (claim < found.eps_max)


@pytest.mark.parametrize("audits", [1, 2, 6])
def test_an_audit_among_others_is_tested_at_its_share_of_the_error(audits):
    """So that all together refute a true claim no more often than one may (Bonferroni)."""
    found = audit({"a": scores(2.0), "b": scores(0.0)}).among(audits)
    for claim in np.linspace(0.1, found.eps_max - 0.01, 19):
        one = replace(found, claim=float(claim))
        assert (one.verdict == "refuted") == (one.p <= 0.05 / audits)
    assert 0.1 < found.epsilon_lower.value < found.eps_max - 0.01


def test_the_intervals_of_all_attacks_hold_together():
    """Of six attacks that know nothing, some interval leaves .5 out in a twentieth of the audits, not in a quarter."""
    runs = [audit({str(each): scores(0.0, 200, 6 * run + each) for each in range(6)}) for run in range(120)]
    missed = sum(any(not one.auc.low <= 0.5 <= one.auc.high for one in run.attacks.values()) for run in runs)
    assert missed < 15  # 6 are expected; 15 or more of a binomial at 5 % come once in two thousand


def test_the_best_of_several_attacks_pays_for_the_choice():
    alone = audit({"loss": scores(6.0)})
    chosen = audit({"loss": scores(6.0), "blind": scores(0.0)})
    assert chosen.epsilon_lower.value < alone.epsilon_lower.value
    assert chosen.eps_max < alone.eps_max


def test_equal_scores_tell_nothing_whatever_their_order():
    tied = Scores(np.zeros(500), np.zeros(500))
    right = [correct_guesses(tied, 400, seed) for seed in range(50)]
    assert 190 < np.mean(right) < 210


def test_guesses_come_from_both_ends():
    ranked = Scores(np.array([9.0, 8.0, 1.0]), np.array([0.0, 5.0, 7.0]))
    assert correct_guesses(ranked, 2, seed=0) == 2
    assert correct_guesses(ranked, 4, seed=0) == 3


@pytest.mark.parametrize(
    ("canaries", "share", "expected"), [(1000, 0.1, 100), (999, 0.5, 498), (10, 0.01, 2), (1, 1.0, 1)]
)
def test_the_number_of_guesses_is_a_public_share(canaries, share, expected):
    assert guess_count(canaries, share) == expected


def test_attacks_must_score_the_same_records():
    with pytest.raises(ValueError, match="same records"):
        audit({"loss": scores(0.0), "reference": scores(0.0, size=200)})


def test_control_raises_no_false_alarm_under_fair_coins():
    assert all(
        bag_of_words_control(texts(150, 2 * seed), texts(150, 2 * seed + 1), seed=seed).passed for seed in range(40)
    )


def test_control_has_the_null_spread_it_claims():
    pool, places = np.array(texts(300, 7), dtype=object), []
    for seed in range(150):
        order = np.random.default_rng(seed).permutation(300)
        control = bag_of_words_control(pool[order[:150]], pool[order[150:]], seed=seed)
        places.append((control.auc.value - 0.5) / (control.null.high - 0.5))
    assert 0.85 < 3.2905 * np.std(places) < 1.15


def test_control_sees_a_split_that_was_not_by_coin():
    marked = [f"{text} subscriber" for text in texts(150, 0)]
    assert not bag_of_words_control(marked, texts(150, 1), seed=0).passed


def test_a_control_on_too_few_records_is_an_error():
    with pytest.raises(DataError, match="too small"):
        bag_of_words_control(["a"], ["b"], seed=0)


def test_attacks_from_losses():
    members, nonmembers = [Record("aa", "x"), Record("b", None)], [Record("cccc", "x")]
    tuned = record_losses(lambda rows: np.array([len(row.text) for row in rows]), members, nonmembers)
    base = record_losses(lambda rows: np.array([9.0 if row.label else 1.0 for row in rows]), members, nonmembers)
    assert (loss_attack(tuned).members.tolist(), loss_attack(tuned).nonmembers.tolist()) == ([-2.0, -1.0], [-4.0])
    reference = reference_attack(tuned, base)
    assert (reference.members.tolist(), reference.nonmembers.tolist()) == ([7.0, 0.0], [5.0])


def test_an_attack_that_finds_few_members_for_sure_guesses_at_the_top_alone():
    few = Scores(np.append(np.ones(60), np.zeros(240)), np.zeros(300))
    one_sided, both = audit({"rare": few}, guess_share=0.1, guessed="members"), audit({"rare": few}, guess_share=0.1)
    assert (one_sided.epsilon_lower.guessed, one_sided.epsilon_lower.correct) == ("members", 60)
    assert both.epsilon_lower.correct < 55
    assert one_sided.epsilon_lower.value > 2.0 > both.epsilon_lower.value


def test_a_loss_counts_less_where_there_is_more_to_compress():
    losses, members, nonmembers = Scores(np.array([2.0, 2.0]), np.array([4.0])), ["ab" * 200, "q8#zK!"], ["ü"]
    found = zlib_attack(losses, members, nonmembers)
    sizes = [len(zlib.compress(text.encode())) for text in (*members, *nonmembers)]
    assert found.members.tolist() == [-2.0 / sizes[0], -2.0 / sizes[1]]
    assert found.nonmembers.tolist() == [-4.0 / sizes[2]]


def test_min_k_averages_the_least_likely_tokens():
    ten = np.array([3.0, -2.0, 5.0, -4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    found = min_k_attack([ten, np.array([7.0, 9.0])], [np.array([]), ten[:4]], 0.2)
    assert (found.members.tolist(), found.nonmembers.tolist()) == ([-3.0, 7.0], [0.0, -4.0])


def test_a_token_is_compared_with_what_the_model_expects():
    logits = torch.tensor([[2.0, 0.0, -1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    p = torch.softmax(logits[0].double(), dim=0)
    mean = (p * p.log()).sum()
    deviation = (p * (p.log() - mean) ** 2).sum().sqrt()
    found = standardise_scores(logits[[0, 0, 1]], torch.tensor([0, 2, 3]))
    expected = [float((p[token].log() - mean) / deviation) for token in (0, 2)]
    assert found[:2].tolist() == pytest.approx(expected, rel=1e-5)
    assert abs(float(found[2])) < 1.0  # all tokens are equally likely: none is a surprise


def test_token_scores_belong_to_their_record_and_to_the_tokens_of_its_loss(tmp_path):
    lines = ["the lamp is great", "the radio is awful and poor", "a fine kettle"]
    settings = EmbeddedLm(
        layers=1, width=16, heads=2, vocabulary=300, context=32, epochs=2, batch=3, learning_rate=0.01,
        weight_decay=0.0,
    )  # fmt: skip
    pretrain_lm(lines, lines, settings, 0, tmp_path / "base")
    model, tokenizer = new_model(tmp_path / "base", 2, 1, 0)
    rows = serialiser(tokenizer, ("x", "y"), 16, "text")
    records = [Record(line, label) for line in lines for label in ("x", "y")] + [Record("no label of these", "z")]
    found = token_scores(model, rows, records)
    for record, scores in zip(records, found, strict=True):
        batch = rows.batch([record])
        counted = batch.counted[0, 1:]
        log_p = torch.log_softmax(model.lm(batch.prompted).logits[0, :-1][counted].double(), dim=-1)
        tokens = batch.prompted[0, 1:][counted]
        mean = (log_p.exp() * log_p).sum(dim=1)
        deviation = (log_p.exp() * (log_p - mean[:, None]) ** 2).sum(dim=1).sqrt()
        own = log_p[torch.arange(len(tokens)), tokens]
        assert scores == pytest.approx(((own - mean) / deviation).detach().numpy(), abs=1e-3)
        if record.label != "z":
            assert model_losses(model, rows, [record], 1)[0] == pytest.approx(-float(own.detach().mean()), abs=1e-4)
    assert [len(scores) for scores in found[:2]] == [len(found[0])] * 2
    assert len(found[-1]) == 0


def test_a_loss_that_is_not_finite_is_an_error_that_quotes_no_row():
    with pytest.raises(DataError) as caught:
        record_losses(lambda rows: np.full(len(rows), np.nan), [Record("secret")], [Record("other")])
    assert "secret" not in str(caught.value)
    assert "of a record is not finite" in str(caught.value)


def test_json_has_the_published_shape():
    document = audit({"loss": scores(1.0, size=2000), "reference": scores(2.0, size=2000)}).to_json("dp3")
    assert set(document) == {
        *("variant", "zone", "unit", "members", "nonmembers", "control", "attacks", "epsilon_lower"),
        *("eps_max", "verdict", "claim", "p", "planted"),
    }
    assert set(document["control"]) == {"auc", "low", "high", "null_low", "null_high", "passed"}
    assert set(document["attacks"]["loss"]) == {"auc", "low", "high", "tpr_at_1pct", "roc", "advantage"}
    assert set(document["attacks"]["loss"]["tpr_at_1pct"]) == {"count", "n", "rate", "low", "high"}
    assert len(document["attacks"]["loss"]["roc"]) <= 200
    assert MembershipAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
    assert {"value", "method", "guesses", "correct", "delta", "alpha"} <= set(document["epsilon_lower"])


def test_the_p_value_is_that_of_the_claim_over_all_attacks() -> None:
    """It refutes exactly where the bound does, at the audit's alpha."""
    rng = np.random.default_rng(5)
    for shift in (0.0, 1.0, 2.5):
        scores = Scores(rng.normal(shift, 1, 300), rng.normal(0, 1, 300))
        control = Control(Estimate(0.5, 0.45, 0.55), Interval(0.4, 0.6))
        settings = {"delta": 1e-6, "guess_share": 0.3, "alpha": 0.05, "seed": 1}
        audit = audit_membership({"one": scores, "two": scores}, control, claim=1.0, **settings)
        assert audit.p is not None
        assert (audit.p < 0.05) == (audit.epsilon_lower.value > 1.0)
        assert audit_membership({"one": scores}, control, claim=None, **settings).p is None
