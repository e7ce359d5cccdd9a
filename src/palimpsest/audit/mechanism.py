"""Audits of the mechanisms themselves: the code that adds noise is run on invented records, and its whole curve tested.

Every trial is a record that is there or not, and that alone moves what the trial observes: a canary whose gradient,
label or vote no other one shares, or a call of its own. So trials are independent, and `curve.curve_test` applies. No
private row is read: the numbers are publishable.

Each function takes the code to audit as an argument and audits the package's own by default. The same call on a broken
twin is its positive control (`against`): where the twin is not caught, nothing was shown. Claims are tight here, as an
attack on a loose one finds nothing (a test with epsilon 1 catches what one with epsilon 8 does not).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from scipy.stats import norm
from torch import nn

from palimpsest import validate
from palimpsest.audit.curve import Curve, CurveTest, approximate_curve, curve_test, event_curve, power, zcdp_curve
from palimpsest.plain import Plain
from palimpsest.prediction.mechanism import Clipping, DifferenceClipping, draw
from palimpsest.privacy.accounting import total_rho
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.means import ClassMeans
from palimpsest.privacy.mechanisms import gumbel_top_k, noisy_top_k
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.votes import Ballot, Slate, Vote
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan

Train: TypeAlias = Callable[[TrainQuery, Sequence[PrivateRow], NoiseSource], nn.Module]
CountLabels: TypeAlias = Callable[[LabelHistogram, Sequence[PrivateRow], NoiseSource], Mapping[str, int]]
TakeVote: TypeAlias = Callable[[Vote, Sequence[PrivateRow], NoiseSource], Mapping[str, Sequence[float]]]
SumMeans: TypeAlias = Callable[[ClassMeans, Sequence[PrivateRow], NoiseSource], Sequence[Sequence[float]]]
PickTop: TypeAlias = Callable[[Sequence[int], int, float], Sequence[int]]
PickDomain: TypeAlias = Callable[[LimitedDomain, Sequence[int]], Sequence[int]]
NextToken: TypeAlias = Callable[[Clipping, torch.Tensor, torch.Tensor, NoiseSource], int]

TRAINING = TrainingPlan(
    rate=0.5, steps=8, clipping_norm=0.5, noise_multiplier=1.0, divisor=7.0, clipping="joint", losses=1
)
SIGMA = 1.0  # of counts and means: mu is 1
SCALE = 0.5  # of selections: one pick is 2-DP, or 1/2-zCDP
TOKEN = DifferenceClipping(clip=8.0, temperature=1.0, batch_size=8, top_k=0)  # 1/2-zCDP
WEAKER = 1.5  # how much less noise the broken twins add

# With these the weights move by minus the privatised gradient, so that every iterate shows it.
_PLAIN = Optimiser(
    learning_rate=1e9, final_learning_rate_share=1.0, betas=(0.0, 0.0), eps=1e9, weight_decay=0.0, warmup_share=0.0
)
_CANDIDATES = 4  # a record votes for that many
_GROUPS = 100  # of candidates, for each label
_CONTEXTS = 2  # beside the canary, of the 8 that the plan expects
_LEAN = TOKEN.clip / _CONTEXTS  # logits of each of them
_FAR = 1e4
_OWN_DELTA = 1e-6


@dataclass(frozen=True)
class Sizing:
    """How large an audit is.

    Attributes:
        trials: trials with the record; there are as many without it.
        alpha: probability that a correct mechanism is refuted, all looks together.
        delta: at which lower bounds on epsilon are read.
    """

    trials: int
    alpha: float
    delta: float

    def __post_init__(self) -> None:
        validate.positive(trials=self.trials, alpha=self.alpha)
        validate.in_range(0.0, 1.0, alpha=self.alpha, delta=self.delta)

    @property
    def present(self) -> np.ndarray:
        """Which trials have the record: every second one, bool (2 * trials,)."""
        return np.arange(2 * self.trials) % 2 == 1


@dataclass(frozen=True)
class MechanismAudit(Plain):
    """What looking at one mechanism showed.

    Attributes:
        name: of the mechanism.
        claim: what is tested, in words.
        looks: ways to guess from what is observed -> their tests; the alphas add up to the audit's.
        curve: the claim.
        control: the same audit of a broken twin; None where there was none.
    """

    keys: ClassVar = ("name", "claim", "verdict", "power", "epsilon", "epsilon_max", "looks", "control")
    name: str
    claim: str
    looks: Mapping[str, CurveTest]
    curve: Curve = field(repr=False, compare=False)
    control: "MechanismAudit | None" = None

    @property
    def refuted(self) -> bool:
        """Whether any look violates the claim."""
        return any(look.violated for look in self.looks.values())

    @property
    def verdict(self) -> str:
        """ "refuted"; "not refuted" where the broken twin was; "inconclusive" otherwise."""
        if self.refuted:
            return "refuted"
        return "not refuted" if self.control is not None and self.control.refuted else "inconclusive"

    @property
    def epsilon(self) -> float:
        """The best lower bound; it holds at confidence 1 - alpha whichever look gave it."""
        return max(look.epsilon for look in self.looks.values())

    @property
    def epsilon_max(self) -> float:
        """The largest epsilon that so many trials could refute."""
        return max(look.epsilon_max for look in self.looks.values())

    @property
    def power(self) -> float | None:
        """The probability of refuting a mechanism with the twin's observed rates, by its best look; None without one.

        The observed rates stand in for the true ones.
        """
        if self.control is None:
            return None
        return max(self._power(look) for look in self.control.looks.values())

    def _power(self, look: CurveTest) -> float:
        false, true = look.false_positives, look.true_positives
        return power(false.n, true.n, false.rate, true.rate, self.curve, look.alpha)


def against(audit: MechanismAudit, twin: MechanismAudit) -> MechanismAudit:
    """The audit with its positive control: `twin` is the same call on a broken mechanism."""
    return replace(audit, control=twin)


def audit_mechanisms(sizing: Sizing, noise: NoiseSource) -> list[MechanismAudit]:
    """Every family that the generators use, each against a twin whose noise is `WEAKER` times too small.

    `sizing.alpha` is that of each audit, not of all together.
    """
    return [
        against(audit_training(sizing, noise), audit_training(sizing, noise, weaker_training)),
        against(audit_histogram(sizing, noise), audit_histogram(sizing, noise, weaker_histogram)),
        against(audit_votes(sizing, noise), audit_votes(sizing, noise, weaker_vote)),
        against(audit_means(sizing, noise), audit_means(sizing, noise, weaker_means)),
        against(audit_noisy_top_k(sizing), audit_noisy_top_k(sizing, weaker(noisy_top_k))),
        against(audit_gumbel_top_k(sizing), audit_gumbel_top_k(sizing, weaker(gumbel_top_k))),
        against(audit_limited_domain(sizing), audit_limited_domain(sizing, weaker_domain)),
        against(audit_token(sizing, noise), audit_token(sizing, noise, weaker_token)),
    ]


# --- training --------------------------------------------------------------------------------------------------------


def audit_training(sizing: Sizing, noise: NoiseSource, train: Train = TrainQuery.run) -> MechanismAudit:
    """DP-SGD as `TrainQuery` runs it: Poisson batches, clipping, noise, divisor and the optimiser's step.

    The model has one weight for each canary, and a canary's gradient is ten clipping norms along its own, so the steps
    of one run are as many independent trials as there are canaries. The attack sees every iterate, as the guarantee
    allows; losses are asked at each of them, which is where they are noted. It looks at the sum of a canary's noisy
    gradients over the steps (too little noise, no clipping, a rate too high), and at how far they are spread (noise
    that repeats, which a sum does not see).

    Args:
        sizing: canaries in the training set, and as many outside.
        noise: where batches and noise come from.
        train: (query, rows, noise) -> the trained module.
    """
    present, iterates = sizing.present, []

    def losses(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor]:
        iterates.append(_weights(model))
        return (10.0 * TRAINING.clipping_norm * model(batch).sum((1, 2)),)

    model = nn.Embedding(len(present), 1)
    nn.init.zeros_(model.weight)
    query = TrainQuery(TRAINING, _PLAIN, model, _numbers, losses, len(present), name="canaries")
    released = train(query, [PrivateRow(str(index)) for index in np.flatnonzero(present)], noise)
    steps = -np.diff(np.stack([*iterates, _weights(released)]), axis=0) * TRAINING.divisor / TRAINING.clipping_norm
    top = float(norm.isf(0.25)) * TRAINING.noise_multiplier * TRAINING.steps**0.5
    flags = {"sum over steps": steps.sum(axis=0) > top, "spread over steps": np.ptp(steps, axis=0) > 0.5}
    claim = f"{TRAINING.steps} Gaussians of noise {TRAINING.noise_multiplier:g} on samples of rate {TRAINING.rate:g}"
    return _audit("training", claim, event_curve(TRAINING.event()), flags, sizing)


def weaker_training(query: TrainQuery, rows: Sequence[PrivateRow], noise: NoiseSource) -> nn.Module:
    """A broken twin: too little noise."""
    plan = replace(query.plan, noise_multiplier=query.plan.noise_multiplier / WEAKER)
    return replace(query, plan=plan).run(rows, noise)


def _numbers(rows: Sequence[PrivateRow]) -> torch.Tensor:
    return torch.tensor([[int(row.text)] for row in rows])


def _weights(model: nn.Module) -> np.ndarray:
    return next(model.parameters()).detach().double().squeeze(1).numpy().copy()


# --- counts and means ------------------------------------------------------------------------------------------------


def audit_histogram(sizing: Sizing, noise: NoiseSource, run: CountLabels = LabelHistogram.run) -> MechanismAudit:
    """Label counts with discrete Gaussian noise: every label is a trial with one record, or none.

    Args:
        sizing: labels with a record, and as many without.
        noise: handed on; the package's own histogram draws from OpenDP's source.
        run: (query, rows, noise) -> label -> noisy count.
    """
    query = LabelHistogram(_labels(sizing), SIGMA)
    counts = run(query, _rows(sizing), noise)
    flags = {"count": np.array([counts[label] for label in query.labels]) > 0.5}
    claim = f"a discrete Gaussian of sigma {SIGMA:g} on each count"
    return _audit("label histogram", claim, event_curve(query.event()), flags, sizing)


def weaker_histogram(query: LabelHistogram, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
    """A broken twin: too little noise."""
    return replace(query, sigma=query.sigma / WEAKER).run(rows, noise)


def audit_votes(sizing: Sizing, noise: NoiseSource, run: TakeVote = Vote.run) -> MechanismAudit:
    """A vote for the nearest candidates: every four candidates are a trial, and a record near them votes for all four.

    Each label has a hundred trials, and so up to fifty records.

    Args:
        sizing: groups of candidates with a record, and as many without.
        noise: where the ballot's noise comes from.
        run: (query, rows, noise) -> label -> noisy counts.
    """
    groups = np.arange(2 * sizing.trials)
    names = [f"label {group // _GROUPS}" for group in groups]
    axes = np.eye(_GROUPS + _CANDIDATES)
    near = 9.0 * axes[:_GROUPS, None] + axes[None, _GROUPS:]  # (groups, candidates, d)
    last = {name: int(group) % _GROUPS + 1 for name, group in zip(names, groups, strict=True)}
    slate = Slate({}, {name: near[:count].reshape(-1, len(axes)) for name, count in last.items()})
    query = Vote(Ballot(lambda texts: axes[[int(text) for text in texts]], _CANDIDATES, SIGMA), slate)
    rows = [PrivateRow(str(group % _GROUPS), names[group]) for group in groups[sizing.present]]
    counts = run(query, rows, noise)
    sums = np.concatenate([counts[name] for name in last]).reshape(-1, _CANDIDATES)
    claim = f"a Gaussian of noise {SIGMA:g} on a record's {_CANDIDATES} votes together"
    return _audit("votes", claim, event_curve(query.event()), {"sum of counts": sums.mean(axis=1) > 0.5}, sizing)


def weaker_vote(query: Vote, rows: Sequence[PrivateRow], noise: NoiseSource) -> Mapping[str, Sequence[float]]:
    """A broken twin: too little noise."""
    assert isinstance(query.ballot, Ballot)
    return replace(query, ballot=replace(query.ballot, sigma=query.ballot.sigma / WEAKER)).run(rows, noise)


def audit_means(sizing: Sizing, noise: NoiseSource, run: SumMeans = ClassMeans.run) -> MechanismAudit:
    """Sums of embeddings per class: every label is a trial, looked at along its record's vector.

    Args:
        sizing: labels with a record, and as many without.
        noise: where the noise comes from.
        run: (query, rows, noise) -> one noisy sum for each label.
    """
    query = ClassMeans(_labels(sizing), _vectors, _CANDIDATES, SIGMA)
    along = _vectors(["."])[0] / np.linalg.norm(_vectors(["."])[0])
    flags = {"sum along the vector": np.array(run(query, _rows(sizing), noise)) @ along > 0.5}
    claim = f"a Gaussian of noise {SIGMA:g} on each coordinate of sums of unit vectors"
    return _audit("class means", claim, event_curve(query.event()), flags, sizing)


def weaker_means(query: ClassMeans, rows: Sequence[PrivateRow], noise: NoiseSource) -> Sequence[Sequence[float]]:
    """A broken twin: too little noise."""
    return replace(query, sigma=query.sigma / WEAKER).run(rows, noise)


def _labels(sizing: Sizing) -> tuple[str, ...]:
    return tuple(f"label {index}" for index in range(2 * sizing.trials))


def _rows(sizing: Sizing) -> list[PrivateRow]:
    return [PrivateRow(".", label) for label, there in zip(_labels(sizing), sizing.present, strict=True) if there]


def _vectors(texts: Sequence[str]) -> np.ndarray:
    """The same vector for every text, longer than 1 and not along an axis."""
    return np.tile(np.arange(_CANDIDATES, 0.0, -1.0), (len(texts), 1))


# --- selections ------------------------------------------------------------------------------------------------------


def audit_noisy_top_k(sizing: Sizing, pick: PickTop = noisy_top_k) -> MechanismAudit:
    """Report noisy max with exponential noise, two candidates at 0 of which the record raises one to 1.

    In two experiments of the same size it is the first and the second: one of them sees a choice without noise,
    whichever way it breaks ties.

    Args:
        sizing: calls with the record, and as many without.
        pick: (scores, k, scale) -> indices, the best first.
    """
    flags = _picked(sizing, pick)
    return _audit("noisy top k", f"{1 / SCALE:g}-DP", approximate_curve(1.0 / SCALE, 0.0), flags, sizing)


def audit_gumbel_top_k(sizing: Sizing, pick: PickTop = gumbel_top_k) -> MechanismAudit:
    """The exponential mechanism by Gumbel noise, as `audit_noisy_top_k`."""
    rho = 1.0 / (8.0 * SCALE**2)
    return _audit("Gumbel top k", f"{rho:g}-zCDP", zcdp_curve(rho), _picked(sizing, pick), sizing)


def weaker(pick: PickTop) -> PickTop:
    """A broken twin: too little noise."""
    return lambda scores, k, scale: pick(scores, k, scale / WEAKER)


def _picked(sizing: Sizing, pick: PickTop) -> dict[str, np.ndarray]:
    def raised(which: int) -> np.ndarray:
        scores = [[int(there and index == which) for index in range(2)] for there in sizing.present.tolist()]
        return np.array([pick(own, 1, SCALE)[0] == which for own in scores])

    return {"first raised": raised(0), "second raised": raised(1)}


def audit_limited_domain(sizing: Sizing, pick: PickDomain = LimitedDomain.pick) -> MechanismAudit:
    """Picks among the bins that lead, in two experiments of the same size.

    `leading`: two bins far above the bottom, and the record votes for the second: is that one picked? `entering`: the
    record's vote makes another bin the one that can be picked, which the bottom must hide.

    Args:
        sizing: calls with the record, and as many without, of each experiment.
        pick: (mechanism, counts) -> indices that come out.
    """
    two, one = (LimitedDomain(domain=domain, picks=1, scale=SCALE, delta=_OWN_DELTA) for domain in (2, 1))
    far = 100 + two.offset
    flags = {
        "leading": np.array([list(pick(two, [far, far + int(there)])) == [1] for there in sizing.present]),
        "entering": np.array([list(pick(one, [0, int(there)])) == [1] for there in sizing.present]),
    }
    rho = total_rho(two.event())
    curve = zcdp_curve(rho, two.own_delta)
    return _audit(
        "limited domain", f"{rho:g}-zCDP but for a total variation of {two.own_delta:g}", curve, flags, sizing
    )


def weaker_domain(mechanism: LimitedDomain, counts: Sequence[int]) -> list[int]:
    """A broken twin: too little noise, and a bottom that belongs to it."""
    return replace(mechanism, scale=mechanism.scale / WEAKER).pick(counts)


# --- prediction ------------------------------------------------------------------------------------------------------


def next_token(clipping: Clipping, private: torch.Tensor, public: torch.Tensor, noise: NoiseSource) -> int:
    """A token of all, from private logits (n, k) and public ones (k,): what `prediction.decoding` does at each step."""
    total = clipping.contributions(private, public).sum(dim=0, dtype=torch.float64)
    return draw(clipping.scores(total, public), noise)


def audit_token(
    sizing: Sizing, noise: NoiseSource, token: NextToken = next_token, clipping: Clipping = TOKEN
) -> MechanismAudit:
    """The draw of one token of two: the record's logits are for the first one, as strongly as clipping lets them.

    Two other contexts, where the plan expects eight, lean to the second one: half as far as the record can push, so
    that a draw without randomness shows, and so does dividing by how many there are.

    Args:
        sizing: draws with the record, and as many without.
        noise: where the draw comes from.
        token: (clipping, private logits, public logits, noise) -> the index drawn.
        clipping: what is cut, and the claim.
    """
    public, others = torch.zeros(2), torch.tensor([[0.0, _LEAN]]).expand(_CONTEXTS, 2)
    contexts = (others, torch.cat([others, torch.tensor([[_FAR, -_FAR]])]))
    drawn = [token(clipping, contexts[int(there)], public, noise) == 0 for there in sizing.present]
    curve = zcdp_curve(clipping.rho)
    return _audit("token", f"{clipping.rho:g}-zCDP", curve, {"token": np.array(drawn)}, sizing)


def weaker_token(clipping: Clipping, private: torch.Tensor, public: torch.Tensor, noise: NoiseSource) -> int:
    """A broken twin: a temperature that is too low."""
    assert isinstance(clipping, DifferenceClipping)
    return next_token(replace(clipping, temperature=clipping.temperature / WEAKER), private, public, noise)


def _audit(name: str, claim: str, curve: Curve, flags: Mapping[str, np.ndarray], sizing: Sizing) -> MechanismAudit:
    """One test for each look, at an equal share of alpha."""
    present, alpha = sizing.present, sizing.alpha / len(flags)
    looks = {
        look: curve_test(flagged[~present], flagged[present], curve, sizing.delta, alpha)
        for look, flagged in flags.items()
    }
    return MechanismAudit(name, claim, looks, curve)
