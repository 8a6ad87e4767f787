"""The steps from an older database to this one. Alembic runs those that are missing when the service starts.

Steps are numbered files in `versions/`, never changed once released; each only adds, so that an older server of the
same release line goes on working while replicas are upgraded one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

HERE = Path(__file__).parent


def upgrade(connection: Connection) -> None:
    """Bring the database of this connection to the newest step."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import text

    if connection.dialect.name == "postgresql":  # several servers may start at the same time
        connection.execute(text("select pg_advisory_xact_lock(hashtext('belljar-migrations'))"))
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
