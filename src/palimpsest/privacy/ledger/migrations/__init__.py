"""How a ledger's tables came to their form of today, as Alembic's revisions: entries are never rewritten."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection

_HERE = str(Path(__file__).parent)


def upgrade(connection: Connection, revision: str) -> None:
    """Bring tables of that revision to the newest one, in the transaction of the connection."""
    config = Config()
    config.set_main_option("script_location", _HERE.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.stamp(config, revision)
    command.upgrade(config, "head")
