"""`unpack` for an ordinary user: by root of his own user namespace, so that files get the owners an image gives them.

Without subordinate ids everything belongs to the user himself. The child is this module as a program: an archive on
stdin, what may still be written on the command line, what is left of that or what is wrong on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from belljar import user_namespace
from belljar.errors import ImageInvalid
from belljar.images.unpack import CHUNK, Allowance, Metered, unpack


def unpack_for_caller(stream: Metered, target: Path, allowance: Allowance) -> None:
    if os.geteuid() == 0 or user_namespace.missing_requirements() is not None:
        unpack(stream, target, allowance)
        return
    program = [sys.executable, "-P", "-m", __spec__.name, str(target), json.dumps(asdict(allowance))]
    command, descriptors = user_namespace.command(program)
    with subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stream.in_header = False
        with suppress(BrokenPipeError), child.stdin:
            while data := stream.read(CHUNK):
                child.stdin.write(data)
        answer = child.stdout.read()
    facts: dict[str, Any] = json.loads(answer) if child.returncode == 0 else {"wrong": "the archive cannot be unpacked"}
    if "wrong" in facts:
        raise ImageInvalid(facts["wrong"])
    for name, left in facts.items():
        setattr(allowance, name, left)


def main(target: str, given: str) -> None:
    allowance = Allowance(**json.loads(given))
    try:
        unpack(Metered(sys.stdin.buffer, sys.maxsize, hashed=False), Path(target), allowance)
        answer: dict[str, object] = asdict(allowance)
    except ImageInvalid as error:
        answer = {"wrong": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
