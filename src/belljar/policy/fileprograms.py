"""Programs that make, change, move and delete files."""

import re

from .call import Call, program
from .marks import ATOM, FILE, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, has, solid, unglob
from .paths import resolve
from .quoting import listed
from .remotes import ssh_settings


@program("rm unlink rmdir shred srm trash trash-put rimraf wipe del rip gio grm scrub")
def _rm(call: Call) -> str:
    options = call.options("ns" if call.name == "shred" else "")
    recursive = options.has("r", "R", "recursive") or call.name in listed("rimraf srm trash trash-put wipe rip")
    rest = options.rest[1:] if call.name == "gio" else options.rest
    if call.name == "gio" and options.rest[:1] not in (["trash"], ["remove"]):
        return ""
    flags = ["recursive"] if recursive else []
    if call.name in ("shred", "wipe", "scrub"):
        flags.append("wipe")
    if sum(re.fullmatch(rf"(\./)?[A-Za-z0-9]{STAR}", path) is not None for path in rest) > 8:
        rest = [STAR, *rest]
    for path in rest:
        if call.name == "rmdir":
            continue
        call.delete(path, *flags)
        if call.name in ("shred", "wipe", "scrub"):
            call.write(path, "", "wipe")
    return ""


@program("mv gmv rename-all")
def _mv(call: Call) -> str:
    options = call.options("tS", ("target-directory", "suffix"))
    target = options.get("t", "target-directory")
    sources = options.rest if target else options.rest[:-1]
    target = target or (options.rest[-1] if len(options.rest) > 1 else "")
    outside = call.locate(target)[1] not in ("workspace", "workspace_root", "unknown")
    for path in sources:
        text = call.machine.read_file(path, call.state)
        call.delete(path, "moved", "recursive", *(["outside"] if outside else []))
        _arrive(call, path, target, text)
    return ""


def _arrive(call: Call, source: str, target: str, text: str | None) -> None:
    """A file that comes to a place: onto it, or into it where it is a directory."""
    if not target:
        return
    full, kind, flags = call.locate(target)
    inside = target.rstrip("/") + "/" + (re.split(r"[/:]", source.rstrip("/"))[-1] or ATOM)
    if "sink" in flags:
        return
    below = call.locate(source.removesuffix(f"/{STAR}"))[0] + "/"
    place = target if re.search(rf"/[.{STAR}]?$", source) else inside
    for name in [name for name in call.state.files if name.startswith(below)][:100]:
        call.write(f"{place}/{name.removeprefix(below)}", call.state.files[name])
    if call.locate(source)[0] in ("/dev/null", "/dev/zero", "/dev/urandom"):
        call.write(target, "", "truncate")
        return
    if kind == "home" and not flags & {"inner", "child"}:
        if inside.rsplit("/", 1)[-1] == f".{STAR}":
            inside = target.rstrip("/") + "/.bashrc"
        call.write(inside, text if text is not None else FILE)
        return
    copied = re.match(r"(/usr)?(/local)?/s?bin/[^/]+$", solid(source)) is not None
    if kind in ("scratch", "workspace", "workspace_root", "home", "elsewhere", "root") or full in ("/usr/local/bin",):
        is_dir = (
            target.endswith("/")
            or kind in ("workspace_root", "root")
            or "top" in flags
            or re.search(r"/(\.|\.\.)$|^\.\.?$|^~$", target) is not None
        )
        if is_dir:
            call.write(inside, text if text is not None else FILE)
            return
    call.write(target, text if text is not None else FILE)
    if copied:  # a copy of a program under another name is that program
        call.state.links[full] = solid(source)
    if text is not None:
        call.state.files[resolve(inside, call.state.cwd, call.state.links, call.state.home())] = text


@program("cp gcp install ginstall scp rsync ditto rclone")
def _cp(call: Call) -> str:
    if call.name == "rclone":
        if call.args[:1] == ["cat"]:
            return NETWORK
        if call.args[:1] in (["purge"], ["delete"], ["rmdirs"]):
            for path in call.options().rest[1:]:
                call.delete(path, "recursive") if ":" not in path and "/" in path else None
            return ""
        call.args = call.args[1:]
    valued = {
        "cp": "tS",
        "gcp": "tS",
        "install": "tmogS",
        "ginstall": "tmogS",
        "scp": "cFiJloPSDX",
        "rsync": "efBTM",
    }.get(call.name, "")
    long = listed(
        "target-directory suffix mode owner group rsh exclude include filter files-from rsync-path "
        "exclude-from include-from backup-dir log-file chmod chown bwlimit timeout port password-file"
    )
    options = call.options(valued, long)
    if call.name in ("install", "ginstall"):
        if setuid(options.get("m", "mode")) and not options.has("d", "directory"):
            call.emit("privilege.setuid")
        if options.has("d", "directory"):
            for path in options.rest if options.has("m", "mode", "o", "owner", "g", "group") else []:
                call.change(path, "mode", "recursive")
            return ""
    for command in options.all("e", "rsh", "rsync-path") if call.name == "rsync" else []:
        _transport(call, command)
    if call.name == "scp":
        ssh_settings(call, options)
        for command in options.all("S"):
            call.emit("exec.hidden", command)
    target = options.get("t", "target-directory") or (options.rest[-1] if len(options.rest) > 1 else "")
    sources = options.rest if options.get("t", "target-directory") else options.rest[:-1]
    remote = call.name in ("scp", "rsync", "rclone") and re.match(r"(?:[\w.@-]+:|rsync://)", target) is not None
    contents = options.has("T", "no-target-directory")  # not what is named arrives, but what is in it
    for path in sources:
        if re.match(r"(?:[\w.@-]+:|rsync://)", path) and call.name in ("scp", "rsync", "rclone"):
            call.emit("net.fetch", path)
            _arrive(call, path, target, NETWORK) if not remote else None
            continue
        text = call.read(path)
        if remote:
            from .network import sends

            sends(call, SENSITIVE if call.whole(path, "system") else text, target)
        else:
            if has(text, SECRET):
                call.emit("read", path)
            unpacked = contents or (call.name == "rsync" and path.endswith("/"))
            _arrive(call, f"{path.rstrip('/')}/{STAR}" if unpacked else path, target, text)
    if call.name == "rsync" and any(flag.startswith("del") for flag in options.flags) and target and not remote:
        call.delete(target, "recursive")
    if call.name == "rsync" and options.has("remove-source-files"):
        for path in sources:
            call.delete(path, "recursive")
    return ""


def _transport(call: Call, command: str) -> None:
    first = solid(command).split()[:1]
    if first and first[0].rsplit("/", 1)[-1] in ("ssh", "rsync", "sudo"):
        _ssh_command = Call(call.machine, "ssh", solid(command).split()[1:], call.state, call.feed)
        ssh_settings(_ssh_command, _ssh_command.options("oF"))
        if re.search(r"(?i)proxycommand|localcommand", command):
            call.emit("exec.hidden", command)
        return
    call.emit("exec.hidden", command)
    call.shell(unglob(command))


@program("ln gln link symlink")
def _ln(call: Call) -> str:
    options = call.options("tS", ("target-directory", "suffix"))
    if not options.rest:
        return ""
    source = options.rest[0]
    name = options.get("t", "target-directory") or (options.rest[-1] if len(options.rest) > 1 else ".")
    if name.rstrip("/") in (".", "..") or call.locate(name)[1] in ("workspace_root",) or "top" in call.locate(name)[2]:
        name = name.rstrip("/") + "/" + source.rstrip("/").rsplit("/", 1)[-1]
    full, kind, flags = call.locate(name)
    call.machine.emit("write", full, kind, flags | {"link"}, program=call.name)
    target, target_kind, target_flags = call.locate(source)
    if source.startswith("/") or options.has("s", "symbolic"):
        state = call.state
        base = full.rsplit("/", 1)[0] or "/"
        state.links[full] = (
            source if source.startswith("/") else resolve(source, base if options.has("s", "symbolic") else state.cwd)
        )
    if (target_kind in ("secret", "root") or "engine" in target_flags) and not options.has("s", "symbolic"):
        call.machine.emit("read", target, target_kind, program=call.name)
    made = call.machine.read_file(source, call.state)
    if made is not None:
        call.state.files[full] = made
    return ""


@program("dd dcfldd ddrescue")
def _dd(call: Call) -> str | None:
    values = dict(solid(arg).partition("=")[::2] for arg in call.args if "=" in arg)
    text = call.read(values["if"]) if "if" in values else call.stdin
    target = values.get("of")
    if call.name == "ddrescue" and len(call.args) > 1:
        target = call.args[1]
    if target:
        call.write(target, text, "truncate")
        return ""
    return text


@program("tee sponge gtee")
def _tee(call: Call) -> str:
    options = call.options()
    for path in options.rest:
        call.write(path, call.stdin, *(["append"] if options.has("a", "append") else ["truncate"]))
    return call.stdin


@program("touch mkfifo mktemp truncate fallocate mknod split csplit mkdir")
def _make(call: Call) -> str | None:
    if call.name == "mktemp":
        options = call.options("p", ("tmpdir", "suffix"))
        template = re.sub(r"X{3,}", ATOM, options.rest[0]) if options.rest else f"tmp.{ATOM}"
        folder = options.get("p", "tmpdir")
        return (template if template.startswith("/") else f"{folder or '/tmp'}/{template}") + "\n"
    options = call.options(
        {
            "touch": "dtr",
            "truncate": "sr",
            "fallocate": "lo",
            "mknod": "m",
            "mkfifo": "m",
            "mkdir": "m",
            "split": "abCln",
        }.get(call.name, ""),
        ("filter", "size", "reference", "date", "mode", "lines", "bytes"),
    )
    if call.name == "mknod" and len(options.rest) > 1 and options.rest[1] in ("b", "c", "u"):
        call.emit("device.node")
    if call.name in ("split", "csplit"):
        command = options.get("filter")
        call.shell(unglob(command)) if command else None
        for path in options.rest[1:] if call.name == "split" else []:
            call.write(path)
            call.machine.write_file(f"{path}aa", call.read(options.rest[0]), call.state)  # all of it: `cat path*`
        return ""
    fifo = call.name == "mkfifo" or (call.name == "mknod" and options.rest[1:] == ["p"])
    for path in options.rest[:1] if call.name == "mknod" else options.rest if call.name != "mkdir" else []:
        full, kind, flags = call.locate(path)
        call.machine.emit(
            "write", full, kind, flags | ({"truncate"} if call.name == "truncate" else {"append"}), program=call.name
        )
        if fifo:
            call.machine.fifos = True
            call.state.files[full] = UNKNOWN
    if call.name == "mkdir":
        for path in options.rest:
            full, kind, flags = call.locate(path)
            if re.match(r"/sys/fs/cgroup|/etc/(cron|systemd)", full):
                call.write(path)
    return ""


def setuid(mode: str) -> bool:
    """Whether a mode, or a list of them, sets such a bit (rsync's D: on directories only)."""
    modes = [part.removeprefix("F") for part in solid(mode).split(",") if part[:1] != "D"]
    return any(re.fullmatch(r"0*[2-7][0-7]{3}", part) or re.search(r"[+=][rwxXt]*s", part) for part in modes)


@program("chmod chown chgrp setfacl chattr gchmod setfattr chcon lchown")
def _chmod(call: Call) -> str:
    flag_like = [
        arg
        for arg in call.args
        if re.fullmatch(r"--?[a-zA-Z=/.\-]+", solid(arg))
        and not (call.name in ("chmod", "gchmod") and re.fullmatch(r"-[rwxXst,ugoa]+", arg) and "R" not in arg)
    ]
    recursive = any(re.fullmatch(r"-[a-zA-Z]*R[a-zA-Z]*", flag) or flag.startswith("--recur") for flag in flag_like)
    reference = any(flag.startswith("--reference") for flag in flag_like)
    values = call.options("mMxXnv" if call.name in ("setfacl", "setfattr") else "")
    rest = [arg for arg in call.args if arg not in flag_like and arg != "--"]
    if call.name == "chattr":
        rest = ["", *(arg for arg in call.args if arg[:1] not in "+-=")]
    if call.name in ("setfacl", "setfattr"):
        rest = ["", *values.rest]
    mode, paths = (rest[0], rest[1:]) if rest and not reference else ("", rest)
    if call.name in ("chmod", "gchmod") and setuid(mode):
        call.emit("privilege.setuid")
    if call.name == "chown" and re.match(r"(root|0)(:|$)", solid(mode)):
        call.emit("privilege.chown")
    for path in paths:
        flags = ["recursive"] if recursive else []
        if call.name in ("chmod", "gchmod"):
            flags.append("open" if re.search(r"777|666|[ao]\+\w*w|^\+\w*w", solid(mode)) else "mode")
            if "x" in solid(mode) or re.search(r"[1357]", solid(mode)):
                flags.append("executable")
        else:
            flags.append("owner")
        call.change(path, *flags)
    return ""
