"""The time of a verdict: for plain commands, parsed ones, and texts of a hundred kilobytes."""

from __future__ import annotations

import time
from pathlib import Path

from belljar import Policy

from .table import Row, ms, p50, p99

PLAIN = [
    "ls -la",
    "git status",
    "pytest -q tests",
    "npm test",
    "make -j2",
    "cat README.md",
    "python app.py --port 80",
]
PARSED = [
    'for f in *.py; do wc -l "$f"; done | sort -n | tail -5',
    "cd src && grep -rn 'TODO' . | head -20 || true",
    'git log --oneline -10 && git diff --stat HEAD~1 > /tmp/stat.txt; echo "done $?"',
    "cat > /tmp/x.py <<'EOF'\nprint('hi')\nEOF\npython3 /tmp/x.py | tee out.txt",
    'find . -name "*.js" -not -path "*/node_modules/*" -exec grep -l import {} +',
]
LARGE = {
    "a long && chain": " && ".join(["true"] * 14_000),
    "deep nesting": "$(" * 30_000,
    "one word": "echo " + "a" * 100_000,
    "text": "echo '" + "rm -rf / " * 11_000 + "'",
}


def measure(policy: Policy, commands: list[str], rounds: int) -> list[float]:
    times = []
    for number in range(rounds):
        command = commands[number % len(commands)]
        begun = time.perf_counter()
        policy.judge(command)
        times.append(time.perf_counter() - begun)
    return times


async def rows(_workspace: Path) -> list[Row]:
    policy = Policy.load("default")
    measure(policy, PLAIN + PARSED, 24)
    plain, parsed = measure(policy, PLAIN, 2000), measure(policy, PARSED, 500)
    found = [
        Row("plain command, p50", ms(p50(plain)), "", "", "<= 0.2 ms", p50(plain) <= 0.0002),
        Row("parsed command, p50 / p99", ms(p50(parsed), p99(parsed)), "", "", "<= 3 / 15 ms",
            p50(parsed) <= 0.003 and p99(parsed) <= 0.015),
    ]  # fmt: skip
    for name, text in LARGE.items():
        (taken,) = measure(policy, [text], 1)
        found.append(
            Row(f"100 KB: {name}", f"{taken:.2f} s", "", "", "<= 2 s", taken <= 2)
        )
    return found
