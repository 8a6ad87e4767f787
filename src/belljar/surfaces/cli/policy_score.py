"""Scores a policy on files of commands with expected decisions (`belljar policy test`)."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from belljar.errors import PolicyError
from belljar.policy import Policy
from belljar.policy.marks import show
from belljar.policy.verdict import DECISIONS
from belljar.records import record


@record
class Miss:
    command: Any
    expect: str
    decision: str
    reason: str
    where: str


@dataclass(slots=True)
class Score:
    """Counts by (expected decision, decision), and the lines where they differ."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[Miss] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.counts.total()

    def as_dict(self) -> dict[str, Any]:
        counts = {
            f"{expect}->{decision}": count
            for (expect, decision), count in sorted(self.counts.items())
        }
        right = self.total - len(self.wrong)
        return {
            "total": self.total,
            "right": right,
            "counts": counts,
            "wrong": [asdict(miss) for miss in self.wrong],
        }

    def table(self) -> str:
        lines = [
            f"{'expected':<10}" + "".join(f"{decision:>8}" for decision in DECISIONS)
        ]
        for expect in DECISIONS:
            lines.append(
                f"{expect:<10}"
                + "".join(
                    f"{self.counts[expect, decision]:>8}" for decision in DECISIONS
                )
            )
        for m in self.wrong:
            lines.append(
                f"{m.where}: expected {m.expect}, got {m.decision}: {show(str(m.command))[:160]!r}"
            )
        return "\n".join(
            [*lines, f"{self.total - len(self.wrong)} of {self.total} as expected"]
        )


def score_files(paths: Iterable["str | Path"], policy: Policy) -> Score:
    score = Score()
    for path in paths:
        try:
            lines = Path(path).read_text("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"{path}: cannot be read: {error}") from error
        for where, line in (
            (f"{path}:{number}", line)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ):
            entry = _entry(line, where)
            verdict = policy.judge(entry["command"])
            score.counts[entry["expect"], verdict.decision] += 1
            if verdict.decision != entry["expect"]:
                score.wrong.append(
                    Miss(
                        entry["command"],
                        entry["expect"],
                        verdict.decision,
                        verdict.reason,
                        where,
                    )
                )
    return score


def _entry(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise PolicyError(f"{where}: not JSON: {error}") from error
    if (
        not isinstance(entry, dict)
        or "command" not in entry
        or entry.get("expect") not in DECISIONS
    ):
        raise PolicyError(
            f'{where}: a line is {{"command": …, "expect": "allow" | "ask" | "deny"}}'
        )
    return entry
