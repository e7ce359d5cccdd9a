"""Settings of method vote_select."""

from pydantic import Field

from palimpsest.methods.shared.settings import EncodedBatch, Votes
from palimpsest.settings import Settings


class VoteSelectSettings(Settings):
    """Rows of another variant, chosen by one noisy vote."""

    keep: float = Field(default=0.25, gt=0, le=1, description="Share of each label's rows that is kept.")
    votes: Votes = Votes()
    batch: EncodedBatch = 1
