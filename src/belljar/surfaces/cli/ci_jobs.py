"""`belljar ci SYSTEM`: a job that works, to be written into the project's file. The jobs are in ci_examples/."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from belljar.surfaces.cli import console

_PLACE = Path(__file__).with_name("ci_examples")
FILES = {
    "github": "github.yml",
    "gitlab": "gitlab.yml",
    "jenkins": "jenkins.groovy",
    "without-root": "without-root.yml",
}


def show(args: Namespace) -> int:
    text = (_PLACE / FILES[args.system]).read_text()
    if args.json:
        return console.answer(args, {"system": args.system, "job": text})
    sys.stdout.write(text)
    return 0
