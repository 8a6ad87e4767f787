"""find, fd, xargs and parallel: they run commands on what they find or read."""

import re

from . import expressions
from .call import Call, Options, program
from .marks import (
    ATOM,
    ENDLESS,
    STAR,
    UNKNOWN,
    drop_unset,
    has,
    has_glob,
    known,
    unglob,
)
from .quoting import ansi_c, backslashes, to_int
from .shellstate import Feed

RUNS = ("-exec", "-execdir", "-ok", "-okdir")


@program("xargs gxargs")
def _xargs(call: Call) -> str:
    call.args = [
        arg.replace("--replace=", "-I") if arg != "--replace" else "-I{}"
        for arg in call.args
    ]
    options = call.options(
        "a E I L n P s d arg-file max-args max-procs delimiter max-lines", True
    )
    text = (
        call.read(options.get("a", "arg-file"))
        if options.get("a", "arg-file")
        else call.stdin
    )
    items = _items(text, options) or ([] if text else [ATOM])
    words = options.rest or ["echo"]
    if ENDLESS in text and options.get("P", "max-procs") == "0":
        call.emit("process.forkbomb")
    if token := options.get("I") or ("{}" if options.has("i") else ""):
        return "".join(
            call.run([word.replace(token, item) for word in words], Feed())
            for item in items
        )
    count = options.get("n", "max-args", "L", "max-lines")
    size = to_int(count) if count.isdecimal() and to_int(count) else 200
    return "".join(
        call.run(words + items[at : at + size], Feed())
        for at in range(0, max(1, len(items)), size)
    )


def _items(text: str, options: Options) -> list[str]:
    if options.has("0", "null"):
        listing = "\0" not in text and (
            has_glob(text) or not known(text)
        )  # output of find
        return [item for item in re.split(r"\n" if listing else r"\0", text) if item]
    delimiter = options.get("d", "delimiter")
    if delimiter:
        return [item for item in text.rstrip("\n").split(ansi_c(delimiter)) if item]
    if "I" in options.values or "i" in options.flags:
        return [line.strip() for line in text.splitlines() if line.strip()]
    return [re.sub(r"['\"\\]", "", word) for word in text.split()]


@program("parallel rush")
def _parallel(call: Call) -> str:
    at = next(
        (at for at, arg in enumerate(call.args) if arg in (":::", "::::")),
        len(call.args),
    )
    given = call.args[at + 1 :]
    files = call.args[at : at + 1] == ["::::"]
    call.args = call.args[:at]
    options = call.options(
        "j N n a jobs arg-file colsep max-args results joblog timeout", True
    )
    if options.has("pipe", "spreadstdin"):
        return call.run(options.rest)
    paths = [*options.all("a", "arg-file"), *(given if files else [])]
    read = [line for path in paths for line in call.read(path).splitlines()]
    items = (
        (given if not files else read)
        or read
        or [line for line in call.stdin.splitlines() if line]
        or [ATOM]
    )
    words = options.rest
    out = ""
    for item in items[:200]:
        filled = [word.replace("{}", item) for word in words]
        out += call.shell(" ".join(filled if filled != words else [*words, item]))
        out += call.run([*words, item]) if words[1:2] == ["-c"] else ""
    return out


@program("find gfind")
def _find(call: Call) -> str:
    roots = []
    args = list(call.args)
    while args and (args[0] in ("-H", "-L", "-P") or args[0].startswith("-O")):
        args.pop(0)
    while args and not re.match(r"-|\(|!|\\\(", drop_unset(args[0])):
        roots.append(args.pop(0))
    args, commands = _apart(args)
    narrow = _narrows(args)
    name = next(
        (
            unglob(args[index + 1])
            for index, arg in enumerate(args[:-1])
            if arg == "-name"
        ),
        "",
    )
    found = [
        _secret_found(call, root, args) or _found_path(root, narrow, name)
        for root in roots or ["."]
    ]
    for index, arg in enumerate(args):
        value = args[index + 1] if index + 1 < len(args) else ""
        if arg == "-delete":
            for path in found:
                call.delete(path, *([] if narrow else ["recursive"]))
        elif arg in RUNS:
            _find_exec(call, commands.pop(0), found)
        elif arg in ("-fprint", "-fprintf", "-fprint0", "-fls") and value:
            call.write(value)
    printed = [
        args[index + 1] for index, arg in enumerate(args[:-1]) if arg == "-printf"
    ]
    if printed:
        return backslashes(re.sub(r"%\S", ATOM, unglob(printed[0])))
    return "".join(
        f"{item.rstrip('/')}/{STAR}\n" if item in roots or item == "." else f"{item}\n"
        for item in found
    )


def _apart(args: list[str]) -> tuple[list[str], list[list[str]]]:
    """The expression without the commands that it runs, and these: a word of theirs is no test and no action."""
    rest = []
    commands = list[list[str]]()
    inside = False
    for word in args:
        if not inside:
            rest.append(word)
            if inside := word in RUNS:
                commands.append([])
        elif word in (";", "\\;") or (
            word == "+" and any(map(_may_be_braces, commands[-1][-1:]))
        ):
            inside = False
        else:
            commands[-1].append(word)
    return rest, commands


def _may_be_braces(word: str) -> bool:
    """Whether a `+` after this word ends a command of find."""
    return word == "{}" or not known(word)


def _narrows(args: list[str]) -> bool:
    """Whether a test selects some files. Without one, find takes everything below its root."""
    for index, arg in enumerate(args):
        value = unglob(args[index + 1]) if index + 1 < len(args) else ""
        negated = (
            index and args[index - 1] in ("!", "-not") and arg in ("-name", "-path")
        )
        tests = expressions.is_a("find_test", arg) and value.strip("*?./!-+0")
        if arg == "-empty" or (tests and not negated):
            return True
    return False


def _found_path(root: str, narrow: bool, name: str = "") -> str:
    if not drop_unset(root):
        return UNKNOWN  # a variable that is not set: any directory
    base = root.rstrip("/") if root.strip("/") else ""
    if not narrow:
        return root
    if known(name) and name and not re.search(r"[*?\[]", name):
        return f"{base}/{name}"
    return f"{base}/{ATOM}/{ATOM}"


def _find_exec(call: Call, words: list[str], found: list[str]) -> None:
    if words[:1] in (["chown"], ["chgrp"], ["chmod"]) and not has(
        found[0], ATOM
    ):  # on everything
        words = [words[0], "-R", *words[1:]]
    for item in found:
        call.run([word.replace("{}", item) for word in words], Feed())


@program("fd fdfind")
def _fd(call: Call) -> str:
    """Read as the find that does the same."""
    at = next(
        (at for at, arg in enumerate(call.args) if re.match(r"-[xX]$|--exec", arg)),
        len(call.args),
    )
    words = [arg for arg in call.args[:at] if arg[:1] != "-"]
    command = call.args[at + 1 :]
    narrow = ["-name", words[0]] if words and words[0].strip(".*^$") else []
    run = (
        ["-exec", *command, *([] if "{}" in command else ["{}"]), ";"]
        if command
        else []
    )
    call.args = [*(words[1:2] or ["."]), *narrow, *run]
    return str(_find(call) or "")


def _secret_found(call: Call, root: str, args: list[str]) -> str:
    """A search for keys in a home or the whole system finds keys."""
    full, kind, _ = call.locate(root)
    names = unglob(" ".join(args))
    if kind not in ("root", "home", "system", "kernel", "secret"):
        return ""
    if expressions.holds("key_file", names):
        return "/home/sandbox/.ssh/id_rsa"
    return full if kind == "secret" else ""
