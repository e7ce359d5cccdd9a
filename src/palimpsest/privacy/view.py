"""The door to private rows: a capability that answers registered, reserved, metered queries and nothing else."""

from collections.abc import Sequence
from typing import Any

from palimpsest.errors import LedgerError, OtherSubject
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import to_json
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Reservation
from palimpsest.privacy.query import Query, is_for_persons, is_prepared, is_registered, is_stepped, subject_digest
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.schema import PublicSchema
from palimpsest.records.write import Packed


class PrivateView:
    """Private rows behind a meter.

    Guarantee: every answer is the output of a registered query whose event was reserved beforehand and written to the
    ledger as begun before its first noise was drawn. A query in steps begins each step there in the same way, over all
    attempts never more than were reserved. What a query prepares before it begins goes nowhere, draws nothing and
    cannot keep it from beginning (`Query`). No method returns a row or an un-noised value. Where persons are the unit
    of privacy every row names its person, and only queries are answered whose event holds for all rows of one; where
    records are, no row names anybody, because rows of one name are answered as one unit.
    """

    def __init__(
        self,
        rows: Sequence[PrivateRow],
        schema: PublicSchema,
        ledger: Ledger,
        reservation: Reservation,
        noise: NoiseSource,
        provenance: str = "",
    ) -> None:
        """Raise LedgerError where rows are not of the schema's unit of privacy."""
        if any((row.person is None) != (schema.unit == "record") for row in rows):
            raise LedgerError(
                f"The training rows are not those of a data set whose unit of privacy is one {schema.unit}.",
                "No query was asked. Make them again with `dvc repro --force --single-item preprocess`.",
            )
        self.schema = schema
        self.__rows = rows if isinstance(rows, Packed) else tuple(rows)
        self.__ledger = ledger
        self.__noise = noise
        self.__provenance = provenance
        self.__replays = dict(reservation.replays)
        self.__waiting = list(reservation.charges)

    def ask(self, query: Query) -> Any:
        """Run one query against the rows and return its noisy answer.

        An answer that an earlier attempt of the same plan paid for and stored is returned as it was. A charge that an
        earlier attempt began and the reservation kept is continued: it is not begun a second time. Both need the
        subject that the charge began on. A Ctrl-C while the query prepares is no answer, and nothing has begun by then.

        Raises:
            OtherSubject: an earlier attempt asked about other candidates, prompts, labels or sources.
            LedgerError: if the query is not registered, does not bound a person where that is the unit, or has no
                reservation of the same name, event, delta beside it and part of the data set, or if it would continue
                an earlier attempt with noise that a seed fixes.
        """
        if not is_registered(query):
            raise LedgerError(
                f"{type(query).__name__} is not a registered query.",
                "Register it in palimpsest.privacy with a test of its sensitivity.",
            )
        if self.schema.unit == "person" and not is_for_persons(query):
            raise LedgerError(
                f"Query {query.name!r} bounds what one record changes, not what one person does who has several.",
                "Nothing began. Use a method that bounds persons, or another data set, without dataset.unit.column.",
            )
        charge, subject = self.__take(query), subject_digest(query, self.__provenance)
        if charge.looked and charge.subject != subject:
            raise OtherSubject(
                f"Query {charge.query!r} was answered about other candidates, prompts, labels or public sources than "
                "it is asked about now.",
                "Nothing was asked now. Put back the public files and the version of palimpsest that asked, or give "
                "the variant another name: it is then asked, and charged, anew.",
            )
        if charge.id in self.__replays:
            return self.__replays.pop(charge.id)
        failed = self.__prepare(query)
        self.__begin(charge, subject)
        if failed is not None:
            raise failed
        answer = self.__run(query, charge)
        if getattr(query, "stores_answer", False):
            self.__ledger.answer(charge, answer)
        return answer

    def __prepare(self, query: Query) -> BaseException | None:
        """Let the query do its slow work; return what that raised, to be raised after the query has begun.

        A refusal before would be a free answer about the rows. A Ctrl-C comes from a person, not from the rows.
        """
        kind: Any = type(query)
        try:
            if is_prepared(query):
                kind.prepare(query, self.__rows)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever it is: which rows raise what is private
            return error
        return None

    def __begin(self, charge: Charge, subject: str) -> None:
        if charge.state != "begun":
            self.__ledger.begin(charge, self.__noise.fixed, subject)
        elif self.__noise.fixed:
            raise LedgerError(
                f"Query {charge.query!r} would continue an earlier attempt, and a seed fixes its noise.",
                "Remove the seed, or let no charge be resumed: the attempt would draw the same noise again.",
            )

    def __run(self, query: Query, charge: Charge) -> Any:
        kind: Any = type(query)  # the registered code, not an attribute set later
        if not is_stepped(query):
            return kind.run(query, self.__rows, self.__noise)
        return kind.run_steps(query, self.__rows, self.__noise, _Steps(self.__ledger, charge, not self.__noise.fixed))

    def __take(self, query: Query) -> Charge:
        event, stepped = to_json(type(query).event(query)), is_stepped(query)
        part, own_delta = getattr(query, "partition", None), getattr(query, "own_delta", 0.0)
        asked = query.name, event, own_delta, part
        for charge in self.__waiting:
            same = (charge.query, to_json(charge.event), charge.own_delta, charge.partition) == asked
            # A charge of steps continues after a crash: a query that counts none would run in full again, unpaid.
            if same and (charge.steps is not None) == stepped:
                self.__waiting.remove(charge)
                return charge
        raise LedgerError(
            f"Query {query.name!r} has no reservation for this event{' in steps' if stepped else ''}"
            f"{f' with a delta of {own_delta:.3g} beside it' if own_delta else ''}.",
            "Ask only what the plan reserved, each query as often as it was planned.",
        )


class _Steps:
    """The meter of one charge, on the ledger."""

    def __init__(self, ledger: Ledger, charge: Charge, lasting: bool) -> None:
        self.charge, self.limit, self.lasting = charge.id, charge.steps or 0, lasting
        self.begun, self.resumed = charge.steps_begun, charge.steps_begun > 0
        self._ledger, self._paid = ledger, charge

    def begin(self, steps: int) -> None:
        """Count in the ledger first: an attempt that dies right after has begun them all."""
        self._ledger.advance(self._paid, self.begun, steps)
        self.begun += steps
