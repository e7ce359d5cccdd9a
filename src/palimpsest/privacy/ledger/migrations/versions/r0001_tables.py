"""The tables of ledgers from before revisions: assets, entries, answers."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "palimpsest_asset",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
    )
    op.create_table(
        "palimpsest_entry",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("asset", sa.String(200), nullable=False, index=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("charge", sa.String(32), nullable=True),
        sa.Column("time", sa.String(40), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "palimpsest_answer",
        sa.Column("charge", sa.String(32), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
