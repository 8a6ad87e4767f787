"""Rows of figures and the table that shows them. Where there is a baseline, it is of the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    what: str
    ours: str
    baseline: str
    ratio: str
    goal: str
    met: bool | None = None


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def p50(values: Sequence[float]) -> float:
    return quantile(values, 0.50)


def p95(values: Sequence[float]) -> float:
    return quantile(values, 0.95)


def p99(values: Sequence[float]) -> float:
    return quantile(values, 0.99)


def ms(*seconds: float) -> str:
    return " / ".join(f"{value * 1e3:.2f}" for value in seconds) + " ms"


def show(title: str, rows: Sequence[Row]) -> None:
    cells = [("what", "ours", "baseline", "ratio", "goal", "")]
    cells += [
        (
            r.what,
            r.ours,
            r.baseline,
            r.ratio,
            r.goal,
            {True: "met", False: "MISSED", None: ""}[r.met],
        )
        for r in rows
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(6)]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        print(
            "  "
            + "  ".join(
                text.ljust(width) for text, width in zip(row, widths, strict=True)
            ).rstrip()
        )
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
