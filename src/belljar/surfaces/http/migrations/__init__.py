"""The steps from an older database to this one. Alembic runs those that are missing when the service starts.

Steps are numbered files in `versions/`, never changed once released; each only adds, so that an older server of the
same release line goes on working while replicas are upgraded one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

HERE = Path(__file__).parent


def upgrade(connection: Connection) -> None:
    """Bring the database of this connection to the newest step."""
    from alembic import command
    from sqlalchemy import text

    if (
        connection.dialect.name == "postgresql"
    ):  # several servers may start at the same time
        connection.execute(
            text("select pg_advisory_xact_lock(hashtext('belljar-migrations'))")
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def steps(connection: Connection) -> tuple[str | None, list[str]]:
    """The step that a database is at (None: it is empty), and all steps that this version knows, the newest first."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    known = [
        each.revision
        for each in ScriptDirectory.from_config(_config()).walk_revisions()
    ]
    return MigrationContext.configure(connection).get_current_revision(), known


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE))
    return config
