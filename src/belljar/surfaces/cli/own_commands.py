"""Safe mode's own commands, which begin with a colon. One line in COMMANDS adds one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from anyio.from_thread import BlockingPortal

from belljar.errors import BelljarError, UsageError, closest
from belljar.policy.verdict import DECISIONS
from belljar.records import record
from belljar.session.session import Session
from belljar.surfaces.cli import console, staged_choice, staged_offer


class Prompt(Protocol):
    """What they need of safe mode."""

    box: Session
    portal: BlockingPortal

    def leave(self) -> None: ...


@record
class OwnCommand:
    run: Callable[[Prompt, list[str]], None]
    usage: str
    summary: str
    staged: bool = False
    """Only available in a staged session."""


def is_own(text: str) -> bool:
    """A colon with a word right after it. `: comment` and `:;` are for bash."""
    return text.lstrip().startswith(":") and text.strip()[1:2].isalpha()


def carry_out(mode: Prompt, text: str) -> None:
    name, *words = text.split()
    try:
        _find(mode, name).run(mode, words)
    except BelljarError as error:
        console.note(str(error))


def _find(mode: Prompt, name: str) -> OwnCommand:
    commands = available(mode)
    if name in commands:
        return commands[name]
    if name in COMMANDS:
        raise UsageError(
            f"{name} is not available in this session; `belljar shell --staged` has it"
        )
    close = closest(name, commands)
    raise UsageError(
        f"there is no {name}; {f'did you mean {close}?' if close else ':help lists the commands'}"
    )


def available(mode: Prompt) -> dict[str, OwnCommand]:
    return {
        name: command
        for name, command in COMMANDS.items()
        if mode.box.is_staged or not command.staged
    }


def _help(mode: Prompt, _: list[str]) -> None:
    console.say(
        "  every line runs in the sandbox; cd, exports, functions and jobs are kept from line to line"
    )
    for command in available(mode).values():
        console.say(f"  {command.usage:<18} {command.summary}")
    console.say(
        "  while a command runs all keys go to it: Ctrl+C interrupts it, Ctrl+Z stops it (fg continues it)"
    )


def _policy(mode: Prompt, _: list[str]) -> None:
    policy = mode.box.policy
    console.say(
        f"{policy.name} ({policy.version}); `belljar check --explain CMD` shows a verdict and why"
    )
    rows = [
        (policy.decides(rule), rule.id, rule.risk, rule.reason) for rule in policy.rules
    ]
    strictest_first = sorted(rows, key=lambda row: -DECISIONS.index(row[0]))
    console.table(strictest_first, "DECISION", "RULE", "RISK", "REASON")


def _shells(mode: Prompt, _: list[str]) -> None:
    shells = mode.portal.call(mode.box.refresh)
    console.table(
        [(s.id, s.status, s.command) for s in shells], "SHELL", "STATUS", "COMMAND"
    )


def _open(mode: Prompt, words: list[str]) -> None:
    if len(words) != 1 or not words[0].isdigit():
        raise UsageError("write for example :open 8000")
    console.say(str(_call(mode, "forward", int(words[0]))))


def _allow(mode: Prompt, words: list[str]) -> None:
    if not words:
        raise UsageError("write for example :allow api.example.com")
    _call(mode, "allow_host", *words)
    console.say(f"{', '.join(words)} can be reached from now on")


def _changes(mode: Prompt, _: list[str]) -> None:
    changes = _call(mode, "changes")
    console.say(
        "\n".join(staged_choice.line(change) for change in changes)
        or "nothing has changed"
    )


def _diff(mode: Prompt, words: list[str]) -> None:
    console.say(
        str(_call(mode, "diff", _paths(":diff", words))).rstrip("\n")
        or "nothing has changed"
    )


def _apply(mode: Prompt, words: list[str]) -> None:
    flags = {"--merge": "merge", "--force": "force", "--runs-later": "runs_later"}
    paths = _paths(":apply", [word for word in words if word not in flags], *flags)
    options: Any = {name: flag in words for flag, name in flags.items()}
    staged_offer.report(
        mode.portal.call(partial(mode.box.apply, paths, **options)), "applied"
    )


def _discard(mode: Prompt, words: list[str]) -> None:
    console.note(f"{len(_call(mode, 'discard', _paths(':discard', words)))} discarded")


def _paths(command: str, words: list[str], *flags: str) -> list[str] | None:
    """None means all paths. A file whose name begins with a dash is written ./-name."""
    if unknown := [word for word in words if word.startswith("-")]:
        known = f"it has {', '.join(flags)}" if flags else "it has none"
        raise UsageError(f"{unknown[0]} is not an option of {command}; {known}")
    return words or None


def _undo(mode: Prompt, _: list[str]) -> None:
    """Go back to before the last risky command; the next time to before the one before it."""
    if not mode.box.checkpoints():
        raise UsageError(
            "no risky command has run; :discard drops changes, `belljar apply --undo` takes :apply back"
        )
    point = _call(mode, "rollback")
    _call(mode, "forget_checkpoint", point)
    console.note(f"the files are as they were {point.name}")


def _call(mode: Prompt, method: str, *arguments: Any) -> Any:
    return mode.portal.call(getattr(mode.box, method), *arguments)


COMMANDS = {
    ":help": OwnCommand(_help, ":help", "show this list"),
    ":policy": OwnCommand(_policy, ":policy", "show the rules of the policy"),
    ":shells": OwnCommand(
        _shells, ":shells", "list the background shells of this session"
    ),
    ":open": OwnCommand(
        _open, ":open PORT", "make a port of the sandbox reachable from this machine"
    ),
    ":allow": OwnCommand(_allow, ":allow HOST", "let commands reach a host"),
    ":changes": OwnCommand(_changes, ":changes", "list what changed", staged=True),
    ":diff": OwnCommand(
        _diff, ":diff [PATH…]", "show what changed as a diff", staged=True
    ),
    ":apply": OwnCommand(
        _apply,
        ":apply [--merge] [PATH…]",
        "write changes to the workspace",
        staged=True,
    ),
    ":discard": OwnCommand(_discard, ":discard [PATH…]", "drop changes", staged=True),
    ":undo": OwnCommand(
        _undo, ":undo", "go back to before the last risky command", staged=True
    ),
    ":quit": OwnCommand(
        lambda mode, _: mode.leave(), ":quit", "leave (so do exit and Ctrl+D)"
    ),
}
