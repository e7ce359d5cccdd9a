"""What the small worlds of methods in rounds share: a secret, things, filters, and a ledger with a metered view."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.settings import TextFilters
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Run
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.machines import own_ledger
from tests.reading import EVERYTHING, reading

SECRET = "order 8812-XK"
THINGS = ("lamp", "kettle", "radio", "stove", "fridge", "phone")
FILTERS = TextFilters(chain=(), min_words=1, max_words=None, similarity=0.9, quantile=0.9, threshold=0.5)


def tickets(n_public: int, labels: Mapping[str, str]) -> PublicSchema:
    """What is public about the rows."""
    task = "classify" if labels else "text"
    return PublicSchema("tickets", task, "text", n_public, 200, "label" if labels else None, labels)


def ledger_of_tickets(folder: Path, epsilon: float, n_public: int) -> Ledger:
    """A ledger that knows the asset."""
    ledger = own_ledger(folder)
    ledger.register(Asset("tickets", delta=1e-3, epsilon=epsilon, n_public=n_public))
    return ledger


def always(_charge: Charge) -> bool:
    return True


@contextmanager
def opened_by(
    stage: str, rows: Sequence[PrivateRow], ledger: Ledger, schema: PublicSchema, plan: Plan, purpose: str = "release"
) -> Iterator[PrivateView]:
    """A view as the stage opens it, with the plan reserved; begun steps are continued."""
    run = reading(Run(stage, "v", purpose, "", "p"), ledger, schema.asset, rows)
    with metered(ledger, schema, run, plan.queries, lambda: rows, NoiseSource(), always, again=EVERYTHING) as session:
        yield session.view
