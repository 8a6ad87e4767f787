"""`belljar conformance`: does a server behave as the contract says?"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from belljar.conformance.judging import groups, judge, junit
from belljar.conformance.probe import CHECKS
from belljar.errors import UsageError
from belljar.surfaces.cli import console


def command(args: Namespace) -> int:
    key = args.key or os.environ.get("BELLJAR_KEY")
    if not key:
        raise UsageError(
            "conformance needs a key of the server: --key bj_…, or BELLJAR_KEY"
        )
    chosen = [
        each for each in CHECKS if not args.only or args.only in (each.group, each.says)
    ]
    if not chosen:
        raise UsageError(
            f"--only: there is no group {args.only!r}; {', '.join(groups())}"
        )
    outcomes = judge(args.url, key, chosen)
    if args.report_junit:
        Path(args.report_junit).write_bytes(junit(outcomes))
    facts = [
        {
            "group": each.check.group,
            "check": each.check.says,
            "state": each.state,
            "why": each.why,
        }
        for each in outcomes
    ]
    rows = [
        (each.check.group, each.state, each.check.says, each.why) for each in outcomes
    ]
    console.answer_table(args, facts, rows, "GROUP", "STATE", "CHECK", "WHY")
    failed = sum(each.state == "failed" for each in outcomes)
    console.note(
        f"{len(outcomes) - failed} of {len(outcomes)} behaviours are as the contract says"
    )
    return 1 if failed else 0
