"""The door to private rows: a capability that answers registered, reserved, metered queries and nothing else."""

from collections.abc import Sequence
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import to_json
from palimpsest.privacy.ledger import Charge, Ledger, Reservation
from palimpsest.privacy.query import Query, is_registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.schema import PublicSchema


class PrivateView:
    """Private rows behind a meter.

    Guarantee: every answer is the output of a registered query whose event was reserved beforehand and written to the
    ledger as begun before its first noise was drawn. No method returns a row or an un-noised value.
    """

    def __init__(
        self,
        rows: Sequence[PrivateRow],
        schema: PublicSchema,
        ledger: Ledger,
        reservation: Reservation,
        noise: NoiseSource,
    ) -> None:
        self.schema = schema
        self.__rows = tuple(rows)
        self.__ledger = ledger
        self.__noise = noise
        self.__replays = dict(reservation.replays)
        self.__waiting = list(reservation.charges)

    def ask(self, query: Query) -> Any:
        """Run one query against the rows and return its noisy answer.

        An answer that an earlier, killed attempt of the same plan paid for and stored is returned as it was.

        Raises:
            LedgerError: if the query is not registered or has no reservation of the same name and event.
        """
        if not is_registered(query):
            raise LedgerError(
                f"{type(query).__name__} is not a registered query.",
                "Register it in palimpsest.privacy with a test of its sensitivity.",
            )
        charge = self.__take(query)
        if charge.id in self.__replays:
            return self.__replays.pop(charge.id)
        self.__ledger.begin(charge, self.__noise.fixed)
        answer = type(query).run(query, self.__rows, self.__noise)  # the registered code, not an attribute set later
        if getattr(query, "stores_answer", False):
            self.__ledger.answer(charge, answer)
        return answer

    def __take(self, query: Query) -> Charge:
        event = to_json(type(query).event(query))
        for charge in self.__waiting:
            if charge.query == query.name and to_json(charge.event) == event:
                self.__waiting.remove(charge)
                return charge
        raise LedgerError(
            f"Query {query.name!r} has no reservation for this event.",
            "Ask only what the plan reserved, each query as often as it was planned.",
        )
