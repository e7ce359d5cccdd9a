"""What every stage that spends shares: the requests of a plan, the rows behind the meter, and what a run says of it."""

from palimpsest.generators.base import Plan
from palimpsest.privacy.ledger import Request, Reservation
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.write import read_split
from stages.common import PRIVATE


def requested(plan: Plan) -> list[Request]:
    """What the plan reserves in the ledger."""
    return [Request(query.name, query.event, steps=query.steps, partition=query.partition) for query in plan.queries]


def private_rows() -> list[PrivateRow]:
    """The training rows."""
    return [PrivateRow(row.text, row.label) for row in read_split(PRIVATE / "train.parquet")]


def tell(reservation: Reservation, left: float) -> None:
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
    print(f"budget: epsilon {left:.3f} is left for this data set, this run included", flush=True)
