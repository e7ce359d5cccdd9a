"""Settings of methods that have an untouched language model write."""

from typing import Annotated

from pydantic import Field

from palimpsest.models.settings import Precision

WritesIn = Annotated[
    Precision,
    Field(description="Of the language model while it writes; bf16 suits a pretrained model on a GPU or AVX512-BF16."),
]
