"""The public texts, as `preprocess` left them."""

from palimpsest.records.write import read_public
from palimpsest.workspace import PUBLIC


def public_texts() -> list[str]:
    """Those that may be chosen from and trained on."""
    return [row.text for row in read_public(PUBLIC / "train.parquet")]


def heldout_texts() -> list[str]:
    """Those that measure what a model makes of public text."""
    return [row.text for row in read_public(PUBLIC / "heldout.parquet")]
