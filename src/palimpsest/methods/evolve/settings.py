"""Settings of method evolve."""

from pydantic import Field

from palimpsest.methods.shared.settings import ClassMeansSettings, InRounds, ModelFreeFilters, Votes


class EvolveMeans(ClassMeansSettings):
    """A look at the class means, before the first round, that says which candidates to keep."""

    first: int = Field(
        default=4, ge=1, description="New texts for each place in the first population; the likeliest are kept."
    )
    pool: int = Field(
        default=2, ge=1, description="Variations for each place in a later one; the likeliest of a label are kept."
    )


class EvolveSettings(InRounds):
    """Private evolution (Aug-PE)."""

    expand: int = Field(
        default=4, ge=1, description="Candidates for each row, L: a selected text and L - 1 variations of it."
    )
    look_ahead: int = Field(
        default=0,
        ge=0,
        description="Variations whose mean embedding, with its own, a candidate is voted by, K; 0: its own alone.",
    )
    votes: Votes = Votes()
    class_means: EvolveMeans | None = Field(description="Noisy class means that steer what is kept; null: votes alone.")
    filters: ModelFreeFilters
