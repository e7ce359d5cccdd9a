"""Settings of method sentdp."""

from pydantic import Field

from palimpsest.methods.shared.settings import Counted


class SentDpSettings(Counted):
    """Public texts picked by the exponential mechanism among those deep in the cloud of a label's rows."""

    directions: int = Field(
        default=100, ge=1, description="Public random directions that the depth of a text is taken over."
    )
