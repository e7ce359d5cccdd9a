"""Errors a user can act on: what is wrong, and what to do. Neither part ever quotes a private row."""

import errno

_ALLOW = ("A file or folder may not be read or written.", "Give yourself permission in the workspace and run again.")
_DISK = {
    errno.ENOSPC: ("The disk is full.", "Free some space and run again; what was finished is kept."),
    errno.EDQUOT: ("The disk quota is used up.", "Free some space and run again; what was finished is kept."),
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EROFS: ("The disk is read-only.", "Move the workspace to a disk that can be written."),
}
_MEMORY = (
    "The memory of this machine, or of its device, is used up.",
    "End what else uses it and run again. Or take fewer texts at once, by a smaller batch, together or micro_batch: "
    "`palimpsest plan` says what is then charged anew.",
)


class PalimpsestError(Exception):
    """An error with two parts.

    Attributes:
        problem: what is wrong, in one sentence.
        remedy: what the user can do about it, in one sentence.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy

    @property
    def lines(self) -> str:
        """Both parts, as the commands and the stages print them."""
        return f"error: {self.problem}\n  what to do: {self.remedy}"


class ParamsError(PalimpsestError):
    """A value in params.yaml is missing, unknown or out of range."""


class DataError(PalimpsestError):
    """An input file cannot be used as it is."""


def machine_error(error: Exception) -> DataError | None:
    """Return a refusal by disk or memory as an error in two parts; None for any other error."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without importing it
        return DataError(*_MEMORY)
    return DataError(*_DISK[error.errno]) if isinstance(error, OSError) and error.errno in _DISK else None


class LedgerError(PalimpsestError):
    """The ledger is missing, unreadable, broken or does not know the asset."""


class BudgetExceeded(LedgerError):
    """A plan asks for more privacy budget than is left."""


class ConsentNeeded(LedgerError):
    """A run would be charged a second time, and the data's owner has not said yes to that."""


class OtherSubject(LedgerError):
    """A stored answer, or a stopped query, is about something other than what is asked now."""


class TeamError(PalimpsestError):
    """A process that trains together with others was lost, or cannot be reached any more."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem,
            "Look why. Run again: the training goes on from its last checkpoint, if it has one, under the same charge.",
        )


class ModelError(PalimpsestError):
    """A model source cannot be resolved, or is not the one that was pinned."""


class BackendError(PalimpsestError):
    """A language model that others serve cannot be reached, or its budget of tokens or money is used up."""
