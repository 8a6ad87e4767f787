"""What a workspace's devcontainer.json asks for, as far as a sandbox gives it. Nothing is carried out here.

The file comes with the workspace, so an agent or a stranger may have written it: only these parts are read, with their
types checked, and all else is named to the user as ignored. Mounts, run arguments, privileges and features are never
given: they would open the sandbox.
"""

from __future__ import annotations

import json
import posixpath
import reprlib
import shlex
from collections.abc import Mapping
from typing import Any

from belljar.errors import UsageError
from belljar.patterns import lazy_pattern
from belljar.records import record

PLACES = (".devcontainer/devcontainer.json", ".devcontainer.json")
LARGEST = 1 << 20
_FOLDER = "/workspace"
_KNOWN = {
    "name",
    "$schema",
    "image",
    "build",
    "dockerFile",
    "context",
    "postCreateCommand",
    "containerEnv",
}
_BUILD = {"dockerfile", "context", "args"}
_TOKEN = lazy_pattern(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?')
_COMMA = lazy_pattern(r'"(?:\\.|[^"\\\n])*"?|,(?=\s*[}\]])')
_IMAGE = lazy_pattern(r"[A-Za-z0-9][\w.:/@-]{0,254}")
_VARIABLE = lazy_pattern(r"[A-Za-z_]\w{0,254}")


@record
class Build:
    dockerfile: str
    context: str
    """Both from the top of the workspace."""
    arguments: Mapping[str, str]


@record
class Devcontainer:
    place: str
    image: str | None
    build: Build | None
    env: Mapping[str, str]
    after_create: tuple[str, ...]
    """Commands for bash, one after the other."""
    ignored: tuple[str, ...]


def parse(text: str, place: str) -> Devcontainer:
    """UsageError names what is wrong with the file."""
    document = _object(_plain(text, place), place)
    ignored = [key for key in document if key not in _KNOWN]
    image = _image(document.get("image"), place)
    build = _build(document, place, ignored)
    if image is not None and build is not None:
        raise UsageError(f"{place} has both an image and a build: which is it?")
    env = {}
    for name, value in _texts(
        document.get("containerEnv"), f"{place}: containerEnv"
    ).items():
        value = value.replace("${containerWorkspaceFolder}", _FOLDER)
        if "${" in value or not _VARIABLE.fullmatch(name):
            ignored.append(
                f"containerEnv.{name}"
            )  # it may ask for a secret of this machine
        else:
            env[name] = value
    commands = _commands(
        document.get("postCreateCommand"), f"{place}: postCreateCommand"
    )
    return Devcontainer(place, image, build, env, commands, tuple(ignored))


def _plain(text: str, place: str) -> Any:
    """JSON as editors write it: with comments, and commas before a closing bracket."""
    for pattern in (_TOKEN, _COMMA):
        text = pattern.sub(
            lambda found: found[0] if found[0].startswith('"') else "", text
        )
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # has no halves of pairs
        return found
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {error}") from None


def _image(value: Any, place: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _IMAGE.fullmatch(value):
        raise UsageError(f"{place}: {reprlib.repr(value)} is not the name of an image")
    return value


def _build(document: dict[str, Any], place: str, ignored: list[str]) -> Build | None:
    older = {
        key: document[each]
        for each, key in (("dockerFile", "dockerfile"), ("context", "context"))
        if each in document
    }
    if "build" not in document and "dockerfile" not in older:
        return None
    settings = _object(document.get("build", older), f"{place}: build")
    ignored += [f"build.{key}" for key in settings if key not in _BUILD]
    dockerfile = _below(settings.get("dockerfile"), f"{place}: build.dockerfile", place)
    context = _below(settings.get("context", "."), f"{place}: build.context", place)
    return Build(
        dockerfile, context, _texts(settings.get("args"), f"{place}: build.args")
    )


def _below(value: Any, what: str, place: str) -> str:
    """A path from the top of the workspace; in the file it is relative to the file's own folder."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError(f"{what} is not a path")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), value))
    if path.startswith(("/", "../")) or path == "..":
        raise UsageError(f"{what} leads out of the workspace: {reprlib.repr(value)}")
    return path


def _commands(value: Any, what: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, dict):  # an editor would run them side by side
        return tuple(_command(each, what) for each in value.values())
    return (_command(value, what),)


def _command(value: Any, what: str) -> str:
    words = value if isinstance(value, list) else [value]
    if words and all(isinstance(each, str) and "\0" not in each for each in words):
        return value if isinstance(value, str) else shlex.join(words)
    raise UsageError(
        f"{what} is neither a text, nor a list of texts, nor an object of these"
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} is not an object")
    return value


def _texts(value: Any, what: str) -> dict[str, str]:
    found = _object({} if value is None else value, what)
    for name, text in found.items():
        if not isinstance(text, str) or "\0" in name + text:
            raise UsageError(f"{what}.{name} is not a text")
    return dict(found)
