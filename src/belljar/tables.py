"""The shipped policies and what they know of programs, parsed when Belljar is installed.

Parsing these TOML files takes longer than judging most commands. `make setup` and the wheel's build put them into one
JSON file beside the init, each under the digest of its text. A text that is not in there, an operator's or one that
was edited since, is parsed as ever.
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
    """Not to be changed by whoever gets it."""
    found = _shipped().get(digest(text))
    if found is not None:
        return found
    import tomllib

    return tomllib.loads(text)


def ships(text: str) -> bool:
    """Whether it is a file of ours: what must hold for those is checked by our tests, not at every start."""
    return digest(text) in _shipped()


def write(policies: Path, target: Path) -> None:
    import tomllib

    texts = [path.read_text("utf-8") for path in sorted(policies.rglob("*.toml"))]
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".new")
    temporary.write_text(json.dumps({digest(text): tomllib.loads(text) for text in texts}))
    temporary.replace(target)


def digest(text: str) -> str:
    import hashlib  # it brings OpenSSL along

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    for place in (Path(sys.prefix, "share", "belljar"), Path(__file__).parent / "_init"):
        with suppress(OSError, ValueError):
            found: dict[str, dict[str, Any]] = json.loads((place / NAME).read_bytes())
            return found
    return {}


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.prefix, "share", "belljar", NAME))
