"""The file that an audit of private rows writes in place of a result where it has none, with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any

from palimpsest.errors import DataError, ModelError, PalimpsestError, machine_error
from palimpsest.plain import Plain
from palimpsest.workspace import INTERNAL

_KEY = "inconclusive"  # no result has it
_OURS = ("palimpsest", "stages")  # packages whose lines a reader can look up
_REMEDY = "Report it with that place. `palimpsest run` tries the audit again."


@dataclass(frozen=True)
class Inconclusive(Plain):
    """Private zone: a statement that there is no result. It passes nothing and refutes nothing.

    Guarantee: it quotes no row. A reason is the text of an error of this project, which never quotes one, or the type
    and the place of another error.
    """

    inconclusive: str  # why; goes on behind "because"
    remedy: str  # what to do, a sentence
    failed: bool  # whether the audit itself failed; False where the rows allow no result

    @classmethod
    def of(cls, error: Exception) -> "Inconclusive":
        """Make one from an audit's error: the rows are not enough (`DataError`, `ModelError`), or the audit failed."""
        told = machine_error(error)
        if told is None and isinstance(error, PalimpsestError):
            return cls(_clause(error.problem), error.remedy, not isinstance(error, DataError | ModelError))
        if told is not None:
            return cls(_clause(told.problem), told.remedy, failed=True)
        return cls(f"the audit itself failed ({type(error).__name__} {_place(error)})", _REMEDY, failed=True)

    @property
    def document(self) -> dict[str, Any]:
        """Return the content of the metric file."""
        return {"zone": INTERNAL, **self.to_json()}

    @property
    def lines(self) -> str:
        """Return the reason and the remedy as stages print them."""
        return f"inconclusive, because {self.inconclusive}.\n  what to do: {self.remedy}"


def read_inconclusive(body: Mapping[str, Any]) -> Inconclusive | None:
    """Read the statement of a metric file without a result; None where it has a result."""
    return Inconclusive.from_json(body) if _KEY in body else None


def _clause(sentence: str) -> str:
    """Rewrite a sentence as a clause after "because".

    >>> _clause("The subset is too small."), _clause("MAUVE needs 20 rows.")
    ('the subset is too small', 'MAUVE needs 20 rows')
    """
    first = sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]
    return first.removesuffix(".")


def _place(error: Exception) -> str:
    """Return the last line of this project's code that an error passed through."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if set(_OURS) & set(Path(frame.filename).parts)] or frames
    return f"at line {own[-1].lineno} of {Path(own[-1].filename).name}" if own else "at no known line"
