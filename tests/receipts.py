"""Receipts for tests, made of the type that every reader takes."""

from dataclasses import replace
from typing import Any

import dp_accounting as dpa

from palimpsest.privacy.receipt import Curve, Group, QueryLine, Receipt

EVENT = dpa.ZCDpEvent(0.03)  # the Fourier accountant has no opinion on it: epsilons below may be any


def a_line(charge: str = "a7c1", **changes: Any) -> QueryLine:
    """One charge of a release."""
    found = QueryLine("votes", "dp3", "release", EVENT, 0.0, None, {"vote": 1}, charge, "committed")
    return replace(found, **changes)


def a_receipt(**changes: Any) -> Receipt:
    """A release's, of one charge, or what it becomes by these changes."""
    found = Receipt(
        variant="dp3", model="dp3", stage="select", method="select", purpose="release", asset="tickets",
        epsilon_target=3.0, delta=1e-5, epsilon=2.98, epsilon_rdp=3.1, accountant="zcdp", unit="record",
        adjacency="add_remove", queries=(a_line(),), group=(Group(1, 2.98), Group(2, 9.0)),
        curve=Curve((0.0, 0.25, 1.0), (1.0, 0.25, 0.0)), ledger_head="9f2c" * 16, noise_fixed=False, run=1,
        seconds=61.0,
    )  # fmt: skip
    return replace(found, **changes)
