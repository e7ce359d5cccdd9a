"""Access to private rows for several processes: one asks the ledger's view, the others do their share and listen."""

from collections.abc import Sequence
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.privacy.query import Query, View, is_registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.team import Team


class Leader:
    """A metered view whose answers go to every process of a team."""

    def __init__(self, view: View, team: Team) -> None:
        self._view, self._team = view, team

    def ask(self, query: Query) -> Any:
        """See `PrivateView.ask`. A training's answer is not sent: every process has computed it."""
        answer = self._view.ask(query)
        return answer if isinstance(query, TrainQuery) else self._team.share(answer)


class Follower:
    """The view of a process that another one leads: it has the rows for its share of a training, and no ledger.

    Guarantee: what it returns is what the leader's metered view answered. It draws no noise and spends nothing; without
    a leader that trains, it waits.
    """

    def __init__(self, rows: Sequence[PrivateRow], team: Team) -> None:
        self.__rows, self.__team = tuple(rows), team

    def ask(self, query: Query) -> Any:
        """Return the leader's answer.

        Raises:
            LedgerError: if the query is not registered.
        """
        if not is_registered(query):
            raise LedgerError(f"{type(query).__name__} is not a registered query.", "Ask only what the leader asks.")
        return query.follow(self.__rows) if isinstance(query, TrainQuery) else self.__team.share(None)
