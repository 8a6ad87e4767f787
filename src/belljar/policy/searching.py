"""find, xargs and parallel: commands run on what was found."""

import re
import shlex

from .call import Call, Options, program
from .compound import Feed
from .marks import ATOM, SELF, STAR, has, has_glob, known, solid, unglob
from .quoting import ansi_c, backslashes, listed, whole


@program("xargs gxargs")
def _xargs(call: Call) -> str:
    options = call.options(
        "aEILnPsd", ("arg-file", "max-args", "max-procs", "delimiter", "replace", "max-lines"), posix=True
    )
    text = call.read(options.get("a", "arg-file")) if options.get("a", "arg-file") else call.stdin
    items = _items(text, options) or ([] if text else [ATOM])
    words = options.rest or ["echo"]
    if SELF in text and options.get("P", "max-procs") == "0":
        call.emit("process.forkbomb")
    token = options.get("I", "replace") or ("{}" if options.has("i", "replace") else "")
    out = ""
    if token:
        for item in items:
            out += call.run([word.replace(token, item) for word in words], Feed())
        return out
    size = (
        whole(options.get("n", "max-args", "L", "max-lines") or "0")
        if (options.get("n", "max-args", "L", "max-lines") or "0").isdecimal()
        else 0
    )
    for start in range(0, max(1, len(items)), size or 200):
        out += call.run(words + items[start : start + (size or 200)], Feed())
    return out


def _items(text: str, options: Options) -> list[str]:
    if options.has("0", "null"):
        listing = "\0" not in text and (has_glob(text) or not known(text))  # find prints paths, however it ends them
        return [item for item in re.split(r"\n" if listing else r"\0", text) if item]
    delimiter = options.get("d", "delimiter")
    if delimiter:
        return [item for item in text.rstrip("\n").split(ansi_c(delimiter)) if item]
    if "I" in options.values or "replace" in options.values or "i" in options.flags:
        return [line.strip() for line in text.splitlines() if line.strip()]
    if re.search(r"['\"\\]", text) and known(text):
        try:
            return shlex.split(text)
        except ValueError:
            pass
    return text.split()


@program("parallel rush")
def _parallel(call: Call) -> str:
    words, _, literal = ("\0" + "\0".join(call.args)).partition("\0:::\0")
    words, _, files = words.partition("\0::::\0")
    words = words.lstrip("\0")
    argv = words.split("\0") if words else []
    call.args = argv
    options = call.options(
        "jNna", ("jobs", "arg-file", "colsep", "max-args", "results", "joblog", "timeout"), posix=True
    )
    if options.has("pipe", "spreadstdin"):
        return call.run(options.rest)
    listed = [
        line
        for path in [*options.all("a", "arg-file"), *filter(None, files.split("\0"))]
        for line in call.read(path).splitlines()
    ]
    items = literal.split("\0") if literal else listed or [line for line in call.stdin.splitlines() if line] or [ATOM]
    command = " ".join(options.rest)
    if not command:
        return "".join(call.shell(item) for item in items)
    return "".join(call.shell(command.replace("{}", item) if "{" in command else f"{command} {item}") for item in items)


@program("find gfind")
def _find(call: Call) -> str:
    roots = []
    args = list(call.args)
    while (args and args[0] in ("-H", "-L", "-P")) or (args and args[0].startswith("-O")):
        args.pop(0)
    while args and not re.match(r"-|\(|!|\\\(", solid(args[0])):
        roots.append(args.pop(0))
    roots = roots or ["."]
    narrow = _narrows(args)
    name = next((unglob(args[index + 1]) for index, arg in enumerate(args[:-1]) if arg == "-name"), "")
    found = [_secret_found(call, root, args) or _found(root, narrow, name) for root in roots]
    for index, arg in enumerate(args):
        if arg == "-delete":
            for root in roots:
                call.delete(_found(root, narrow, name), "recursive")
        elif arg in ("-exec", "-execdir", "-ok", "-okdir"):
            _find_exec(call, args[index + 1 :], found)
        elif arg in ("-fprint", "-fprintf", "-fprint0", "-fls") and index + 1 < len(args):
            call.write(args[index + 1])
        elif arg == "-files0-from" and index + 1 < len(args):
            call.read(args[index + 1])
    printed = [args[index + 1] for index, arg in enumerate(args[:-1]) if arg == "-printf"]
    if printed:
        return backslashes(re.sub(r"%\S", ATOM, unglob(printed[0])))
    return "".join(
        f"{item}\n" + (f"{item.rstrip('/')}/{STAR}\n" if item in roots and not narrow else "") for item in found
    )


def _narrows(args: list[str]) -> bool:
    """Whether a test picks some files out; without one, find takes everything below its root."""
    if "-type" in args[:-1] and args[args.index("-type") + 1] in ("l", "p", "s"):
        return True
    tests = {
        *listed(
            "-name -iname -path -ipath -regex -mtime -mmin -size -newer -empty -user -wholename -iregex "
            "-atime -ctime -perm -cmin -inum -newermt"
        )
    }
    for index, arg in enumerate(args):
        if arg in tests:
            value = unglob(args[index + 1]) if index + 1 < len(args) else ""
            if arg == "-empty" or (
                value.strip("*?./!-+0")
                and not (index and args[index - 1] in ("!", "-not") and arg in ("-name", "-path"))
            ):
                return True
    return False


def _found(root: str, narrow: bool, name: str = "") -> str:
    base = root.rstrip("/") if root.strip("/") else ""
    if not narrow:
        return root
    return f"{base}/{name}" if known(name) and name and not re.search(r"[*?\[]", name) else f"{base}/{ATOM}/{ATOM}"


def _find_exec(call: Call, words: list[str], found: list[str]) -> None:
    if words[:1] and words[0] in ("chown", "chgrp") and found and not has(found[0], ATOM):
        words = [words[0], "-R", *words[1:]]
    elif (
        words[:1] == ["chmod"]
        and found
        and not has(found[0], ATOM)
        and re.search(r"^0+$|777|666|[ao]\+\w*w|^[ago]*-", words[1] if len(words) > 1 else "")
    ):
        words = ["chmod", "-R", *words[1:]]
    end = next((i for i, word in enumerate(words) if word in (";", "+", "\\;")), len(words))
    for item in found:
        call.run([word.replace("{}", item) for word in words[:end]], Feed())


@program("locate mlocate plocate")
def _locate(call: Call) -> str:
    return (_secret_found(call, "/", call.options("nld").rest) or f"/{ATOM}/{ATOM}") + "\n"


def _secret_found(call: Call, root: str, args: list[str]) -> str:
    """A search for keys in homes or the whole system finds keys."""
    full, kind, _ = call.locate(root)
    names = unglob(" ".join(args))
    if kind in ("root", "home", "system", "kernel", "secret"):
        if re.search(
            r"id_|\.pem|\.key\b|credential|\.aws|\.ssh|\.netrc|\.kube|\.pgpass|\.git-cred|\.gnupg|token|"
            r"secret|passw",
            names,
        ):
            return "/home/sandbox/.ssh/id_rsa"
        if re.search(r"shadow|sudoers", names):
            return "/etc/shadow"
        if "environ" in names and kind in ("kernel", "root"):
            return "/proc/1/environ"
    return full if kind == "secret" else ""
