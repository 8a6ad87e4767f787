"""Check the examples in policy and knowledge files: each is judged when its file is loaded.

A policy that passed is remembered by its digest and that of this package, so the next process need not judge again.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Protocol

from belljar import __version__, resources
from belljar.errors import PolicyError

from .knowledge import Entry, Knowledge
from .rules import RuleFile
from .toml_files import file_and_line, read_toml
from .verdict import Verdict

_PASSED = "policies"


class Judging(Protocol):
    """What is asked of a policy here."""

    files: tuple[RuleFile, ...]
    knowledge: Knowledge
    version: str

    def judge(self, command: object) -> Verdict: ...


def check_examples(policy: Judging, remember: bool = True) -> None:
    stamp = hashlib.sha256(f"{_code_version()}{policy.version}".encode()).hexdigest()
    if remember and resources.is_remembered(_PASSED, stamp):
        return
    from belljar.toml_schema import line_of

    # Our tests check the shipped files; here an operator's knowledge may describe a program of their examples.
    for file in [file for file in policy.files if not file.shipped] or policy.files:
        for at, rule in enumerate(file.rules):
            for command in (*rule.match, *rule.not_match):
                fired = any(
                    finding.id == rule.id for finding in policy.judge(command).rules
                )
                if fired != (command in rule.match):
                    word, key = (
                        ("matches", "not_match")
                        if fired
                        else ("does not match", "match")
                    )
                    where = f"{file.source}:{line_of(file.text, f'rule[{at}].{key}')}: rule {rule.id}"
                    raise PolicyError(f"{where} {word} its example {command!r}")
    for entry in policy.knowledge.every():
        if not entry.shipped:
            check_entry(policy, entry)
    if remember:
        resources.remember(_PASSED, stamp)


def check_entry(policy: Judging, entry: Entry) -> None:
    """Each example of an entry is a command and the effect that it must have; '': it must have none."""
    for command, wanted in entry.examples.items():
        effects = policy.judge(command).effects
        kinds = {
            one.kind
            for one in effects
            if one.kind not in ("exec", "exec.unknown") or "destroys" in one.flags
        }
        if kinds if not wanted else wanted not in kinds:
            actual = ", ".join(sorted(kinds)) or "nothing"
            where = f"{file_and_line(entry.source, f'program {entry.name} examples')}: program {entry.name}"
            raise PolicyError(
                f"{where}: {command!r} does {actual}, not {wanted or 'nothing'!r}"
            )


def is_knowledge(path: str) -> bool:
    return "policy" not in read_toml(Path(path))


@cache
def _code_version() -> str:
    """Sizes and times of this package's files: faster than to read them."""
    files = sorted(
        (path.name, path.stat()) for path in Path(__file__).parent.glob("*.py")
    )
    return repr(
        [__version__, *((name, stat.st_size, stat.st_mtime_ns) for name, stat in files)]
    )
