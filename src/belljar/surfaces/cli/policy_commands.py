"""`belljar check` and `belljar policy list`, `show`, `explain`, `test`"""

from __future__ import annotations

from argparse import Namespace

from belljar.audit import masking
from belljar.errors import PolicyDenied
from belljar.policy import BUILT_IN, Policy
from belljar.policy.engine import check_knowledge
from belljar.policy.examples import is_knowledge
from belljar.policy.rules import Rule
from belljar.surfaces.cli import console
from belljar.surfaces.cli.policy_score import score_files

_WRONG_STATUS = 1
_STATUSES = {"allow": 0, "ask": 3, "deny": PolicyDenied.exit_status}


def check(args: Namespace) -> int:
    verdict = Policy.load(args.policy).judge(args.command)
    explained = verdict.explain() if args.explain else ""
    facts = verdict.as_dict() | (
        {"effects": explained.splitlines()} if args.explain else {}
    )
    rules = "".join(f"\n  {rule.id}: {rule.reason}" for rule in verdict.rules)
    text = explained or f"{verdict.decision} ({verdict.risk}){rules}"
    console.answer(args, masking.value(facts), masking.text(text))
    return _STATUSES[verdict.decision]


def list_shipped(args: Namespace) -> int:
    policies = [Policy.load(name, prove=False) for name in BUILT_IN]
    rows = ((policy.name, policy.files[0].description) for policy in policies)
    return console.answer_table(
        args, [_about(policy) for policy in policies], rows, "POLICY", "FOR"
    )


def show(args: Namespace) -> int:
    """Show a policy's rules, and those of the policies that it extends."""
    policy = Policy.load(args.name, prove=False)
    if args.json:
        rules = [
            {"id": rule.id, "decision": _decides(policy, rule), "reason": rule.reason}
            for rule in policy.rules
        ]
        console.document({**_about(policy), "rules": rules})
        return 0
    console.say(f"{policy}: {policy.files[0].description}")
    asks = (
        "never asks because of a risk"
        if policy.ask_at == "never"
        else f"asks from risk {policy.ask_at} on"
    )
    console.say(asks if policy.ask == "ask" else "denies what it would ask about")
    if policy.allow_programs is not None:
        console.say(f"runs only: {', '.join(sorted(policy.allow_programs))}")
    for label, hosts in (
        ("allowed", policy.network_allow),
        ("no host beyond", policy.network_ceiling),
    ):
        if hosts is not None:
            console.say(f"network: {label} {', '.join(hosts) or 'none'}")
    for file in policy.files:
        console.say(
            f"\n{file.source}" + (f" extends {file.extends}" if file.extends else "")
        )
        for path in file.knowledge:
            console.say(f"  {'knowledge':<16} {path}")
        for rule in file.rules:
            console.say(f"  {_decides(policy, rule):<16} {rule.id:<24} {rule.reason}")
        for exception in file.allows:
            console.say(
                f"  {'exception':<16} {', '.join(sorted(exception.rule)) or 'any rule':<24} {exception.reason}"
            )
    return 0


def _about(policy: Policy) -> dict[str, object]:
    file = policy.files[0]
    return {
        "name": policy.name,
        "version": policy.version,
        "description": file.description,
        "file": file.source,
        "extends": [base.name for base in policy.files[1:]],
        "ask_at": policy.ask_at,
        "ask": policy.ask,
        "allow_programs": sorted(policy.allow_programs or ()) or None,
        "network": {"allow": policy.network_allow, "ceiling": policy.network_ceiling},
        "knowledge": [path for each in policy.files for path in each.knowledge],
    }


def _decides(policy: Policy, rule: Rule) -> str:
    """The decision of a rule and its risk, as this policy applies it."""
    decision = policy.decides(rule)
    return decision if decision == "deny" else f"{decision} ({rule.risk})"


def explain(args: Namespace) -> int:
    """Show how a command is judged: its parts, the entries they were read by, the effects and the rules."""
    verdict = Policy.load(args.policy).judge(args.command)
    facts = {**verdict.as_dict(effects=True), "commands": verdict.commands()}
    console.answer(
        args, masking.value(facts), masking.text(verdict.explain(commands=True))
    )
    return _STATUSES[verdict.decision]


def test(args: Namespace) -> int:
    """Check policy and knowledge files by their own examples, and other files by the decisions that they expect."""
    knowledge = [
        file for file in args.files if file.endswith(".toml") and is_knowledge(file)
    ]
    for file in knowledge:
        check_knowledge(file)
    policies = [
        str(Policy.load(file))
        for file in args.files
        if file.endswith(".toml") and file not in knowledge
    ]
    score = score_files(
        [file for file in args.files if not file.endswith(".toml")],
        Policy.load(args.policy),
    )
    if args.json:
        console.document(
            {**score.as_dict(), "policies": policies, "knowledge": knowledge}
        )
    else:
        for name in [*knowledge, *policies]:
            console.say(f"{name}: its examples hold")
        if score.total:
            console.say(score.table())
    return _WRONG_STATUS if score.wrong else 0
