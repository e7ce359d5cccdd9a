"""Shared parts of every membership attack on a variant: the guessed records, the control, and the tested claim."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from palimpsest.audit.membership import Control, MembershipAudit, audit_membership, bag_of_words_control
from palimpsest.audit.statistics import Estimate
from palimpsest.audit.units import Guessed, Scores
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.workspace import RECEIPTS
from stages.audited import load_guessed


@dataclass(frozen=True)
class Target:
    """A variant under attack: its receipt, the records that may be guessed about, and the control of their coins."""

    params: Params
    receipt: Receipt
    guess: Guessed
    control: Control

    @classmethod
    def of(cls, name: str) -> "Target":
        """Read the variant of that name in params.yaml."""
        params, guess = load(), load_guessed()
        control = bag_of_words_control(*guess.documents, seed=params.seed)
        return cls(params, read_receipt(RECEIPTS / f"{name}.json"), guess, control)

    def judge_claim(
        self,
        attacks: Mapping[str, Scores],
        planted: Mapping[str, Estimate] | None = None,
        sides: Literal["both", "members"] = "both",
    ) -> MembershipAudit:
        """Judge the claim by all attacks together; guesses are of both sides, or only of members."""
        audit = audit_membership(
            attacks,
            self.control,
            claim=self.receipt.claim,
            delta=self.params.delta,
            guess_share=self.params.audit.guesses,
            alpha=self.params.audit.alpha,
            seed=secrets.randbits(32),  # of ties: with a fixed one their order would depend on the number of members
            guessed=sides,
            units=self.guess.units,
        )
        return replace(audit, planted=planted or {})
