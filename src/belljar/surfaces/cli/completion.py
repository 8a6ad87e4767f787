"""`belljar completion bash|zsh|fish`: small scripts that call Belljar, so they always match the parser.

The hidden command `__complete WORD…` prints the candidates for the last word, one per line, each followed by a tab and
its meaning. If it prints nothing, the shell completes file names.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from belljar.surfaces.cli import console
from belljar.surfaces.cli.parser import build
from belljar.surfaces.terminal import render

Pairs = Iterator[tuple[str, str]]


def completion(args: Namespace) -> int:
    return console.text(
        args, Path(__file__).with_suffix(f".{args.shell}").read_text().rstrip()
    )


def answer(words: Sequence[str]) -> int:
    """Print the candidates. Status 1 if there are none."""
    *before, last = words or ("",)
    candidates = sorted(
        {pair for pair in _candidates(before, last) if pair[0].startswith(last)}
    )
    for name, meaning in candidates:
        # The meaning may be the command of a background shell, and the user's shell sends it to the terminal.
        sys.stdout.write(f"{name}\t{render.plain(' '.join(meaning.split()))}\n")
    return 0 if candidates else 1


def _candidates(before: Sequence[str], last: str) -> Pairs:
    parser, rest = _descend(build(), before)
    if "--" in rest:
        return iter(())
    options = parser._option_string_actions
    option = options.get(rest[-1]) if rest else None
    if option is not None and option.nargs != 0:
        return _values(option)
    if last.startswith("-"):
        return (
            (name, action.help or "")
            for name, action in options.items()
            if name.startswith("--")
        )
    positional = next(
        (action for action in parser._actions if not action.option_strings), None
    )
    return _values(positional) if positional is not None else iter(())


def _descend(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.ArgumentParser, Sequence[str]]:
    for index, word in enumerate(words):
        commands = next(
            (
                action
                for action in parser._actions
                if isinstance(action, argparse._SubParsersAction)
            ),
            None,
        )
        if commands is None:
            return parser, words[index:]
        if word in commands.choices:
            parser = commands.choices[word]
    return parser, ()


def _values(action: argparse.Action) -> Pairs:
    if isinstance(action, argparse._SubParsersAction):
        yield from (
            (choice.dest, choice.help or "") for choice in action._choices_actions
        )
    elif action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices)
    elif action.dest in _KINDS:
        with suppress(Exception):  # Tab must not print an engine's error
            yield from _KINDS[action.dest]()


def _images() -> Pairs:
    from belljar.host import default
    from belljar.images import catalog

    for name in catalog.PARENTS:
        yield name, "an image of belljar's"
    store = default().connect().images
    for image in catalog.listing(store) if store else ():
        yield image.reference, f"{image.size / 1e6:.0f} MB"


def _policies() -> Pairs:
    from belljar.policy import BUILT_IN

    return ((name, "shipped") for name in BUILT_IN)


def _sessions() -> Pairs:
    from belljar.surfaces.cli.session_commands import sessions

    for session in sessions():
        yield (
            session["name"] or session["id"],
            f"{session['image']} on {session['workspace']}",
        )


def _snapshots() -> Pairs:
    from belljar.host import default
    from belljar.session import snapshot

    return (
        (each.name, f"{each.image} on {each.workspace}")
        for each in snapshot.listed(default())
    )


def _shells() -> Pairs:
    import anyio

    from belljar.surfaces.cli.session_commands import all_shells

    for shell in anyio.run(all_shells):
        yield shell["id"], f"{shell['status']}: {shell['command'][:60]}"


def _tools() -> Pairs:
    from belljar.tools import ToolRegistry

    for tool in ToolRegistry().schemas("anthropic"):
        yield tool["name"], tool["description"].split("\n")[0]


def _schemas() -> Pairs:
    from belljar.surfaces.cli.schemas import descriptions

    return iter(descriptions())


_KINDS: dict[str, Callable[[], Pairs]] = {
    "image": _images,
    "policy": _policies,
    "session": _sessions,
    "sessions": _sessions,
    "snapshot": _snapshots,
    "names": _snapshots,
    "id": _shells,
    "ids": _shells,
    "tool": _tools,
    "schema": _schemas,
    "topic": lambda: _values(build()._actions[-1]),
}
