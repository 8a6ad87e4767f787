"""`belljar check`, `belljar policy explain` and `belljar policy test`"""

from __future__ import annotations

from argparse import Namespace

from belljar.audit import masking
from belljar.errors import PolicyDenied
from belljar.policy import Policy, Verdict, check_knowledge, is_knowledge, score_files
from belljar.surfaces.cli import console

_WRONG_STATUS = 1
_ASK_STATUS = 3


def check(args: Namespace) -> int:
    verdict = Policy.load(args.policy).judge(args.command)
    if args.json:
        effects = {"effects": verdict.explain().splitlines()} if args.explain else {}
        console.document(masking.value(verdict.as_dict() | effects))
    elif args.explain:
        console.say(masking.text(verdict.explain()))
    else:
        _print(verdict)
    return {"deny": PolicyDenied.exit_status, "ask": _ASK_STATUS}.get(verdict.decision, 0)


def explain(args: Namespace) -> int:
    """For a person who asks why: the commands in it, the entries they were read by, the effects, the rules."""
    verdict = Policy.load(args.policy).judge(args.command)
    if args.json:
        console.document(masking.value({**verdict.as_dict(effects=True), "commands": list(verdict.seen)}))
    else:
        console.say(masking.text(verdict.explain(commands=True)))
    return {"deny": PolicyDenied.exit_status, "ask": _ASK_STATUS}.get(verdict.decision, 0)


def _print(verdict: Verdict) -> None:
    console.say(f"{verdict.decision} ({verdict.risk})")
    for rule in verdict.rules:
        console.say(f"  {rule.id}: {masking.text(rule.reason)}")


def test(args: Namespace) -> int:
    """A policy file is loaded, which checks its own examples; any other file holds commands and what to expect."""
    taught = [file for file in args.files if file.endswith(".toml") and is_knowledge(file)]
    for file in taught:
        check_knowledge(file)
    policies = [Policy.load(file) for file in args.files if file.endswith(".toml") and file not in taught]
    score = score_files([file for file in args.files if not file.endswith(".toml")], Policy.load(args.policy))
    if args.json:
        names = [f"{policy.name}@{policy.version}" for policy in policies]
        console.document({**score.as_dict(), "policies": names, "knowledge": taught})
    else:
        for name in [*taught, *(f"{policy.name}@{policy.version}" for policy in policies)]:
            console.say(f"{name}: its examples hold")
        if score.total:
            console.say(score.table())
    return _WRONG_STATUS if score.wrong else 0
