"""Membership inference with its control, and the lower bound on epsilon that one run allows.

Members and non-members are the units behind the guess rows of train and holdout, records or persons: fair, independent
coins decided which is which, one for each unit (`units`). Take all of them: cutting both sides to one size makes the
coins depend on each other, which can double the variance of the number of right guesses, and the bound no longer holds.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve
from sklearn.pipeline import make_pipeline

from palimpsest import validate
from palimpsest.audit.statistics import (
    CONFIDENCE,
    Estimate,
    Interval,
    Rate,
    auc_null_interval,
    auc_with_interval,
    one_run_epsilon,
    one_run_p_value,
    thin,
    tpr_at_fpr,
)
from palimpsest.audit.units import Scores, Units
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.records.record import Record
from palimpsest.records.segment import words

Verdict = Literal["refuted", "not refuted", "inconclusive"]
Guesses = Literal["both", "members"]
RecordLoss = Callable[[Sequence[Record]], np.ndarray]

_METHOD = "one run, (epsilon, delta), Steinke et al. 2023; Bonferroni over attacks"
_CONTROL_CONFIDENCE = 0.999
_ROC_POINTS = 200
_LOW_FPR = 0.01


@dataclass(frozen=True)
class Control(Plain):
    """A classifier that sees the texts but no model: if it tells members from non-members, the coins were not fair."""

    keys: ClassVar = ("auc", "null", "passed")
    auc: Annotated[Estimate, At(value="auc")]  # its AUC on units it was not fitted on
    # the interval of that AUC, with 99.9 % probability, under fair coins.
    null: Annotated[Interval, At(low="null_low", high="null_high")]

    @property
    def passed(self) -> bool:
        """Whether its AUC lies where fair coins leave it."""
        return self.null.low <= self.auc.value <= self.null.high


@dataclass(frozen=True, eq=False)
class Attack(Plain):
    """The success of one attack's scores."""

    # Area under the ROC curve, .5 for a blind guess. The intervals of all attacks hold together (Bonferroni), and so
    # that of the best one.
    auc: Annotated[Estimate, At(value="auc")]
    # Members above the threshold that 1 % of the non-members exceed; the interval is given that threshold, which these
    # non-members set.
    tpr_at_1pct: Rate
    roc: np.ndarray  # corners (fpr, tpr) of the curve, at most 200; shape (points, 2)
    advantage: float  # largest tpr - fpr (Yeom et al. 2018)


@dataclass(frozen=True)
class EpsilonLower(Plain):
    """The lower bound on epsilon, from the attack that gives the largest one."""

    keys: ClassVar = (
        "value", "method", "attack", "canaries", "guesses", "guessed", "correct", "per_attack", "delta", "alpha",
    )  # fmt: skip
    value: float  # epsilon below which every claim is refuted
    attack: str  # whose guesses they are
    canaries: int  # number of coins, m: of records or of persons
    guesses: int  # number of guesses r, a public share of m
    correct: int
    delta: float
    alpha: float  # probability of a false refutation, over all attacks together
    per_attack: Mapping[str, int]  # number of correct guesses of every attack
    guessed: Guesses = "both"  # what is said of a unit: "both", member or non-member, or "members", nothing but member

    @property
    def method(self) -> str:
        """The test that the bound is from, as the file names it."""
        return _METHOD

    def lower_bound(self, correct: int, alpha: float) -> float:
        """Return the lower bound from so many right guesses, at error probability `alpha` over all attacks."""
        return one_run_epsilon(self.canaries, self.guesses, correct, self.delta, alpha / len(self.per_attack))


@dataclass(frozen=True, eq=False)
class MembershipAudit(PlainFile):
    """Private zone: the control, the attacks, the bound, its power and the verdict on one claim."""

    keys: ClassVar = (
        "unit", "members", "nonmembers", "control", "attacks", "epsilon_lower", "eps_max", "verdict", "claim", "p",
        "planted",
    )  # fmt: skip
    members: int  # units that were trained on
    nonmembers: int  # units that were not
    control: Control
    attacks: Mapping[str, Attack]
    epsilon_lower: EpsilonLower
    eps_max: float  # the largest claim that so many guesses could have refuted
    claim: float | None  # epsilon of the release, or None for a run that claims nothing
    unit: str = "record"  # whose coins were guessed: "record" or "person"
    # attack -> its AUC where it must find such records, planted to try it; empty where none were
    planted: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """`inconclusive` where the control failed, nothing is claimed, or no outcome could have refuted the claim."""
        if not self.control.passed or self.claim is None or self.eps_max <= self.claim:
            return "inconclusive"
        return "refuted" if self.epsilon_lower.value > self.claim else "not refuted"

    def among(self, audits: int) -> "MembershipAudit":
        """Return this audit as one of `audits` of the same claim, each at its share of the error probability.

        Guarantee: together they refute a true claim with probability `alpha` at most (Bonferroni). The result of a
        perfect attack is computed at the same share, since it describes the test that decides.
        """
        bound = self.epsilon_lower
        alpha = bound.alpha / audits
        most = most_right(self.members, self.nonmembers, bound.guesses, bound.guessed)
        shown = replace(bound, value=bound.lower_bound(bound.correct, alpha), alpha=alpha)
        return replace(self, epsilon_lower=shown, eps_max=bound.lower_bound(most, alpha))

    @property
    def p(self) -> float | None:
        """The p value of the best attack's guesses under this claim, times the number of attacks (Bonferroni).

        None where nothing is claimed.
        """
        if self.claim is None:
            return None
        bound = self.epsilon_lower
        alone = one_run_p_value(bound.canaries, bound.guesses, bound.correct, self.claim, bound.delta)
        return min(1.0, len(self.attacks) * alone)


def audit_membership(
    attacks: Mapping[str, Scores],
    control: Control,
    *,
    claim: float | None,
    delta: float,
    guess_share: float,
    alpha: float,
    seed: int,
    guessed: Guesses = "both",
    units: Units | None = None,
) -> MembershipAudit:
    """Judge one claim by all attacks together.

    The attacks, the share of guesses and alpha are fixed before any score is seen; each attack is tested at alpha
    divided by the number of attacks, so taking the best of them keeps the error probability (Bonferroni).

    Where persons are the unit, the independent coins of the bound are the persons'. So each person is one guess, with
    one score made of their rows' scores by a rule that is fixed for the attack (`units.RULES`), and the bound is on a
    person's epsilon.

    Args:
        attacks: name -> scores, all over the same members and non-members: all units that may be guessed about.
        control: the model-free control on the same units.
        claim: the epsilon that the release claims; None where it claims none.
        guess_share: public share of the units that are guessed about.
        seed: orders units of equal score.
        guessed: "both" calls the highest scores members and the lowest non-members; "members" makes all its guesses at
            the top, for attacks where a low score means little. The bound holds for either, fixed in advance.
        units: the units of the scored records; None: each record is its own unit.
    """
    if units is not None and units.kind != "record":
        attacks = {name: scores.of_units(units, name) for name, scores in attacks.items()}
    sizes = {(len(scores.members), len(scores.nonmembers)) for scores in attacks.values()}
    if len(sizes) != 1:
        raise ValueError(f"all attacks must score the same records, got sizes {sorted(sizes)!r}")
    members, nonmembers = sizes.pop()
    guesses = guess_count(members + nonmembers, guess_share)
    bound = _epsilon_lower(attacks, guesses, delta, alpha, seed, guessed)
    most = most_right(members, nonmembers, guesses, guessed)
    return MembershipAudit(
        members=members,
        nonmembers=nonmembers,
        control=control,
        attacks={
            name: measure_attack(scores, 1.0 - (1.0 - CONFIDENCE) / len(attacks)) for name, scores in attacks.items()
        },
        epsilon_lower=bound,
        eps_max=bound.lower_bound(most, alpha),
        claim=claim,
        unit="record" if units is None else units.kind,
    )


def bag_of_words_control(members: Sequence[str], nonmembers: Sequence[str], *, seed: int) -> Control:
    """Test whether the texts alone separate members from non-members. They must not: run this before any attack.

    A logistic regression on binary bags of words is fitted on one random half of the records and scores the other. One
    split, not cross-validation: given the fitted half the scores are independent of the other half's coins, so their
    AUC has exactly the Mann-Whitney null variance. Pooled over five folds, each record's coin also shapes the model
    that scores the others, and the standard deviation was 1.35-1.47 times that: 1 to 3 % false alarms at 99.9 %.

    Args:
        members, nonmembers: one text for each unit: for a person, all their rows joined (`Guessed.documents`). With
            rows of one person in both halves the model would know the person, and with them the coin.

    Raises:
        DataError: a side is empty, a half has records of only one side, or no text has a word.
    """
    _check_coins(len(members), len(nonmembers))
    texts = np.array([*members, *nonmembers], dtype=object)
    coins = np.arange(len(texts)) < len(members)
    fitted = _split_halves(coins, seed)
    bags = CountVectorizer(binary=True, tokenizer=words, token_pattern=None, lowercase=False)
    if not any(map(words, texts[fitted])):
        raise DataError("The audited texts hold no word for the control.", "Audit texts that have words.")
    model = make_pipeline(bags, LogisticRegression(C=0.1))
    scores = model.fit(texts[fitted], coins[fitted]).decision_function(texts[~fitted])
    held = Scores(scores[coins[~fitted]], scores[~coins[~fitted]])
    null = auc_null_interval(held.members, held.nonmembers, _CONTROL_CONFIDENCE)
    return Control(auc_with_interval(held.members, held.nonmembers), null)


def record_losses(loss: RecordLoss, members: Sequence[Record], nonmembers: Sequence[Record]) -> Scores:
    """The model's loss on each record, as `Scores` of losses (not yet turned into an attack).

    Args:
        loss: records -> mean token losses in nats, (records,); it must serialise a record as the generator does.

    Raises:
        DataError: a side is empty, or a loss is not finite.
    """
    _check_coins(len(members), len(nonmembers))
    sides = [loss(rows) for rows in (members, nonmembers)]
    if not all(np.isfinite(losses).all() for losses in sides):
        raise DataError("The loss of a record is not finite.", "Check the model: its training may have diverged.")
    return Scores(*(losses.astype(np.float64) for losses in sides))


def loss_attack(tuned: Scores) -> Scores:
    """Score records by low loss, which suggests a member (Yeom et al. 2018)."""
    return Scores(-tuned.members, -tuned.nonmembers)


def reference_attack(tuned: Scores, base: Scores) -> Scores:
    """Score records by how far the loss fell from the base model's, which suggests a member (Carlini et al. 2021)."""
    return Scores(base.members - tuned.members, base.nonmembers - tuned.nonmembers)


def zlib_attack(tuned: Scores, members: Sequence[str], nonmembers: Sequence[str]) -> Scores:
    """Score records by low loss relative to the text's compressed size, which suggests a member (Carlini et al. 2021).

    The score is minus the mean token loss divided by the size in bytes of the text compressed by zlib: repetitive text
    has a low loss under any model, and few bytes.
    """
    return Scores(-tuned.members / _compressed_sizes(members), -tuned.nonmembers / _compressed_sizes(nonmembers))


def min_k_attack(members: Sequence[np.ndarray], nonmembers: Sequence[np.ndarray], share: float) -> Scores:
    """Score records by the absence of very unlikely tokens, which suggests a member: Min-K%++ (Zhang et al. 2024).

    Args:
        members, nonmembers: for each record, how much likelier each token is than the model expects after its history:
            (log p(token) - mean) / deviation, both of log p under the model itself; shape (tokens,).
        share: share of a record's tokens, the least likely ones, that are averaged; at least one. A record without a
            token has 0, the value that the model expects.
    """
    validate.require_in_range(0, 1, share=share)
    return Scores(*(np.array([_lowest_mean(row, share) for row in side]) for side in (members, nonmembers)))


def measure_attack(scores: Scores, confidence: float = CONFIDENCE) -> Attack:
    """AUC, TPR at 1 % FPR, ROC curve and advantage of one attack; `confidence` is that of the AUC's interval."""
    coins = np.repeat([1, 0], [len(scores.members), len(scores.nonmembers)])
    fpr, tpr, _ = roc_curve(coins, scores.joined, drop_intermediate=False)
    return Attack(
        auc=auc_with_interval(scores.members, scores.nonmembers, confidence),
        tpr_at_1pct=tpr_at_fpr(scores.members, scores.nonmembers, _LOW_FPR),
        roc=thin(np.column_stack([fpr, tpr]), _ROC_POINTS),
        advantage=float((tpr - fpr).max()),
    )


def guess_count(canaries: int, share: float) -> int:
    """The number of guesses: the public share of the coins, rounded down to an even number, at least 2."""
    validate.require_in_range(0, 1, share=share)
    return min(canaries, max(2, 2 * int(share * canaries / 2)))


def most_right(members: int, nonmembers: int, guesses: int, guessed: Guesses = "both") -> int:
    """Return how many guesses a perfect attack gets right: there may be fewer units on a side than guesses at it.

    >>> most_right(50, 50, 60, "members"), most_right(50, 50, 60)
    (50, 60)
    """
    low = guesses // 2 if guessed == "both" else 0
    return min(low, nonmembers) + min(guesses - low, members)


def correct_guesses(scores: Scores, guesses: int, seed: int, guessed: Guesses = "both") -> int:
    """Count right guesses where the top half of the `guesses` is called members and the bottom half non-members.

    With `guessed` "members" all guesses are at the top. Records of equal score are ordered at random: their order in
    the arrays would reveal the coins.
    """
    values = scores.joined
    is_member = np.arange(len(values)) < len(scores.members)
    order = np.lexsort((np.random.default_rng(seed).random(len(values)), values))
    low = guesses // 2 if guessed == "both" else 0
    bottom, top = order[:low], order[len(order) - (guesses - low) :]
    return int((~is_member[bottom]).sum() + is_member[top].sum())


def _epsilon_lower(
    attacks: Mapping[str, Scores], guesses: int, delta: float, alpha: float, seed: int, guessed: Guesses
) -> EpsilonLower:
    correct = {name: correct_guesses(scores, guesses, seed, guessed) for name, scores in attacks.items()}
    best = max(correct, key=lambda name: correct[name])
    canaries = len(attacks[best].members) + len(attacks[best].nonmembers)
    bound = EpsilonLower(0.0, best, canaries, guesses, correct[best], delta, alpha, correct, guessed)
    return replace(bound, value=bound.lower_bound(bound.correct, alpha))


def _compressed_sizes(texts: Sequence[str]) -> np.ndarray:
    """Bytes of each text after zlib, float64 (texts,); never 0."""
    return np.array([len(zlib.compress(text.encode("utf-8", "surrogatepass"))) for text in texts], dtype=np.float64)


def _lowest_mean(values: np.ndarray, share: float) -> float:
    """Mean of the lowest share of the values, at least one; 0 without any."""
    if not len(values):
        return 0.0
    return float(np.sort(values)[: max(1, int(share * len(values)))].mean())


def _split_halves(coins: np.ndarray, seed: int) -> np.ndarray:
    half = np.random.default_rng(seed).permutation(len(coins)) < len(coins) // 2
    if len({*coins[half]}) < 2 or len({*coins[~half]}) < 2:
        raise DataError("The audit subset is too small for its control.", "Enlarge the audit subset.")
    return half


def _check_coins(members: int, nonmembers: int) -> None:
    if not members or not nonmembers:
        raise DataError("The audit subset has no member or no non-member.", "Enlarge the audit subset.")
