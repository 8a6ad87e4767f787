"""`belljar help`, `version` and `config`"""

from __future__ import annotations

from argparse import Namespace
from contextlib import redirect_stdout, suppress
from io import StringIO

from belljar import __version__, enforcement
from belljar.surfaces.cli import console, settings
from belljar.surfaces.cli.parser import build


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
    rows = [(name, setting.value, setting.described_source) for name, setting in found.items()]
    facts = {name: vars(setting) for name, setting in found.items()}
    console.answer_table(args, facts, rows, "SETTING", "VALUE", "FROM")
    paths = (enforcement.OPERATOR, settings.user_file())
    files = [f"{path}: {'read' if path.exists() else 'not there'}" for path in paths]
    return 0 if args.json else console.answer(args, None, *files, f"known settings: {', '.join(settings.SETTABLE)}")
