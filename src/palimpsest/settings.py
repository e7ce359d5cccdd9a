"""What every section of params.yaml is."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A section of settings: unknown keys are errors, defaults are checked too, values never change after loading.

    A key is described by its field, or by the text under it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
