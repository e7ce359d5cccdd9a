"""The result of an end-to-end audit of one method, and its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palimpsest import __version__
from palimpsest.audit.membership import Verdict, most_right
from palimpsest.audit.statistics import one_run_epsilon
from palimpsest.workspace import PUBLISHABLE

SOUND: Verdict = "not refuted"
ALPHA = 7.5e-5  # of one correct run: all thirteen methods raise less than one false alarm in a thousand times


@dataclass(frozen=True)
class Trial:
    """One run of a method, and one attack on its output. Every coin is guessed, which fixes the number of guesses.

    Attributes:
        canaries: number of coins, all of them guessed.
        correct: number of right guesses.
        most: right guesses of a perfect attack: there may be more coins on a side than guesses at it.
        claim: epsilon of the run's own receipt.
        delta: delta of the claim.
        versions: declared versions of the run's queries (`privacy.planned`).
    """

    canaries: int
    correct: int
    most: int
    claim: float
    delta: float
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def epsilon_lower(self) -> float:
        """The lower bound: every claim below it is refuted at confidence 1 - ALPHA (Steinke et al. 2023)."""
        return one_run_epsilon(self.canaries, self.canaries, self.correct, self.delta, ALPHA)

    @property
    def eps_max(self) -> float:
        """The largest claim that guesses at these coins could refute."""
        return one_run_epsilon(self.canaries, self.canaries, self.most, self.delta, ALPHA)

    @property
    def refuted(self) -> bool:
        """Whether the run reveals more than it claims."""
        return self.epsilon_lower > self.claim


@dataclass(frozen=True)
class Twin:
    """A run of the method with one planted fault: it should be refuted."""

    fault: str
    trial: Trial

    @property
    def caught(self) -> bool:
        """Whether the attack refuted the claim of the broken version."""
        return self.trial.refuted

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"fault": self.fault, **_numbers(self.trial), "caught": self.caught}


@dataclass(frozen=True)
class TwinAudit:
    """The audit of one method: a function of only invented canaries and their coins, so it may be published.

    Attributes:
        method: the method whose code ran.
        trial: the trial of the unchanged code.
        twins: trials of the code with one fault each.
    """

    method: str
    trial: Trial
    twins: tuple[Twin, ...]

    @property
    def verdict(self) -> Verdict:
        """`inconclusive` where a twin was not caught, or none was tried: the attack could then not have seen a fault.

        A run that was refuted stays refuted, whatever its twins did.
        """
        if self.trial.refuted:
            return "refuted"
        return SOUND if self.twins and all(twin.caught for twin in self.twins) else "inconclusive"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with what was tested."""
        return {
            "method": self.method,
            "palimpsest": __version__,
            "versions": dict(self.trial.versions),
            "zone": PUBLISHABLE,
            "test": "one run, (epsilon, delta), Steinke et al. 2023, on the released output",
            "alpha": ALPHA,
            "delta": self.trial.delta,
            "claim": self.trial.claim,
            "canaries": self.trial.canaries,
            "guesses": self.trial.canaries,
            **_numbers(self.trial),
            "eps_max": self.trial.eps_max,
            "twins": [twin.to_json() for twin in self.twins],
            "verdict": self.verdict,
        }


def judge_scores(scores: np.ndarray, coins: np.ndarray, claim: float, delta: float, seed: int) -> Trial:
    """Guess that the half with the higher scores was in; canaries of equal score are ordered at random, by `seed`.

    The scores, one for each canary and larger for "rather in", are made without sight of the coins, bool (canaries,).
    """
    order = np.lexsort((np.random.default_rng(seed).random(len(scores)), scores))  # by place, which knows no coin
    out, inside = np.split(coins[order], [len(coins) // 2])
    members = int(coins.sum())
    most = most_right(members, len(coins) - members, len(coins))
    return Trial(len(coins), int((~out).sum() + inside.sum()), most, claim, delta)


def _numbers(trial: Trial) -> dict[str, Any]:
    return {"correct": trial.correct, "epsilon_lower": trial.epsilon_lower}
