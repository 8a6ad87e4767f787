"""`belljar help`, `version`, `config` and `man`, whose page is made from the parser."""

from __future__ import annotations

import argparse
from argparse import Namespace
from contextlib import redirect_stdout, suppress
from io import StringIO

from belljar import __version__, enforcement
from belljar.surfaces.cli import console, examples, settings
from belljar.surfaces.cli.parser import (
    CHECK_STATUSES,
    DESCRIPTION,
    GROUPS,
    STATUSES,
    build,
)


def help(args: Namespace) -> int:
    if not args.json:
        build().parse_args([*args.topic, "--help"])
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        build().parse_args([*args.topic, "--help"])
    return console.text(args, shown.getvalue())


def version(args: Namespace) -> int:
    return console.answer(args, {"version": __version__}, f"belljar {__version__}")


def config(args: Namespace) -> int:
    found = settings.load()
    rows = [
        (name, setting.value, setting.described_source)
        for name, setting in found.items()
    ]
    facts = {name: vars(setting) for name, setting in found.items()}
    console.answer_table(args, facts, rows, "SETTING", "VALUE", "FROM")
    paths = (enforcement.OPERATOR, settings.user_file())
    files = [f"{path}: {'read' if path.exists() else 'not there'}" for path in paths]
    return (
        0
        if args.json
        else console.answer(
            args, None, *files, f"known settings: {', '.join(settings.SETTABLE)}"
        )
    )


def man(args: Namespace) -> int:
    return console.text(args, page())


def page() -> str:
    top = next(
        action
        for action in build()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    lines = [
        f'.TH BELLJAR 1 "" "belljar {__version__}" "User Commands"',
        ".SH NAME",
        r"belljar \- run commands in containers",
        ".SH SYNOPSIS",
        r".B belljar",
        r"\fICOMMAND\fR [\fIoptions\fR]",
        ".SH DESCRIPTION",
        _text(DESCRIPTION),
    ]
    for group in GROUPS:
        lines.append(f".SH {_text(group.title.upper())}")
        for name in group.names:
            lines += _command(top.choices[name])
    lines += [
        ".SH EXAMPLES",
        ".nf",
        *map(_text, examples.of("run").splitlines()[1:]),
        ".fi",
        ".SH EXIT STATUS",
    ]
    lines += [
        _text(STATUSES.partition(": ")[2]),
        ".PP",
        _text(f"belljar check: {CHECK_STATUSES.partition(': ')[2]}"),
    ]
    lines += [
        ".SH FILES",
        *map(
            _text, ("~/.config/belljar/config.toml", ".br", "/etc/belljar/config.toml")
        ),
    ]
    return "\n".join(lines)


def _command(parser: argparse.ArgumentParser) -> list[str]:
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    lines = [
        f'.SS "{parser.prog}"',
        _text(parser.description or ""),
        ".PP",
        rf"\fB{_text(usage)}\fR",
    ]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                lines += _command(sub)
        elif (
            action.help not in (argparse.SUPPRESS, None)
            and "--help" not in action.option_strings
        ):
            value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
            names = ", ".join(action.option_strings) or str(value)
            shown = (
                f" \\fI{_text(str(value))}\\fR"
                if value and action.option_strings
                else ""
            )
            lines += [
                ".TP",
                rf"\fB{_text(names)}\fR{shown}",
                _text(str(action.help).replace("%%", "%")),
            ]
    return lines


def _text(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return (
        r"\&" + escaped
        if escaped.startswith((".", "'")) and escaped != ".br"
        else escaped
    )
