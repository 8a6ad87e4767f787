"""Roles of arguments that are files: read, written, deleted, moved, copied, linked, changed, unpacked."""

import re

from .marks import ATOM, FILE, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, has, known, solid, taints
from .paths import resolve
from .reading import Reading, role

REMOTE = re.compile(r"(?:[\w.@-]+:(?!//)|rsync://|s3:|gs:)")
_COMPRESSED = {"gzip": "gz", "bzip2": "bz2", "xz": "xz", "zstd": "zst", "compress": "Z"}


@role("skip")
def skip(reading: Reading, word: str) -> None:
    """It is a name, a number, a pattern: no file."""


@role("read")
def read(reading: Reading, path: str) -> None:
    reading.content, reading.inputs = reading.content + reading.call.read(path), reading.inputs + 1


@role("take")
def take(reading: Reading, path: str) -> None:
    """Into an archive: a whole home, system or workspace holds something private."""
    reading.content += reading.call.take(path, "system", "workspace_root")
    reading.inputs += 1
    reading.call.pack("", [path])


@role("look")
def look(reading: Reading, path: str) -> None:
    """Only some of it is shown, which matters where it is a credential."""
    if reading.call.locate(path)[1] == "secret" and "/" in path:
        read(reading, path)


@role("search")
def search(reading: Reading, path: str) -> None:
    """A search through a home or all of the machine for keys finds keys."""
    _, kind, flags = reading.call.locate(path)
    if (
        kind in ("home", "root")
        and "inner" not in flags
        and re.search(r"(?i)key|secret|passw|token|BEGIN", reading.text)
    ):
        reading.call.machine.emit("read", path, "secret", program=reading.call.name)
        reading.content, reading.inputs = SECRET, 1
        return
    read(reading, path)


@role("load")
def load(reading: Reading, path: str) -> None:
    reading.call.load(path)


def _write(reading: Reading, path: str, *flags: str) -> None:
    if path[:1] in ("|", "!"):
        reading.call.shell(path[1:])
        return
    text = reading.content if reading.inputs else reading.call.stdin
    reading.call.write(path, text or FILE, *reading.flags, *flags)


@role("write")
def write(reading: Reading, path: str) -> None:
    _write(reading, path)


@role("append")
def append(reading: Reading, path: str) -> None:
    _write(reading, path, "append")


@role("touch")
def touch(reading: Reading, path: str) -> None:
    full, kind, flags = reading.call.locate(path)
    reading.call.machine.emit("write", full, kind, flags | {"append"}, reading.call.name)


@role("truncate")
def truncate(reading: Reading, path: str) -> None:
    _write(reading, path, "truncate")


@role("tee")
def tee(reading: Reading, path: str) -> None:
    reading.call.write(path, reading.call.stdin, "append" if "append" in reading.flags else "truncate")


@role("save")
def save(reading: Reading, path: str) -> None:
    """What came from the network goes to a file."""
    reading.call.write(path, reading.content or NETWORK) if path not in ("-", "/dev/stdout") else None


@role("rewrite")
def rewrite(reading: Reading, path: str) -> None:
    """Compressed in place, unless the output goes elsewhere."""
    read(reading, path)
    if "aside" not in reading.flags:
        held = reading.call.machine.read_file(path, reading.call.state)
        reading.call.write(path, held if held is not None else UNKNOWN)
        reading.call.write(f"{path}.{_COMPRESSED.get(reading.call.name, 'gz')}", held) if held else None


@role("private")
def private(reading: Reading, path: str) -> None:
    """A file that is made for its owner; written only where it matters."""
    if reading.call.locate(path)[1] in ("system", "exec_hook"):
        reading.call.write(path)


@role("folder")
def folder(reading: Reading, path: str) -> None:
    full, kind, flags = reading.call.locate(path)
    if kind == "exec_hook" or full.startswith("/sys/fs/cgroup"):
        reading.call.write(path)
    else:
        reading.call.machine.emit("mkdir", full, kind, flags, reading.call.name)


@role("delete")
def delete(reading: Reading, path: str) -> None:
    if not path:
        return
    if re.fullmatch(rf"(\./)?[A-Za-z0-9]{STAR}", path) and reading.rest.index(path) == 8:
        path = STAR  # a*, b*, c* …
    reading.call.delete(path, *reading.flags)
    if "wipe" in reading.flags:
        reading.call.write(path, "", "wipe")


@role("wreck")
def wreck(reading: Reading, path: str) -> None:
    reading.call.delete(path, "recursive", *reading.flags) if path else None


@role("move")
def move(reading: Reading, path: str) -> None:
    inside = ("workspace", "workspace_root", "unknown")
    outside = ["outside"] if reading.call.locate(reading.destination)[1] not in inside else []
    reading.sources.append((path, reading.call.machine.read_file(path, reading.call.state)))
    reading.call.delete(path, "moved", "recursive", *outside)


@role("copy")
def copy(reading: Reading, path: str) -> None:
    if REMOTE.match(solid(path)) and "remote" in reading.entry.traits:
        reading.call.emit("net.fetch", path)
        reading.sources.append((path, NETWORK))
        return
    if "folders" in reading.flags:
        reading.call.change(path, "mode", "recursive", *(["locked"] if reading.mode else []))
        return
    text = reading.call.read(path)
    if "remove" in reading.flags:
        reading.call.delete(path, "recursive")
    reading.sources.append((path, text))


@role("arrive")
def arrive(reading: Reading, target: str) -> None:
    """What was moved or copied comes to a place: onto it, or into it where it is a directory."""
    call = reading.call
    if "folders" in reading.flags:
        copy(reading, target)
        return
    if REMOTE.match(solid(target)) and "remote" in reading.entry.traits:
        for path, text in reading.sources:
            call.send(SENSITIVE if call.whole(path, "system") else text or "", target)
        return
    for path, text in reading.sources:
        whole = "contents" in reading.flags or (call.name == "rsync" and path.endswith("/"))
        _arrived(reading, f"{path.rstrip('/')}/{STAR}" if whole else path, target, text if text is not None else FILE)
    if "mirror" in reading.flags:
        call.delete(target, "recursive")


def _arrived(reading: Reading, source: str, target: str, text: str) -> None:
    call = reading.call
    full, kind, flags = call.locate(target)
    if "sink" in flags:
        return
    if call.locate(source)[0] in ("/dev/null", "/dev/zero", "/dev/urandom"):
        call.write(target, "", "truncate")
        return
    inside = target.rstrip("/") + "/" + (re.split(r"[/:]", source.rstrip("/"))[-1] or ATOM)
    below = call.locate(source.removesuffix(f"/{STAR}"))[0] + "/"
    place = target if re.search(rf"/[.{STAR}]?$", source) else inside
    for name in [name for name in call.state.files if name.startswith(below)][:100]:
        call.write(f"{place}/{name.removeprefix(below)}", call.state.files[name])
    home = kind == "home" and not flags & {"inner", "child"}
    if home and inside.endswith(f"/.{STAR}"):
        inside = target.rstrip("/") + "/.bashrc"
    folder = target.endswith("/") or kind in ("workspace_root", "root") or "top" in flags or target in (".", "..", "~")
    call.write(inside if folder or home else target, text)
    if re.match(r"(/usr)?(/local)?/s?bin/[^/]+$", solid(source)):
        call.state.links[full] = solid(source)  # a copy of a program under another name is that program
    call.state.files[resolve(inside, call.state.cwd, call.state.links, call.state.home())] = text


@role("link")
def link(reading: Reading, source: str) -> None:
    reading.sources.append((source, None))
    _, kind, flags = reading.call.locate(source)
    if (kind in ("secret", "root") or "engine" in flags) and "symbolic" not in reading.flags:
        reading.call.read(source)
    if len(reading.rest) == 1:
        linked(reading, ".")


@role("linked")
def linked(reading: Reading, name: str) -> None:
    call, source = reading.call, reading.sources[0][0] if reading.sources else ""
    if call.locate(name)[1] == "workspace_root" or "top" in call.locate(name)[2] or name.rstrip("/") in (".", ".."):
        name = name.rstrip("/") + "/" + source.rstrip("/").rsplit("/", 1)[-1]
    full, kind, flags = call.locate(name)
    call.machine.emit("write", full, kind, flags | {"link"}, call.name)
    base = full.rsplit("/", 1)[0] or "/"
    call.state.links[full] = resolve(source, base if "symbolic" in reading.flags else call.state.cwd)
    made = call.machine.read_file(source, call.state)
    if made is not None:
        call.state.files[full] = made


def setuid(mode: str) -> bool:
    """Whether a mode, or a list of them, sets such a bit (rsync's D: on directories only)."""
    modes = [part.removeprefix("F") for part in solid(mode).split(",") if part[:1] != "D"]
    return any(re.fullmatch(r"0*[2-7][0-7]{3}", part) or re.search(r"[+=][rwxXt]*s", part) for part in modes)


@role("mode")
def mode(reading: Reading, text: str) -> None:
    reading.mode = solid(text)
    if setuid(reading.mode) and "folders" not in reading.flags:
        reading.call.emit("privilege.setuid")


@role("chmod")
def chmod(reading: Reading, path: str) -> None:
    """`open`: others may write. `locked`: its owner may no longer read it."""
    flags = list(reading.flags)
    bits = reading.mode
    if re.search(r"777|666|[ao]\+\w*w|^\+\w*w", bits):
        flags.append("open")
    if re.match(r"0*[0-3]?[0-7]{0,2}$|[ua]*-\w*[rwx]|[ua]*=(,|$)", bits) or (
        not known(bits) and "reference" not in flags
    ):
        flags.append("locked")
    if "x" in bits or re.search(r"[1357]", bits):
        flags.append("executable")
    reading.call.change(path, "mode", *flags)


@role("owner")
def owner(reading: Reading, text: str) -> None:
    """Somebody else's, unless it is worked out at run time or the sandbox's own user."""
    name = solid(text).partition(":")[0].partition(".")[0]
    reading.mode = "" if not known(name) or name in ("sandbox", "1000", "") else "owner"
    if name in ("root", "0"):
        reading.call.emit("privilege.chown")


@role("chown")
def chown(reading: Reading, path: str) -> None:
    reading.call.change(path, *([reading.mode] if reading.mode else []), *reading.flags)


@role("alter")
def alter(reading: Reading, path: str) -> None:
    reading.call.change(path, "owner", *reading.flags)


@role("extract")
def extract(reading: Reading, folder: str) -> None:
    reading.call.unpack(folder)


@role("fifo")
def fifo(reading: Reading, path: str) -> None:
    reading.call.machine.fifos = True
    touch(reading, path)
    reading.call.state.files[reading.call.locate(path)[0]] = UNKNOWN


@role("pieces")
def pieces(reading: Reading, path: str) -> None:
    """The first of the files that split makes holds all of it: `cat path*`."""
    reading.call.write(f"{path}aa", reading.content or reading.call.stdin)


@role("archive")
def archive(reading: Reading, path: str) -> None:
    packed = taints(reading.content)
    reading.call.write(path, packed or FILE) if path != "-" else None


@role("device")
def device(reading: Reading, path: str) -> None:
    """A file system made in an ordinary file is that file's business."""
    place = reading.call.locate(path)[1]
    if path.isdecimal() or not path:
        return
    if place not in ("workspace", "scratch") or not re.search(r"/|\.\w+$", path):
        reading.call.emit("device.format")


@role("serve")
def serve(reading: Reading, path: str) -> None:
    reading.call.serve(path) if path[:1] in "/~." else None


@role("upload")
def upload(reading: Reading, path: str) -> None:
    text = reading.call.take(path) if "://" not in path and ("/" in path or "." in path) else path
    if has(text, SECRET + SENSITIVE):
        reading.call.emit("net.send", path, "sensitive")


@role("git-tree")
def git_tree(reading: Reading, _: str) -> None:
    """git throws away what is in a tree that is not the workspace's."""
    if reading.call.locate(".")[1] not in ("workspace", "workspace_root", "scratch", "elsewhere", "unknown"):
        reading.call.delete(".", "recursive")


@role("chdir")
def chdir(reading: Reading, folder: str) -> None:
    reading.call.state = reading.call.state.fork()
    reading.call.state.cwd = reading.call.locate(folder)[0]


@role("wipe")
def wipe(reading: Reading, path: str) -> None:
    reading.call.delete(path, "wipe")
    reading.call.write(path, "", "wipe")


@role("minus-mode")
def minus_mode(reading: Reading, text: str) -> None:
    """`chmod -x file`: the mode looks like options."""
    reading.mode = text
    for path in reading.rest:
        chmod(reading, path)


@role("pattern")
def pattern(reading: Reading, word: str) -> None:
    """The first operand of grep is no file, unless an option gave the pattern."""
    if reading.options.all("e", "regexp", "f", "file"):
        search(reading, word)


@role("edit")
def edit(reading: Reading, path: str) -> None:
    """A file that an editor is told to write."""
    given = "\n".join([*reading.call.args, reading.call.stdin]).replace(path, "")
    if re.search(r"(?m)(^|[|:\s])(wq?|x|wq!)\s*$", given):
        reading.call.write(path)
    look(reading, path)


@role("clone-into")
def clone_into(reading: Reading, path: str) -> None:
    extract(reading, path) if path.startswith(("/", "..", "~")) else None
