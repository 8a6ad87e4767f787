"""Files of a project that programs run: a makefile, package.json, a build script."""

import re
from collections.abc import Mapping

from belljar.patterns import lazy_pattern

from . import expressions
from .call import Call
from .marks import NETWORK
from .paths import HOME

_NAMES = lazy_pattern(r"(?<!\w)(?:pre|post)?([\w./%-]+)")


def judge_written(call: Call, runs: Mapping[str, str]) -> None:
    """Judge those of these files, by name and language, that this command wrote."""
    for names, language in runs.items():
        for path, text in list(call.state.files.items()):
            file = f"{language} {path} {text}"
            if file not in call.machine.scanned and re.search(
                rf"(^|/)({names})$", path
            ):
                call.machine.scanned.add(file)
                if language != "lines":
                    call.scan(language, text, [])
                else:
                    targets(call, text)


def targets(call: Call, text: str) -> None:
    """Judge the commands in a makefile, package.json or the like: those of the targets in the arguments, or all."""
    if NETWORK in text:
        call.emit("exec.network", text)
    words = set(call.original.split())
    values = dict(re.findall(r"(?m)^(\w+)\s*[:?]?=\s*(.*?)\s*$", text))
    blocks = re.split(r"(?m)^(?=(?:  )?[\w.%/-]+\s*:(?!=))|,(?=\s*\")", text)
    values = {"RM": "rm -f", "HOME": HOME, **values}
    default = (
        [one for one in blocks if one[:1] != "."][:2]
        if call.name.endswith("make")
        else blocks
    )
    for _ in range(
        3
    ):  # the targets in the arguments (or the first), and what they need
        chosen = [
            block
            for block in blocks
            if words & set(_NAMES.findall(block.partition(":")[0]))
        ] or default
        words |= {word for block in chosen for word in block.partition("\n")[0].split()}
    whole = re.sub(
        r"\$[({](\w+)[)}]", lambda m: values.get(m[1], m[0]), "\n".join(chosen)
    )
    for part in [
        one
        for line in whole.splitlines()[:300]
        for one in (line, *re.split(r"[\"'\[\],]+", line))
    ]:
        part = re.sub(
            r"^[\s@:;-]*(?:[\w.-]+\s*[:=]+\s*)?[@|>;-]*\s*", "", part
        ).replace("$$", "$")
        first = (part.split() or [""])[0]
        command = " " in part and call.is_program(first) and ":" not in first
        if command or expressions.begins("suspect", part):
            call.shell_if_bash(part)
