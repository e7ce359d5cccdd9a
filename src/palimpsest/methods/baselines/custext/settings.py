"""Settings of method custext."""

from pydantic import Field

from palimpsest.settings import Settings


class CusTextSettings(Settings):
    """Each word of each private row replaced by a draw from its public neighbours: token-level privacy, no more."""

    token_epsilon: float = Field(gt=0, description="Epsilon of one word. It says nothing about a whole record.")
    neighbours: int = Field(
        default=20, ge=2, description="Words of the public map that a word may become, its own included."
    )
    vocabulary: int = Field(default=5000, ge=2, description="Most frequent public words that the map holds.")
