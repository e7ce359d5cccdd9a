"""Audits of the mechanisms themselves: the code that adds noise is run on invented records, and its whole curve tested.

Every trial is a record that is there or not, and that alone moves what the trial observes: a canary whose gradient,
label or vote no other one shares, or a call of its own. So trials are independent, and `curve.curve_test` applies. No
private row is read: the numbers are publishable.

Each function takes how large the audit is, where noise comes from, and the code to audit: the package's own by default.
The same call on a broken twin is its positive control: where the twin is not caught, nothing was shown. Claims are
tight here, as an attack on a loose one finds nothing (a test with epsilon 1 catches what one with epsilon 8 does not).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from scipy.stats import norm
from torch import nn

from palimpsest import validate
from palimpsest.prediction.mechanism import Clipping, DifferenceClipping, draw
from palimpsest.privacy.accounting import total_rho
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.means import ClassMeans
from palimpsest.privacy.queries import LabelHistogram, gumbel_top_k
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.thresholded import StatementCounts
from palimpsest.privacy.votes import Ballot, Slate, Vote
from palimpsest.records.statements import Attribute
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from tools.curve import Curve, CurveTest, curve_test, event_curve, zcdp_curve

# What is audited. `PickTop`: (scores, k, scale) -> indices, best first. `PickDomain`: (mechanism, counts) -> indices
# that come out. `NextToken`: (clipping, private logits, public logits, noise) -> the index drawn.
Train: TypeAlias = Callable[[TrainQuery, Sequence[PrivateRow], NoiseSource], nn.Module]
CountLabels: TypeAlias = Callable[[LabelHistogram, Sequence[PrivateRow], NoiseSource], Mapping[str, int]]
TakeVote: TypeAlias = Callable[[Vote, Sequence[PrivateRow], NoiseSource], Mapping[str, Sequence[float]]]
SumMeans: TypeAlias = Callable[[ClassMeans, Sequence[PrivateRow], NoiseSource], Sequence[Sequence[float]]]
CountStatements: TypeAlias = Callable[[StatementCounts, Sequence[PrivateRow], NoiseSource], Sequence[Sequence[float]]]
PickTop: TypeAlias = Callable[[Sequence[int], int, float], Sequence[int]]
PickDomain: TypeAlias = Callable[[LimitedDomain, Sequence[int]], Sequence[int]]
NextToken: TypeAlias = Callable[[Clipping, torch.Tensor, torch.Tensor, NoiseSource], int]

TRAINING = TrainingPlan(
    rate=0.5, steps=8, clipping_norm=0.5, noise_multiplier=1.0, divisor=7.0, clipping="joint", losses=1
)
SIGMA = 1.0  # of counts and means: mu is 1
SCALE = 0.5  # of selections: one pick is 2-DP, or 1/2-zCDP
TOKEN = DifferenceClipping(clip=8.0, temperature=1.0, batch_size=8, top_k=0)  # 1/2-zCDP

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
_BY_LABEL = 0.25  # of what counts of statements cost, those by label


@dataclass(frozen=True)
class Sizing:
    """How large an audit is."""

    trials: int  # trials with the record; there are as many without it
    alpha: float  # probability that a correct mechanism is refuted, all looks together
    delta: float  # at which lower bounds on epsilon are read

    def __post_init__(self) -> None:
        validate.require_positive(trials=self.trials, alpha=self.alpha)
        validate.require_in_range(0.0, 1.0, alpha=self.alpha, delta=self.delta)

    @property
    def present(self) -> np.ndarray:
        """Which trials have the record: every second one, bool (2 * trials,)."""
        return np.arange(2 * self.trials) % 2 == 1


@dataclass(frozen=True)
class MechanismAudit:
    """What looking at one mechanism showed."""

    looks: Mapping[str, CurveTest]  # ways to guess from what is observed -> their tests; they share the audit's alpha

    @property
    def refuted(self) -> bool:
        """Whether any look violates the claim."""
        return any(look.violated for look in self.looks.values())

    @property
    def epsilon(self) -> float:
        """The best lower bound; it holds at confidence 1 - alpha whichever look gave it."""
        return max(look.epsilon for look in self.looks.values())

    @property
    def epsilon_max(self) -> float:
        """The largest epsilon that so many trials could refute."""
        return max(look.epsilon_max for look in self.looks.values())


# --- training --------------------------------------------------------------------------------------------------------


def audit_training(sizing: Sizing, noise: NoiseSource, train: Train = TrainQuery.run) -> MechanismAudit:
    """DP-SGD as `TrainQuery` runs it: Poisson batches, clipping, noise, divisor and the optimiser's step.

    The model has one weight for each canary, and a canary's gradient is ten clipping norms along its own, so the steps
    of one run are as many independent trials as there are canaries. The attack sees every iterate, as the guarantee
    allows; losses are asked at each of them, which is where they are noted. It looks at the sum of a canary's noisy
    gradients over the steps (too little noise, no clipping, a rate too high), and at how far they are spread (noise
    that repeats, which a sum does not see).
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
    return _audit(event_curve(TRAINING.event()), flags, sizing)


def _numbers(rows: Sequence[PrivateRow]) -> torch.Tensor:
    return torch.tensor([[int(row.text)] for row in rows])


def _weights(model: nn.Module) -> np.ndarray:
    return next(model.parameters()).detach().double().squeeze(1).numpy().copy()


# --- counts and means ------------------------------------------------------------------------------------------------


def audit_histogram(sizing: Sizing, noise: NoiseSource, run: CountLabels = LabelHistogram.run) -> MechanismAudit:
    """Label counts with discrete Gaussian noise: every label is a trial with one record, or none.

    The package's own draws from OpenDP's source, whatever `noise` is.
    """
    query = LabelHistogram(_labels(sizing), SIGMA)
    counts = run(query, _rows(sizing), noise)
    flags = {"count": np.array([counts[label] for label in query.labels]) > 0.5}
    return _audit(event_curve(query.event()), flags, sizing)


def audit_votes(sizing: Sizing, noise: NoiseSource, run: TakeVote = Vote.run) -> MechanismAudit:
    """A vote for the nearest candidates: every four candidates are a trial, and a record near them votes for all four.

    Each label has a hundred trials, and so up to fifty records.
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
    return _audit(event_curve(query.event()), {"sum of counts": sums.mean(axis=1) > 0.5}, sizing)


def audit_means(sizing: Sizing, noise: NoiseSource, run: SumMeans = ClassMeans.run) -> MechanismAudit:
    """Sums of embeddings per class: every label is a trial, looked at along its record's vector."""
    query = ClassMeans(_labels(sizing), _vectors, _CANDIDATES, SIGMA)
    along = _vectors(["."])[0] / np.linalg.norm(_vectors(["."])[0])
    flags = {"sum along the vector": np.array(run(query, _rows(sizing), noise)) @ along > 0.5}
    return _audit(event_curve(query.event()), flags, sizing)


def audit_statements(sizing: Sizing, noise: NoiseSource, run: CountStatements = StatementCounts.run) -> MechanismAudit:
    """Counts of statements in two tables: every two words are a trial, and a record of two sentences states both."""
    words = tuple(f"word{index}" for index in range(4 * sizing.trials))
    query = StatementCounts((Attribute("word", {}, r"\w+"),), (words,), ("",), 2, SIGMA, _BY_LABEL)
    rows = [PrivateRow(f"{words[2 * place]}. {words[2 * place + 1]}.") for place in np.flatnonzero(sizing.present)]
    cells, by_label = (np.reshape(table, (-1, 2)).mean(axis=1) for table in run(query, rows, noise))
    flags = {"both tables": (1.0 - _BY_LABEL) * cells + _BY_LABEL * by_label > 0.5}
    return _audit(event_curve(query.event()), flags, sizing)


def _labels(sizing: Sizing) -> tuple[str, ...]:
    return tuple(f"label {index}" for index in range(2 * sizing.trials))


def _rows(sizing: Sizing) -> list[PrivateRow]:
    return [PrivateRow(".", label) for label, there in zip(_labels(sizing), sizing.present, strict=True) if there]


def _vectors(texts: Sequence[str]) -> np.ndarray:
    """The same vector for every text, longer than 1 and not along an axis."""
    return np.tile(np.arange(_CANDIDATES, 0.0, -1.0), (len(texts), 1))


# --- selections ------------------------------------------------------------------------------------------------------


def audit_gumbel_top_k(sizing: Sizing, pick: PickTop = gumbel_top_k) -> MechanismAudit:
    """The exponential mechanism by Gumbel noise, two candidates at 0 of which the record raises one to 1.

    In two experiments of the same size it is the first and the second: one of them sees a choice without noise,
    whichever way it breaks ties.
    """
    return _audit(zcdp_curve(1.0 / (8.0 * SCALE**2)), _picked(sizing, pick), sizing)


def _picked(sizing: Sizing, pick: PickTop) -> dict[str, np.ndarray]:
    def raised(which: int) -> np.ndarray:
        scores = [[int(there and index == which) for index in range(2)] for there in sizing.present.tolist()]
        return np.array([pick(own, 1, SCALE)[0] == which for own in scores])

    return {"first raised": raised(0), "second raised": raised(1)}


def audit_limited_domain(sizing: Sizing, pick: PickDomain = LimitedDomain.pick) -> MechanismAudit:
    """Picks among the bins that lead, in two experiments of the same size.

    `leading`: two bins far above the bottom, and the record votes for the second: is that one picked? `entering`: the
    record's vote makes another bin the one that can be picked, which the bottom must hide.
    """
    two, one = (LimitedDomain(domain=domain, picks=1, scale=SCALE, delta=_OWN_DELTA) for domain in (2, 1))
    far = 100 + two.offset
    flags = {
        "leading": np.array([list(pick(two, [far, far + int(there)])) == [1] for there in sizing.present]),
        "entering": np.array([list(pick(one, [0, int(there)])) == [1] for there in sizing.present]),
    }
    return _audit(zcdp_curve(total_rho(two.event()), two.own_delta), flags, sizing)


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
    """
    public, others = torch.zeros(2), torch.tensor([[0.0, _LEAN]]).expand(_CONTEXTS, 2)
    contexts = (others, torch.cat([others, torch.tensor([[_FAR, -_FAR]])]))
    drawn = [token(clipping, contexts[int(there)], public, noise) == 0 for there in sizing.present]
    return _audit(zcdp_curve(clipping.rho), {"token": np.array(drawn)}, sizing)


def _audit(curve: Curve, flags: Mapping[str, np.ndarray], sizing: Sizing) -> MechanismAudit:
    """One test for each look, at an equal share of alpha."""
    present, alpha = sizing.present, sizing.alpha / len(flags)
    return MechanismAudit(
        {
            look: curve_test(flagged[~present], flagged[present], curve, sizing.delta, alpha)
            for look, flagged in flags.items()
        }
    )
