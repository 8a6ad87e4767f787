"""The shipped policy files, parsed when Belljar is installed.

Parsing these TOML files takes longer than judging most commands. `make setup` and the wheel's build put the results
into one JSON file beside the init, each under the digest of its text. A text that is not in it (an operator's own file,
or one edited since) is parsed as usual.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

NAME = "policies.json"


def parsed(text: str) -> dict[str, Any]:
    """The tables of a TOML text. The result is shared: do not change it."""
    shipped = _shipped().get(digest(text))
    if shipped is not None:
        return shipped
    import tomllib

    return tomllib.loads(text)


def ships(text: str) -> bool:
    """Whether this is a shipped file. Those are checked by our tests, not at every start."""
    return digest(text) in _shipped()


def write(policies: Path, target: Path) -> None:
    import tomllib

    texts = [path.read_text("utf-8") for path in sorted(policies.rglob("*.toml"))]
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".new")
    temporary.write_text(
        json.dumps({digest(text): tomllib.loads(text) for text in texts})
    )
    temporary.replace(target)


def digest(text: str) -> str:
    import hashlib  # imported here: it loads OpenSSL

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    for place in (
        Path(sys.prefix, "share", "belljar"),
        Path(__file__).parent / "_init",
    ):
        with suppress(OSError, ValueError):
            tables: dict[str, dict[str, Any]] = json.loads((place / NAME).read_bytes())
            return tables
    return {}


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.prefix, "share", "belljar", NAME))
