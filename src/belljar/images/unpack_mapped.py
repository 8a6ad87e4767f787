"""`unpack` for an ordinary user: runs as root of his own user namespace, so that files get the image's owners.

Without subordinate ids all files belong to the user. The child runs this module as a program. It reads the archive
from stdin, takes the target and the allowance as arguments, and prints the remaining allowance or the error as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from belljar import user_namespace
from belljar.errors import ImageInvalid
from belljar.images.unpack import CHUNK, Allowance, Metered, unpack


def unpack_for_caller(stream: Metered, target: Path, allowance: Allowance) -> None:
    if os.geteuid() == 0 or user_namespace.missing_requirements() is not None:
        unpack(stream, target, allowance)
        return
    program = [
        sys.executable,
        "-P",
        "-m",
        __spec__.name,
        str(target),
        json.dumps(asdict(allowance)),
    ]
    command, descriptors = user_namespace.command(program)
    with subprocess.Popen(
        command, pass_fds=descriptors, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stream.in_header = False
        with suppress(BrokenPipeError), child.stdin:
            while data := stream.read(CHUNK):
                child.stdin.write(data)
        answer = child.stdout.read()
    if child.returncode:
        raise ImageInvalid("the archive cannot be unpacked")
    result = json.loads(answer)
    if "error" in result:
        raise ImageInvalid(result["error"])
    for name, left in result.items():
        setattr(allowance, name, left)


def main(target: str, allowed: str) -> None:
    allowance = Allowance(**json.loads(allowed))
    try:
        unpack(
            Metered(sys.stdin.buffer, sys.maxsize, hashed=False),
            Path(target),
            allowance,
        )
        answer: dict[str, object] = asdict(allowance)
    except ImageInvalid as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
