"""Examples in policy files: each rule's `match` and `not_match` are judged when the file is loaded.

A file that passed once with this very engine is remembered by digest, so that only a changed file costs the time.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from belljar import __version__, resources
from belljar.errors import PolicyError

from .knowledge import Entry, check, read_file

if TYPE_CHECKING:
    from .engine import Policy

CHECKED = "policies"


def check_examples(policy: "Policy", remember: bool = True) -> None:
    stamp = hashlib.sha256(f"{_engine()}{policy.version}".encode()).hexdigest()
    if remember and resources.is_remembered(CHECKED, stamp):
        return
    from belljar.toml_schema import line_of

    # Of files that are ours our tests do; an operator's knowledge may describe a name of their examples.
    for file in [file for file in policy.files if not file.shipped] or policy.files:
        for at, rule in enumerate(file.rules):
            for command in (*rule.match, *rule.not_match):
                fired = any(finding.id == rule.id for finding in policy.judge(command).rules)
                if fired != (command in rule.match):
                    word, key = ("matches", "not_match") if fired else ("does not match", "match")
                    where = f"{file.source}:{line_of(file.text, f'rule[{at}].{key}')}: rule {rule.id}"
                    raise PolicyError(f"{where} {word} its example {command!r}")
    for entry in policy.knowledge.every():
        if not entry.shipped:
            check_entry(policy, entry)
    if remember:
        resources.remember(CHECKED, stamp)


def check_entry(policy: "Policy", entry: Entry) -> None:
    """An entry's own examples: a command, and the effect that it must have (none, where it is harmless)."""
    from .schema import located

    for command, wanted in entry.examples.items():
        effects = policy.judge(command).effects
        kinds = {one.kind for one in effects if one.kind not in ("exec", "exec.unknown") or "destroys" in one.flags}
        if wanted not in kinds and (wanted or kinds):
            told = ", ".join(sorted(kinds)) or "nothing"
            where = f"{located(entry.source, f'program {entry.name} examples')}: program {entry.name}"
            raise PolicyError(f"{where}: {command!r} does {told}, not {wanted or 'nothing'!r}")


def is_knowledge(path: str) -> bool:
    return "policy" not in read_file(Path(path))


def check_knowledge(path: str) -> None:
    """Check a knowledge file by itself: its schema, its words, its examples (under the default policy)."""
    from .engine import Policy

    check(read_file(Path(path)), path)
    text = f'[policy]\nname = "check"\nextends = "default"\nknowledge = [{json.dumps(str(Path(path).absolute()))}]'
    own = Policy.parse(text, path)
    for entry in own.knowledge.every():
        check_entry(own, entry) if entry.source == str(Path(path).absolute()) else None


@cache
def _engine() -> str:
    found = sorted((path.name, path.stat()) for path in Path(__file__).parent.glob("*.py"))  # reading all takes longer
    return repr([__version__, *((name, one.st_size, one.st_mtime_ns) for name, one in found)])
