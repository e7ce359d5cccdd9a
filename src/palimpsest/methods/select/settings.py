"""Settings of method select."""

from pydantic import Field

from palimpsest.methods.shared.settings import Counted, Rows


class SelectSettings(Counted):
    """Public texts chosen by noisy class means."""

    rows: Rows = 4000
    domain: float = Field(
        default=0.75,
        gt=0,
        le=1,
        description="Share of the candidates that is in a label's domain: those nearest its rows' mean.",
    )
