"""`--devcontainer`: the image, the variables and the first command that the workspace's devcontainer.json asks for.

Its author is not trusted. An image that is not Belljar's, and a build, are shown and asked about, once for each content;
what runs after the start is judged like any command.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from argparse import Namespace
from contextlib import closing
from functools import partial
from pathlib import Path

from belljar import engines, host, resources
from belljar.engines.base import image_store
from belljar.errors import BelljarError, UsageError
from belljar.images import building, catalog, devcontainer
from belljar.images.devcontainer import Devcontainer
from belljar.session.session import Session
from belljar.surfaces.cli import asking, console
from belljar.surfaces.cli.arguments import host_of
from belljar.surfaces.terminal import render
from belljar.workspace.beneath import Folder

AGREED = "devcontainers"


def prepare(args: Namespace) -> None:
    """Put what the file asks for where the command line would have put it."""
    for other in ("image", "snapshot", "session"):
        if other in args.explicit:
            raise UsageError(f"--devcontainer and --{other} do not go together")
    if host.far_of(None) is not None:
        raise UsageError("--devcontainer is for sandboxes of this machine")
    with Folder.at(args.workspace) as workspace:
        asked = _read(workspace)
        if asked.ignored:
            console.note(f"{asked.place}: ignored: {', '.join(asked.ignored)}")
        if asked.build is not None:
            args.image = _built(args, asked, workspace)
        elif asked.image is not None:
            _agree(
                args,
                f"image {asked.image}",
                asked.image,
                [f"use the image {asked.image}"],
            )
            args.image = asked.image
    args.session_env = dict(asked.env)
    args.after_create = asked.after_create


def _read(workspace: Folder) -> Devcontainer:
    for place in devcontainer.PLACES:
        try:
            text = workspace.read(place, devcontainer.LARGEST)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UsageError(f"{place} cannot be read: {error.strerror}") from error
        return devcontainer.parse(text.decode("utf-8", "replace"), place)
    raise UsageError(
        f"there is no {' and no '.join(devcontainer.PLACES)} in the workspace"
    )


def _built(args: Namespace, asked: Devcontainer, workspace: Folder) -> str:
    assert asked.build is not None
    engine = host_of(args).connect()
    store, others = image_store(engine), partial(engines.image_stores_beside, engine)
    try:
        with workspace.folder(asked.build.context) as context:
            place = Path(f"/proc/self/fd/{context.descriptor}")
            dockerfile = os.path.relpath(asked.build.dockerfile, asked.build.context)
            if dockerfile.startswith("../"):
                raise UsageError(
                    f"{asked.place}: the Dockerfile is not in the build's context; "
                    "name a context that holds it"
                )
            order = building.Order(
                _name(args.workspace), place / dockerfile, place, asked.build.arguments
            )
            with building.planned(order) as plan:
                if not building.is_built(store, plan):
                    _agree(
                        args,
                        plan.digest,
                        None,
                        [
                            f"build the image {plan.described(store)}",
                            *_quoted(plan),
                        ],
                    )
                    with closing(console.Bar()) as bar:
                        building.build(store, plan, bar, others)
                return plan.name
    except OSError as error:
        raise UsageError(
            f"{asked.build.context} cannot be read: {error.strerror}"
        ) from error


def _name(workspace: str) -> str:
    path = os.path.realpath(workspace)
    readable = re.sub(r"[^a-z0-9]+", "-", os.path.basename(path).lower()).strip("-")
    return f"devcontainer/{readable[:40] or 'workspace'}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _quoted(plan: building.Planned) -> list[str]:
    """All that decides what is built: an argument may name the image that it begins with."""
    arguments = [f"  with {name}={value}" for name, value in plan.arguments.items()]
    lines = plan.context.text.splitlines()
    return [*arguments, *(f"  | {line}" for line in lines if line.strip())]


def _agree(args: Namespace, content: str, image: str | None, lines: list[str]) -> None:
    """UsageError unless the user agrees now, or agreed to the same content before."""
    if image in catalog.PARENTS:
        return
    key = hashlib.sha256(content.encode()).hexdigest()
    if getattr(args, "yes", False) or resources.is_remembered(AGREED, key):
        return
    console.note("this workspace's devcontainer.json asks to")
    sys.stderr.writelines(f"  {render.plain(line)}\n" for line in lines)
    if not (sys.stdin and sys.stdin.isatty()) or getattr(args, "json", False):
        raise UsageError(
            "nothing was run: what a workspace asks for needs your yes, and nobody can be asked here; --yes agrees"
        )
    sys.stderr.write("do this? [y]es / [n]o: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in asking.YES:
        raise UsageError("nothing was run: you declined")
    resources.remember(AGREED, key)


async def create(box: Session, args: Namespace) -> None:
    """Run what comes first in a new sandbox. Its output goes to stderr: stdout is for the command itself."""
    for command in args.after_create:
        result = await box.run(command)
        sys.stderr.writelines(
            f"{render.plain(line)}\n" for line in result.output.splitlines()
        )
        if result.exit_code:
            raise BelljarError(
                f"postCreateCommand failed ({result.cause}, status {result.exit_code}): {render.plain(command)}"
            )
