"""Roles of arguments that are files. policies/README.md lists the roles."""

import re

from belljar.patterns import lazy_pattern

from .marks import (
    ATOM,
    FILE,
    NETWORK,
    PRIVATE,
    SENSITIVE,
    STAR,
    UNKNOWN,
    drop_unset,
    has,
    known,
    taints,
)
from .paths import resolve
from .reading import WORD_ROLES, Reading

REMOTE = lazy_pattern(r"(?:[\w.@-]+:(?!//)|rsync://|s3:|gs:)")


def read(reading: Reading, path: str) -> None:
    reading.add_content(reading.call.read(path))


def pack(reading: Reading, path: str) -> None:
    """Put into an archive. A whole home, system or workspace holds something private."""
    reading.add_content(reading.call.read_all(path, "system", "workspace_root"))


def view(reading: Reading, path: str) -> None:
    """Shown in part, which matters only for credentials."""
    if reading.call.locate(path)[1] == "secret" and "/" in path:
        read(reading, path)


def write(reading: Reading, path: str, *flags: str) -> None:
    text = reading.content if reading.inputs else reading.call.stdin
    if path[:1] in ("|", "!"):
        reading.call.shell(path[1:])
    else:
        reading.call.write(path, text or FILE, *reading.flags, *flags)


def touch(reading: Reading, path: str, kind: str = "write") -> None:
    full, place, flags = reading.call.locate(path)
    reading.call.machine.emit(
        kind if place != "exec_hook" else "write", full, place, flags | {"append"}
    )


def move(reading: Reading, path: str) -> None:
    inside = ("workspace", "workspace_root", "unknown")
    outside = (
        ["outside"] if reading.call.locate(reading.destination)[1] not in inside else []
    )
    reading.sources.append(
        (path, reading.call.machine.read_file(path, reading.call.state))
    )
    reading.call.delete(path, "moved", "recursive", *outside)


def copy(reading: Reading, path: str) -> None:
    call = reading.call
    if "folders" in reading.flags:
        call.change(path, "mode", "recursive", *(["locked"] if reading.mode else []))
    elif REMOTE.match(drop_unset(path)) and "remote" in reading.entry.traits:
        call.emit("net.fetch", path)
        reading.sources.append((path, NETWORK))
    else:
        reading.sources.append((path, call.read(path)))
        if "remove" in reading.flags:
            call.delete(path, "recursive")


def destination(reading: Reading, target: str) -> None:
    """Where files are moved or copied to: a file, or a directory."""
    call = reading.call
    if "folders" in reading.flags:
        copy(reading, target)
        return
    remote = REMOTE.match(drop_unset(target)) and "remote" in reading.entry.traits
    for path, text in reading.sources:
        if remote:
            call.send(
                SENSITIVE if call.is_whole_place(path, "system") else text or "", target
            )
            continue
        whole = "contents" in reading.flags or (
            call.name == "rsync" and path.endswith("/")
        )
        _arrive(
            reading,
            f"{path.rstrip('/')}/{STAR}" if whole else path,
            target,
            FILE if text is None else text,
        )
    if "mirror" in reading.flags and not remote:
        call.delete(target, "recursive")


def _arrive(reading: Reading, source: str, target: str, text: str) -> None:
    call = reading.call
    full, kind, flags = call.locate(target)
    if call.locate(source)[0] in ("/dev/null", "/dev/zero", "/dev/urandom"):
        call.write(target, "", "truncate")
        return
    inside = (
        target.rstrip("/") + "/" + (re.split(r"[/:]", source.rstrip("/"))[-1] or ATOM)
    )
    below = call.locate(source.removesuffix(f"/{STAR}"))[0] + "/"
    for name in [name for name in call.state.files if name.startswith(below)][
        :100
    ]:  # files of this command
        place = target if re.search(rf"/[.{STAR}]?$", source) else inside
        call.write(f"{place}/{name.removeprefix(below)}", call.state.files[name])
    home = kind == "home" and not flags & {"inner", "child"}
    into = (
        target.endswith("/")
        or kind in ("workspace_root", "root")
        or "top" in flags
        or target in (".", "..", "~")
    )
    call.write(inside if into or home else target, text)
    if re.match(r"(/usr)?(/local)?/s?bin/[^/]+$", drop_unset(source)):
        call.state.links[full] = drop_unset(
            source
        )  # a copy of a program is that program
    call.state.files[call.locate(inside)[0]] = text


def link(reading: Reading, source: str) -> None:
    reading.sources.append((source, None))
    _, kind, flags = reading.call.locate(source)
    if (
        kind in ("secret", "root") or "engine" in flags
    ) and "symbolic" not in reading.flags:
        reading.call.read(source)
    if len(reading.rest) == 1:
        link_name(reading, ".")


def link_name(reading: Reading, name: str) -> None:
    call = reading.call
    source = reading.sources[0][0] if reading.sources else ""
    if call.locate(name)[1] == "workspace_root" or name.rstrip("/") in (".", ".."):
        name = name.rstrip("/") + "/" + source.rstrip("/").rsplit("/", 1)[-1]
    full, kind, flags = call.locate(name)
    call.machine.emit("write", full, kind, flags | {"link"}, call.name)
    base = full.rsplit("/", 1)[0] or "/"
    call.state.links[full] = resolve(
        source, base if "symbolic" in reading.flags else call.state.cwd
    )


def setuid(mode: str) -> bool:
    """Whether a mode (or a list of modes) sets the setuid bit of files; rsync's D is for directories."""
    modes = [
        part.removeprefix("F")
        for part in drop_unset(mode).split(",")
        if part[:1] != "D"
    ]
    return any(
        re.match(r"0*[4-7][0-7]{3}$|(?!g+[+=])[ugoa]*[+=][rwxXt]*s", part)
        for part in modes
    )


def mode(reading: Reading, text: str) -> None:
    reading.mode = drop_unset(text)
    if setuid(reading.mode) and "folders" not in reading.flags:
        reading.call.emit("privilege.setuid")


def chmod(reading: Reading, path: str) -> None:
    """Flags: `open` (others may write), `locked` (its owner may not read it)."""
    bits = reading.mode
    flags = ["mode", *reading.flags]
    flags += ["open"] if re.search(r"777|666|[ao]\+\w*w|^\+\w*w", bits) else []
    locks = re.match(r"0*[0-3]?[0-7]{0,2}$|[ua]*-\w*[rwx]|[ua]*=(,|$)", bits)
    flags += (
        ["locked"] if locks or (not known(bits) and "reference" not in flags) else []
    )
    flags += ["executable"] if "x" in bits or re.search(r"[1357]", bits) else []
    reading.call.change(path, *flags)


def owner(reading: Reading, text: str) -> None:
    """Somebody else, unless it is computed at run time or the user of the sandbox."""
    name = re.split("[:.]", drop_unset(text))[0]
    reading.mode = "" if not known(name) or name in ("sandbox", "1000", "") else "owner"
    if name in ("root", "0"):
        reading.call.emit("privilege.chown")


def fifo(reading: Reading, path: str) -> None:
    reading.call.machine.fifos = True
    touch(reading, path)
    reading.call.state.files[reading.call.locate(path)[0]] = UNKNOWN


def device(reading: Reading, path: str) -> None:
    """A disk. A file system in an ordinary file is harmless."""
    ordinary = reading.call.locate(path)[1] in ("workspace", "scratch") and re.search(
        r"/|\.\w+$", path
    )
    if path and not path.isdecimal() and not ordinary:
        reading.call.emit("device.format")


def upload(reading: Reading, path: str) -> None:
    text = (
        reading.call.read_all(path)
        if "://" not in path and ("/" in path or "." in path)
        else path
    )
    if has(text, PRIVATE):
        reading.call.emit("net.send", path, "sensitive")


def tar(reading: Reading, _: str) -> None:
    """tar and cpio: which files they pack, or where they unpack."""
    call = reading.call
    options = reading.options
    flags = reading.flags
    archive = options.get("f", "file")
    folder = options.get("C", "directory", "D", "one-top-level")
    listed = [
        line
        for path in options.all("T", "files-from")
        for line in call.read(path).splitlines()
        if known(line)
    ]
    paths = [
        path if not folder or path[0] == "/" else f"{folder}/{path}"
        for path in [*reading.rest, *listed]
        if path
    ]
    if "create" in flags and "extract" not in flags:
        text = (
            taints(
                "".join(
                    call.read_all(path, "system", "workspace_root") for path in paths
                )
            )
            or FILE
        )
        for path in paths if "remove" in flags else []:
            call.delete(path, "recursive")
        if archive in ("", "-"):
            reading.output += text
        else:
            call.write(archive, text)
    elif "extract" in flags:
        text = call.read(archive) if archive not in ("", "-") else call.stdin
        if "aside" in flags:
            reading.output += taints(text).replace(FILE, UNKNOWN) or UNKNOWN
            return
        call.unpack(folder)
        for path in paths:
            call.write(path)
        if "absolute" in flags:
            call.emit("write.absolute")


def git_tree(reading: Reading, _: str) -> None:
    """git discards changes in a tree; outside the workspace that deletes files."""
    if reading.call.locate(".")[1] not in (
        "workspace",
        "workspace_root",
        "scratch",
        "elsewhere",
        "unknown",
    ):
        reading.call.delete(".", "recursive")


def chdir(reading: Reading, path: str) -> None:
    reading.call.state = reading.call.state.fork()
    reading.call.state.cwd = reading.call.locate(path)[0]


def edit(reading: Reading, path: str) -> None:
    """A file in an editor: written if the editor's commands say so."""
    given = "\n".join([*reading.call.args, reading.call.stdin]).replace(path, "")
    if re.search(r"(?m)(^|[|:\s])(wq?|x|wq!)\s*$", given):
        reading.call.write(path)
    view(reading, path)


WORD_ROLES.update(
    {
        "skip": lambda reading, word: None,  # not a file
        "read": read,
        "pack": pack,
        "view": view,
        "edit": edit,
        "search": lambda reading, path: reading.add_content(
            reading.call.read_all(path)
        ),
        "pattern": lambda reading, word: (  # grep's first operand is a file only if an option gave the pattern
            read(reading, word)
            if reading.options.all("e", "regexp", "f", "file")
            else None
        ),
        "write-if-system": lambda reading, path: (
            reading.call.write(path)
            if reading.call.locate(path)[1] in ("system", "exec_hook")
            else None
        ),
        "load": lambda reading, path: reading.call.load(path),
        "write": write,
        "touch": touch,
        "mkdir": lambda reading, path: touch(reading, path, "mkdir"),
        "rewrite": lambda reading, path: (
            reading.call.write(path, FILE)
            if "aside" not in reading.flags
            else read(reading, path)
        ),
        "append": lambda reading, path: write(reading, path, "append"),
        "truncate": lambda reading, path: write(reading, path, "truncate"),
        "tee": lambda reading, path: reading.call.write(
            path,
            reading.call.stdin,
            "append" if "append" in reading.flags else "truncate",
        ),
        "save": lambda reading, path: (
            reading.call.write(path, reading.content or NETWORK)
            if path not in ("-", "/dev/stdout")
            else None
        ),
        "archive": lambda reading, path: (
            reading.call.write(path, taints(reading.content) or FILE)
            if path != "-"
            else None
        ),
        "pieces": lambda reading, path: reading.call.write(
            f"{path}aa", reading.content or reading.call.stdin
        ),
        "delete": lambda reading, path: (
            reading.call.delete(path, *reading.flags) if path else None
        ),
        "wipe": lambda reading, path: reading.call.delete(path, "wipe"),
        "delete-tree": lambda reading, path: (
            reading.call.delete(path, "recursive", *reading.flags) if path else None
        ),
        "move": move,
        "copy": copy,
        "destination": destination,
        "link": link,
        "link-name": link_name,
        "mode": mode,
        "chmod": chmod,
        "owner": owner,
        "chown": lambda reading, path: reading.call.change(
            path, *filter(None, [reading.mode]), *reading.flags
        ),
        "alter": lambda reading, path: reading.call.change(
            path, "owner", *reading.flags
        ),
        "extract-to": lambda reading, path: reading.call.unpack(path),
        "clone-into": lambda reading, path: (
            reading.call.unpack(path) if path.startswith(("/", "..", "~")) else None
        ),
        "serve": lambda reading, path: (
            reading.call.serve(path) if path[:1] in "/~." else None
        ),
        "fifo": fifo,
        "device": device,
        "upload": upload,
        "git-tree": git_tree,
        "tar": tar,
        "chdir": chdir,
    }
)
