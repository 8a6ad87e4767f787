"""Alembic runs this file for each upgrade: it uses the connection that `upgrade` brings."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=None)
context.run_migrations()
