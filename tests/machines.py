"""Ledgers that know nothing of each other, as on machines of their own."""

import os
from pathlib import Path

from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.witness import VARIABLE


def own_ledger(folder: Path) -> Ledger:
    """A new ledger in that folder, with what is noted of it beside it; those opened later note there, too."""
    os.environ[VARIABLE] = str(folder / "ledger.witnesses")  # every test begins with its own, see `conftest`
    return Ledger.create(f"sqlite:///{folder}/ledger.db")
