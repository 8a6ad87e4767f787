"""`make adapters-test`: our tests of the adapters, and each framework's own suite, unmodified, against its adapter.

`NAMES='inspect mini'` chooses; all is what it does without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from tests.adapters import environments
from tests.adapters.frameworks import FRAMEWORKS, Framework

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make adapters-test", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*FRAMEWORKS, []],
        help="which adapters (default: all)",
    )
    wanted = parser.parse_args().names or list(FRAMEWORKS)
    rows, failed = (
        [("adapter", "framework", "Python", "tests", "result", "seconds")],
        False,
    )
    with tempfile.TemporaryDirectory(prefix="belljar-adapters-") as name:
        site = environments.install_checkout(Path(name))
        for framework in (FRAMEWORKS[each] for each in wanted):
            try:
                place = environments.environment(framework, make=True)
            except environments.NotRun as reason:
                rows.append(
                    (
                        framework.name,
                        framework.pins[0],
                        "",
                        "",
                        f"not run: {reason}",
                        "",
                    )
                )
                continue
            for kind in ("suite", "test"):
                if (file := HERE / f"{kind}_{framework.name}.py").exists():
                    row, bad = _run(framework, place, site, file)
                    rows.append(row)
                    failed = failed or bad
                else:
                    why = (
                        "it has none" if kind == "suite" else "not run: not written yet"
                    )
                    rows.append((framework.name, framework.pins[0], "", kind, why, ""))
    _show(rows)
    return int(failed)


def _run(
    framework: Framework, place: Path, site: Path, file: Path
) -> tuple[tuple[str, ...], bool]:
    print(f"{file.name} with {framework.pins[0]}", file=sys.stderr, flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        report = Path(name, "report.xml")
        done = environments.pytest_in(place, site, file, f"--junitxml={report}")
        counts = _counts(report) if report.exists() else Counter()
    seconds = f"{time.monotonic() - start:.0f}"
    bad = done.returncode != 0
    if bad:
        print(done.stdout[-20_000:], done.stderr[-5_000:], file=sys.stderr, flush=True)
    result = (
        ", ".join(f"{count} {what}" for what, count in counts.items()) or "no report"
    )
    kind = "its own suite" if file.name.startswith("suite") else "ours"
    version = environments.python_version(place)
    return (
        framework.name,
        " ".join(framework.pins),
        version,
        kind,
        result,
        seconds,
    ), bad


def _counts(report: Path) -> Counter[str]:
    """How many tests passed, failed as expected (`xfail`, with its reason beside the test), failed, were not run."""
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        elif skipped is None:
            counts["passed"] += 1
        else:
            counts[
                "expected to fail"
                if skipped.get("type") == "pytest.xfail"
                else "not run"
            ] += 1
    return counts


def _show(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )


if __name__ == "__main__":
    sys.exit(main())
