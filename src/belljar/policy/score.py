"""Scoring a policy on files of commands with expected decisions (`belljar policy test`)."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from belljar.errors import PolicyError

from .effects import DECISIONS
from .engine import Policy
from .marks import show


@dataclass(frozen=True, slots=True)
class Miss:
    command: Any
    expected: str
    decision: str
    reason: str
    where: str


@dataclass(slots=True)
class Score:
    """Counts by (expected, decided), and the lines that came out otherwise."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    wrong: list[Miss] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def rate(self, expected: str, decision: str) -> float:
        """Of the commands with this expectation, the share that got this decision."""
        of = sum(count for (wanted, _), count in self.counts.items() if wanted == expected)
        return self.counts.get((expected, decision), 0) / of if of else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "right": self.total - len(self.wrong),
            "counts": {f"{wanted}->{got}": count for (wanted, got), count in sorted(self.counts.items())},
            "wrong": [
                {
                    "command": m.command,
                    "expect": m.expected,
                    "decision": m.decision,
                    "reason": m.reason,
                    "where": m.where,
                }
                for m in self.wrong
            ],
        }

    def table(self) -> str:
        lines = [f"{'expected':<10}" + "".join(f"{decision:>8}" for decision in DECISIONS)]
        for wanted in DECISIONS:
            cells = "".join(f"{self.counts.get((wanted, got), 0):>8}" for got in DECISIONS)
            lines.append(f"{wanted:<10}{cells}")
        lines += [
            f"{m.where}: expected {m.expected}, got {m.decision}: {show(str(m.command))[:160]!r}" for m in self.wrong
        ]
        return "\n".join([*lines, f"{self.total - len(self.wrong)} of {self.total} as expected"])


def score_files(paths: Iterable["str | Path"], policy: Policy) -> Score:
    score = Score()
    for path in paths:
        for number, line in enumerate(_lines(Path(path)), 1):
            if line.strip():
                _count(score, policy, _entry(line, f"{path}:{number}"), f"{path}:{number}")
    return score


def score(path: "str | Path", policy: Policy) -> Score:
    return score_files([path], policy)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {error}") from error


def _entry(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise PolicyError(f"{where}: not JSON: {error}") from error
    if not isinstance(entry, dict) or "command" not in entry or entry.get("expect") not in DECISIONS:
        raise PolicyError(f'{where}: a line is {{"command": …, "expect": "allow" | "ask" | "deny"}}')
    return entry


def _count(score: Score, policy: Policy, entry: dict[str, Any], where: str) -> None:
    verdict = policy.judge(entry["command"])
    key = (entry["expect"], verdict.decision)
    score.counts[key] = score.counts.get(key, 0) + 1
    if verdict.decision != entry["expect"]:
        score.wrong.append(Miss(entry["command"], entry["expect"], verdict.decision, verdict.reason, where))
