"""Safe mode's own commands, which begin with a colon. A feature is one line in COMMANDS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from belljar.errors import BelljarError, UsageError, closest
from belljar.policy.verdict import DECISIONS
from belljar.records import record
from belljar.surfaces.cli import console, staged_offer

if TYPE_CHECKING:
    from belljar.surfaces.cli.safe_mode import SafeMode


@record
class Own:
    does: Callable[[SafeMode, list[str]], None]
    usage: str
    summary: str
    staged: bool = False
    """Only of use where changes are kept aside."""


def is_one(text: str) -> bool:
    """A word behind a colon. `: comment` and `:;` are bash's."""
    return text.lstrip().startswith(":") and text.strip()[1:2].isalpha()


def carry_out(mode: SafeMode, text: str) -> None:
    name, *words = text.split()
    try:
        _known(mode, name).does(mode, words)
    except BelljarError as error:
        console.note(str(error))


def _known(mode: SafeMode, name: str) -> Own:
    there = available(mode)
    if name in there:
        return there[name]
    if name in COMMANDS:
        raise UsageError(f"{name} is not available in this session; `belljar shell --staged` has it")
    close = closest(name, there)
    raise UsageError(f"there is no {name}; {f'did you mean {close}?' if close else ':help lists the commands'}")


def available(mode: SafeMode) -> dict[str, Own]:
    return {name: own for name, own in COMMANDS.items() if mode.box.is_staged or not own.staged}


def _help(mode: SafeMode, _: list[str]) -> None:
    console.say("  every line runs in the sandbox; cd, exports, functions and jobs are kept from line to line")
    for own in available(mode).values():
        console.say(f"  {own.usage:<18} {own.summary}")
    console.say("  while a command runs all keys go to it: Ctrl+C interrupts it, Ctrl+Z stops it (fg continues it)")


def _policy(mode: SafeMode, _: list[str]) -> None:
    policy = mode.box.policy
    console.say(f"{policy.name} ({policy.version}); `belljar check --explain CMD` shows a verdict and why")
    rows = [(policy.decides(rule), rule.id, rule.risk, rule.reason) for rule in policy.rules]
    strictest_first = sorted(rows, key=lambda row: -DECISIONS.index(row[0]))
    console.table(strictest_first, "DECISION", "RULE", "RISK", "REASON")


def _shells(mode: SafeMode, _: list[str]) -> None:
    shells = mode.portal.call(mode.box.refresh)
    console.table([(s.id, s.status, s.command) for s in shells], "SHELL", "STATUS", "COMMAND")


def _open(mode: SafeMode, words: list[str]) -> None:
    if len(words) != 1 or not words[0].isdigit():
        raise UsageError("write for example :open 8000")
    console.say(str(_asked(mode, "forward", int(words[0]))))


def _allow(mode: SafeMode, words: list[str]) -> None:
    if not words:
        raise UsageError("write for example :allow api.example.com")
    _asked(mode, "allow_host", *words)
    console.say(f"{', '.join(words)} can be reached from now on")


def _changes(mode: SafeMode, _: list[str]) -> None:
    found = _asked(mode, "changes")
    console.say("\n".join(staged_offer.line(change) for change in found) or "nothing has changed")


def _diff(mode: SafeMode, words: list[str]) -> None:
    console.say(str(_asked(mode, "diff", _paths(":diff", words))).rstrip("\n") or "nothing has changed")


def _apply(mode: SafeMode, words: list[str]) -> None:
    flags = {"--merge": "merge", "--force": "force", "--runs-later": "runs_later"}
    paths = _paths(":apply", [word for word in words if word not in flags], *flags)
    options = {name: flag in words for flag, name in flags.items()}
    staged_offer.report(mode.portal.call(partial(mode.box.apply, paths, **options)), "applied")


def _discard(mode: SafeMode, words: list[str]) -> None:
    console.note(f"{len(_asked(mode, 'discard', _paths(':discard', words)))} discarded")


def _paths(command: str, words: list[str], *flags: str) -> list[str] | None:
    """None for all. A file whose name begins with a dash is ./-name."""
    if unknown := [word for word in words if word.startswith("-")]:
        there = f"there are {', '.join(flags)}" if flags else "it has none"
        raise UsageError(f"{unknown[0]} is no option of {command}; {there}")
    return words or None


def _undo(mode: SafeMode, _: list[str]) -> None:
    """Back to before the last risky command; asked again, to before the one before it."""
    if not mode.box.checkpoints():
        raise UsageError("no risky command has run; :discard drops changes, `belljar apply --undo` takes :apply back")
    point = _asked(mode, "rollback")
    _asked(mode, "forget_checkpoint", point)
    console.note(f"the files are as they were {point.name}")


def _quit(mode: SafeMode, _: list[str]) -> None:
    mode.leave()


def _asked(mode: SafeMode, method: str, *arguments: Any) -> Any:
    return mode.portal.call(getattr(mode.box, method), *arguments)


COMMANDS = {
    ":help": Own(_help, ":help", "show this list"),
    ":policy": Own(_policy, ":policy", "show the rules of the policy"),
    ":shells": Own(_shells, ":shells", "list the background shells of this session"),
    ":open": Own(_open, ":open PORT", "make a port of the sandbox reachable from this machine"),
    ":allow": Own(_allow, ":allow HOST", "let commands reach a host"),
    ":changes": Own(_changes, ":changes", "list what changed", staged=True),
    ":diff": Own(_diff, ":diff [PATH…]", "show what changed as a diff", staged=True),
    ":apply": Own(_apply, ":apply [--merge] [PATH…]", "write changes to the workspace", staged=True),
    ":discard": Own(_discard, ":discard [PATH…]", "drop changes", staged=True),
    ":undo": Own(_undo, ":undo", "go back to before the last risky command", staged=True),
    ":quit": Own(_quit, ":quit", "leave (so do exit and Ctrl+D)"),
}
