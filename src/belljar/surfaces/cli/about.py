"""`belljar help`, `version` and `config`"""

from __future__ import annotations

from argparse import Namespace
from contextlib import redirect_stdout, suppress
from io import StringIO

from belljar import __version__
from belljar.surfaces.cli import console, settings
from belljar.surfaces.cli.parser import build


def help(args: Namespace) -> int:
    if not args.json:
        build().parse_args([*args.topic, "--help"])
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        build().parse_args([*args.topic, "--help"])
    console.text(shown.getvalue(), as_json=True)
    return 0


def version(args: Namespace) -> int:
    if args.json:
        console.document({"version": __version__})
    else:
        console.say(f"belljar {__version__}")
    return 0


def config(args: Namespace) -> int:
    found = settings.load()
    if args.json:
        console.document(
            {name: {"value": s.value, "source": s.source, "enforced": s.enforced} for name, s in found.items()}
        )
        return 0
    rows = [(name, s.value, s.source + (" (enforced)" if s.enforced else "")) for name, s in found.items()]
    console.table(rows, "SETTING", "VALUE", "FROM")
    for path in (settings.OPERATOR, settings.user_file()):
        console.say(f"{path}: {'read' if path.exists() else 'not there'}")
    console.say(f"settings there are: {', '.join(settings.SETTABLE)}")
    return 0
