"""Writes the constants of the link for both sides from one table: `python sandbox-images/init/wire.py`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE = HERE / "wire.toml"
HEADER = HERE / "wire.h"
MODULE = HERE.parent.parent / "src" / "belljar" / "link" / "wire.py"
GENERATED = "Generated from wire.toml by sandbox-images/init/wire.py: edit wire.toml and run wire.py."


def _most(table: dict[str, Any], side: str, bound: int | str) -> int:
    return int(table["sizes"][f"{side}_init_max"] if bound == "max" else bound)


def c_header(table: dict[str, Any]) -> str:
    lines = [
        f"/* {GENERATED} */",
        "/* clang-format off */",
        "#ifndef BELLJAR_WIRE_H",
        "#define BELLJAR_WIRE_H",
        "",
    ]
    lines.append(f"#define PROTOCOL_VERSION {table['version']}")
    lines += [
        f"#define WIRE_{name.upper()} {value}u"
        for name, value in table["sizes"].items()
    ]
    prefixes = {
        "streams": "",
        "flags": "FLAG_",
        "stages": "STAGE_",
        "causes": "",
        "doings": "DOES_",
    }
    for kind, prefix in prefixes.items():
        members = [
            f"    {prefix}{name.upper()} = {value},"
            for name, value in table[kind].items()
        ]
        tag = {"stages": "enum stage", "causes": "enum cause"}.get(kind, "enum")
        lines += ["", f"{tag} {{", *members, "};"]
    lines += ["", f"#define FLAGS_KNOWN {sum(table['flags'].values())}u"]
    for side in ("to", "from"):
        lines += [
            "",
            "enum {",
            *(f"    {name.upper()} = {row[0]}," for name, row in table[side].items()),
            "};",
        ]
    lines += [
        "",
        "/* The bounds of each payload that the host may send, by kind. */",
        "#define TO_INIT_BOUNDS \\",
    ]
    for name, (_, least, most) in table["to"].items():
        lines.append(
            f"    [{name.upper()}] = {{{least}, {_most(table, 'to', most)}}}, \\"
        )
    return "\n".join([*lines, "", "#endif", ""])


def python_module(table: dict[str, Any]) -> str:
    lines = [
        f'"""{GENERATED}"""',
        "",
        "from enum import IntEnum",
        "",
        f"VERSION = {table['version']}",
    ]
    lines += [f"{name.upper()} = {value}" for name, value in table["sizes"].items()]
    lines += [f"{name.upper()} = {value}" for name, value in table["streams"].items()]
    for name, side in (("To", "to"), ("From", "from")):
        members = [
            f"    {kind.upper()} = {row[0]}" for kind, row in table[side].items()
        ]
        lines += ["", "", f"class {name}(IntEnum):", *members]
    for name, kind in (
        ("Stage", "stages"),
        ("EndCause", "causes"),
        ("Doing", "doings"),
    ):
        members = [f"    {key.upper()} = {value}" for key, value in table[kind].items()]
        lines += ["", "", f"class {name}(IntEnum):", *members]
    doc = '    """Bits of a plain int, since the operators of an IntFlag cost more than a frame."""'
    flags = [f"    {key.upper()} = {value}" for key, value in table["flags"].items()]
    lines += ["", "", "class Flag:", doc, "", *flags]
    bounds = [
        f"    {row[0]}: ({row[1]}, {_most(table, 'from', row[2])}),"
        for row in table["from"].values()
    ]
    lines += ["", "", "FROM_INIT_BOUNDS = {", *bounds, "}"]
    lines.append(
        '"""Least and most bytes of each payload that an init may send, by kind."""'
    )
    return "\n".join([*lines, ""])


def main() -> None:
    table = tomllib.loads(TABLE.read_text())
    HEADER.write_text(c_header(table))
    MODULE.write_text(python_module(table))


if __name__ == "__main__":
    main()
