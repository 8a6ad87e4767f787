"""The steps give the tables of the service; alembic runs belljar.surfaces.http.migrations.env for each upgrade."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from belljar.surfaces.http import storage
from belljar.surfaces.http.migrations import upgrade


def test_all_steps_give_the_tables_of_today(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'new.db'}")
    with engine.begin() as connection:
        upgrade(connection)
        upgrade(connection)
        found = sa.inspect(connection)
        assert set(found.get_table_names()) == {*storage.meta.tables, "alembic_version"}
        for name, table in storage.meta.tables.items():
            assert {column["name"] for column in found.get_columns(name)} == {
                *table.columns.keys()
            }
            indexed = {index["column_names"][0] for index in found.get_indexes(name)}
            assert indexed == {column.name for column in table.columns if column.index}
    engine.dispose()
