"""An index of the entries by their charge: every step that begins looks its charge up."""

from alembic import op

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    """Make it; no row changes."""
    op.create_index("ix_palimpsest_entry_charge", "palimpsest_entry", ["charge"])
