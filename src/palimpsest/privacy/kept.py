"""What a stopped run of writing leaves for the next: outputs of the mechanism, and nothing else.

No record, no threshold and no state of a random generator is kept.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.files import read_json, write_json
from palimpsest.privacy.query import Meter


@dataclass(frozen=True)
class Kept:
    """One charge's file.

    Attributes:
        folder: where it lies; None keeps nothing.
        meter: the charge's; nothing is kept where a seed fixes its noise.
    """

    folder: Path | None
    meter: Meter

    def load(self) -> Any:
        """What an earlier attempt kept, or None.

        Raises:
            LedgerError: it was kept after more steps than the ledger has counted.
        """
        path = self._path
        if path is None or not self.meter.resumed or not path.is_file():
            return None
        body = read_json(path)
        if body["begun"] > self.meter.begun:
            raise LedgerError(
                f"A stopped run was at step {body['begun']}; the ledger counts {self.meter.begun}: it is an old copy.",
                "Put the newest copy of the ledger back.",
            )
        return body["kept"]

    def save(self, body: Any) -> None:
        """Keep this beside the number of steps that have begun, for the owner's eyes only."""
        path = self._path
        if path is not None:
            write_json(path, {"begun": self.meter.begun, "kept": body})

    @property
    def _path(self) -> Path | None:
        if self.folder is None or not self.meter.lasting:
            return None
        return self.folder / f"{self.meter.charge}.json"
