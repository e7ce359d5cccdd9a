"""Shared parts of every stage that spends: the identity of a run, the rows behind the meter, and its record."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from palimpsest.devices import device
from palimpsest.files import read_json, write_json
from palimpsest.methods.shared.base import GenerationCounts, Plan
from palimpsest.params.schema import Params
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Closed, Reservation, Run
from palimpsest.privacy.ledger.rules import TEAM, resume_never
from palimpsest.privacy.ledger.witness import receipt_heads
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import Session, metered, receipt
from palimpsest.privacy.shown import down
from palimpsest.records.write import read_split
from palimpsest.workspace import MANIFEST, METRICS, PRIVATE, RECEIPTS
from stages.spenders import Spender, run_of


def identify(params: Params, who: Spender, plan: Plan) -> Run:
    """Identify a retry of a plan as the same plan, on the rows that `preprocess` left; see `run_of`."""
    return run_of(params, who, plan, read_json(MANIFEST)["fingerprint"])


@contextmanager
def open_charged(
    params: Params,
    ledger: Ledger,
    identity: Run,
    plan: Plan,
    resumable: Callable[[Charge], bool] = resume_never,
    provenance: str = "",
) -> Iterator[Session]:
    """Reserve the plan of a model or a variant, say what it costs, and open the view; see `metered`."""
    device()  # a named device that is missing is an error before anything is reserved
    noise, noted = NoiseSource(params.testing.noise_seed), receipt_heads(RECEIPTS, params.dataset.asset)
    asked = ledger, params.schema_of_data, identity, plan.queries
    words, team, invented = records.read_consents(os.environ), os.environ.get(TEAM) or None, params.world is not None
    whose: dict[str, Any] = {"invented": invented, "provenance": provenance}
    with metered(*asked, private_rows, noise, resumable, noted, words, team, **whose) as session:
        _tell(session.reservation, ledger.balance(params.dataset.asset).left)
        yield session


def record(
    params: Params,
    ledger: Ledger,
    session: Closed,
    plan: Plan,
    counts: Mapping[str, Any],
    before: Sequence[str] = (),
    assumptions: Collection[str] = (),
) -> None:
    """Write a variant's receipt, and its outcome to generation.json.

    Args:
        counts: rows and other numbers that the page shows.
        before: charges behind the variant that it builds on.
        assumptions: what the run and that variant had to assume of the machine; ids of `privacy.planned`.
    """
    name = session.reservation.charges[0].variant
    method, target = params.variants[name].method, params.charged[name].epsilon
    asset = ledger.asset(params.dataset.asset)
    written = receipt(ledger, asset, session, method=method, target=target, before=before, assumptions=assumptions)
    write_json(RECEIPTS / f"{name}.json", replace(written, plan=dict(plan.numbers)).to_json())
    write_json(METRICS / name / "generation.json", GenerationCounts.from_json(counts).to_json(name, written.zone))


def private_rows() -> Sequence[PrivateRow]:
    """Read the training rows."""
    return read_split(PRIVATE / "train.parquet").convert(PrivateRow)


def _tell(reservation: Reservation, left: float) -> None:
    """Say what a repeated look costs, and what a continued one saves."""
    if reservation.lost:
        print(
            f"budget: an earlier attempt was stopped after {reservation.lost} of its queries had begun; they stay "
            "charged, and are charged again now"
        )
    if reservation.resumed:
        print(
            f"budget: a stopped run goes on under its own charge, with {reservation.steps - reservation.resumed} "
            f"of {reservation.steps} steps left; nothing is charged again"
        )
    if reservation.run > 1:
        before = reservation.run - 1
        print(f"budget: this plan already ran {before} time(s) on this data; another look is charged again")
    print(f"budget: epsilon {down(left)} is left for this data set, this run included", flush=True)
