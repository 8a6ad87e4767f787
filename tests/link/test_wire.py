"""The link's constants: one table, from which both sides are generated."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "sandbox-images" / "init" / "wire.py"


def test_what_was_generated_is_up_to_date() -> None:
    made = runpy.run_path(str(GENERATOR))
    table = tomllib.loads(made["TABLE"].read_text())
    assert made["HEADER"].read_text() == made["c_header"](table), (
        "run `python sandbox-images/init/wire.py`"
    )
    assert made["MODULE"].read_text() == made["python_module"](table), (
        "run `python sandbox-images/init/wire.py`"
    )


def test_no_code_is_used_twice() -> None:
    table = tomllib.loads((GENERATOR.parent / "wire.toml").read_text())
    codes = [row[0] for side in ("to", "from") for row in table[side].values()]
    assert len(set(codes)) == len(codes)
    flags = list(table["flags"].values())
    assert sum(flags) == (1 << len(flags)) - 1
