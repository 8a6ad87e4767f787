"""The first step can be taken back."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from belljar.surfaces.http.migrations.versions import step_0001


def test_the_first_step_makes_its_tables_and_removes_them(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'new.db'}")
    with (
        engine.begin() as connection,
        Operations.context(MigrationContext.configure(connection)),
    ):
        step_0001.upgrade()
        assert set(sa.inspect(connection).get_table_names()) == {*step_0001.TABLES}
        step_0001.downgrade()
        assert sa.inspect(connection).get_table_names() == []
    engine.dispose()
