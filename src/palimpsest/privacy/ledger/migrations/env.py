"""What Alembic starts from: the connection that it is handed."""

from alembic import context

from palimpsest.privacy.ledger.database import versions

context.configure(connection=context.config.attributes["connection"], version_table=versions.name)
context.run_migrations()
