"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Table → its searched columns: "t" text, "n" number; capitals are indexed. All have `id` and `data`, too.
TABLES = {
    "facts": {},
    "tenants": {},
    "keys": {"hash": "T", "tenant": "t", "path": "t", "created": "n"},
    "logins": {"key": "T", "expires": "n"},
    "sessions": {
        "tenant": "T",
        "path": "t",
        "state": "T",
        "owner": "t",
        "created": "N",
        "ended": "n",
        "memory": "n",
        "cpus": "n",
        "disk": "n",
    },
    "commands": {
        "session": "T",
        "tenant": "t",
        "state": "T",
        "created": "n",
        "cpu_time": "n",
    },
    "approvals": {
        "session": "T",
        "tenant": "T",
        "path": "t",
        "state": "T",
        "created": "n",
    },
    "links": {"session": "T", "key": "t", "expires": "n"},
    "snapshots": {"tenant": "T", "name": "t", "path": "t", "created": "n"},
    "answers": {"body": "t", "created": "N"},
    "instances": {"seen": "n"},
}


def _column(name: str, kind: str) -> sa.Column[Any]:
    is_text = kind in "tT"
    return sa.Column(
        name,
        sa.Text if is_text else sa.Double,
        nullable=False,
        server_default="" if is_text else "0",
    )


def upgrade() -> None:
    for table, columns in TABLES.items():
        op.create_table(
            table,
            sa.Column("id", sa.Text, primary_key=True),
            *(_column(name, kind) for name, kind in columns.items()),
            sa.Column("data", sa.JSON, nullable=False),
        )
        for name, kind in columns.items():
            if kind.isupper():
                op.create_index(f"ix_{table}_{name}", table, [name])


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
