"""Programs that make, change, move and delete files."""

import re

from .call import PROGRAMS, Call, program
from .marks import ATOM, DISGUISED, FILE, NETWORK, SECRET, SENSITIVE, UNKNOWN, has, known, solid, taints, unglob
from .paths import resolve
from .quoting import listed
from .wrappers import SHELLS


@program("rm unlink rmdir shred srm trash trash-put rimraf wipe del rip gio grm scrub")
def _rm(call: Call) -> str:
    options = call.options("ns" if call.name == "shred" else "")
    recursive = options.has("r", "R", "recursive") or call.name in (
        "rimraf",
        "srm",
        "trash",
        "trash-put",
        "wipe",
        "rip",
    )
    rest = options.rest[1:] if call.name == "gio" else options.rest
    if call.name == "gio" and options.rest[:1] not in (["trash"], ["remove"]):
        return ""
    flags = ["recursive"] if recursive else []
    if call.name in ("shred", "wipe", "scrub"):
        flags.append("wipe")
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
        if _setuid(options.get("m", "mode")):
            call.emit("privilege.setuid")
        if options.has("d", "directory"):
            return ""
    for command in options.all("e", "rsh", "rsync-path") if call.name == "rsync" else []:
        _transport(call, command)
    if call.name == "scp":
        for option in options.all("o"):
            if re.match(r"(?i)proxycommand", option.strip()):
                call.emit("exec.hidden", option)
                call.shell(option.partition("=")[2])
        for command in options.all("S"):
            call.emit("exec.hidden", command)
    target = options.get("t", "target-directory") or (options.rest[-1] if len(options.rest) > 1 else "")
    sources = options.rest if options.get("t", "target-directory") else options.rest[:-1]
    remote = call.name in ("scp", "rsync", "rclone") and re.match(r"(?:[\w.@-]+:|rsync://)", target) is not None
    for path in sources:
        if re.match(r"(?:[\w.@-]+:|rsync://)", path) and call.name in ("scp", "rsync"):
            call.emit("net.fetch", path)
            _arrive(call, path, target, "\ufdd1") if not remote else None
            continue
        text = call.read(path)
        if remote:
            from .network import sends

            whole = call.locate(path)[1] in ("root", "home", "system") and "inner" not in call.locate(path)[2]
            sends(call, SENSITIVE if whole else text, target)
        else:
            if has(text, SECRET):
                call.emit("read", path)
            _arrive(call, path, target, text)
    if call.name == "rsync" and any(flag.startswith("del") for flag in options.flags) and target and not remote:
        call.delete(target, "recursive")
    if call.name == "rsync" and options.has("remove-source-files"):
        for path in sources:
            call.delete(path, "recursive", "moved")
    return ""


def _transport(call: Call, command: str) -> None:
    first = solid(command).split()[:1]
    if first and first[0].rsplit("/", 1)[-1] in ("ssh", "rsync", "sudo"):
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
    if target_kind == "secret" or "engine" in target_flags or target_kind == "root":
        if not options.has("s", "symbolic"):
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
        return ""
    for path in options.rest if call.name not in ("split", "csplit", "mkdir", "mknod") else []:
        full, kind, flags = call.locate(path)
        call.machine.emit(
            "write", full, kind, flags | ({"truncate"} if call.name == "truncate" else {"append"}), program=call.name
        )
        if call.name == "mkfifo":
            call.machine.fifos = True
            call.machine.fifo_paths.add(full)
            call.state.files[full] = UNKNOWN
    if call.name == "mkdir":
        for path in options.rest:
            full, kind, flags = call.locate(path)
            if re.match(r"/sys/fs/cgroup|/etc/(cron|systemd)", full):
                call.write(path)
    return ""


def _setuid(mode: str) -> bool:
    mode = solid(mode)
    return (
        re.fullmatch(r"[0-7]*[2-7][0-7]{3}", mode) is not None
        and len(mode.lstrip("0")) == 4
        and int(mode.lstrip("0")[0]) & 6 != 0
    ) or re.search(r"[+=][rwxXt]*s", mode) is not None


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
    if call.name in ("chmod", "gchmod") and _setuid(mode):
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


@program("tar bsdtar gtar star pax cpio ar")
def _tar(call: Call) -> str | None:
    args = list(call.args)
    if args and call.name in ("tar", "gtar", "bsdtar") and re.fullmatch(r"[A-Za-z]+", solid(args[0])):
        args[0] = "-" + solid(args[0])
    call.args = args
    long = listed(
        "rmt-command file directory one-top-level output checkpoint-action to-command use-compress-program "
        "rsh-command info-script new-volume-script exclude files-from exclude-from transform strip-components "
        "owner group mode format checkpoint"
    )
    options = call.options("fCTIXHbLKNVgF" if call.name != "cpio" else "CDFHIOMRE", long)
    for text in options.all("checkpoint-action"):
        if "exec=" in text:
            call.emit("exec.hidden", text)
            call.shell(text.split("exec=", 1)[1])
    for text in options.all(
        "to-command", "rmt-command", "use-compress-program", "I", "rsh-command", "info-script", "new-volume-script", "F"
    ):
        if solid(text).split()[:1] and solid(text).split()[0].rsplit("/", 1)[-1] not in listed(
            "gzip pigz zstd xz bzip2 lz4 lzma pbzip2 unzstd pixz zstdmt lzip brotli cat gunzip"
        ):
            call.emit("exec.hidden", text) if solid(text).split()[0] not in PROGRAMS or solid(text).split()[
                0
            ] in SHELLS else None
        call.shell(text)
    if call.name == "ar" and options.get("output"):
        call.write(options.get("output"))
    create = options.has("c", "create", "r", "append", "u", "update") or (call.name == "cpio" and options.has("o"))
    folder = options.get("C", "directory")
    text = ""
    if create:
        for path in options.rest:
            full = path if not folder or path.startswith("/") else f"{folder}/{path}"
            kind, flags = call.locate(full)[1:]
            text += (
                SENSITIVE
                if kind in ("root", "home", "system", "workspace_root") and "inner" not in flags
                else call.read(full)
            )
        if options.has("remove-files"):
            for path in options.rest:
                call.delete(path, "recursive")
    archive = options.get("f", "file")
    extracting = options.has("x", "extract", "get") or (call.name == "cpio" and options.has("i", "extract"))
    if extracting and not options.has("O", "to-stdout"):
        folder = folder or options.get("D", "directory") or options.get("one-top-level")
        _extracted(call, folder, call.read(archive) if archive and archive != "-" else call.stdin)
        for member in options.rest:
            call.write(f"{folder}/{member}" if folder else member)
        if options.has("P", "absolute-names"):
            call.emit("write.absolute")
    if create and archive and archive != "-":
        call.write(archive, taints(text) or FILE)
        return ""
    return (
        (taints(text) or FILE)
        if create
        else taints(call.stdin).replace(FILE, UNKNOWN) or UNKNOWN
        if options.has("O", "to-stdout")
        else ""
    )


def _extracted(call: Call, folder: str, text: str) -> None:
    """An archive is unpacked: into a system place it overwrites it; from the network, what it held came from there."""
    kind, flags = call.locate(folder or ".")[1:]
    if kind in ("root", "system", "kernel", "exec_hook") or (kind == "home" and "inner" not in flags and folder):
        call.write(folder or ".", UNKNOWN, "extract")
    if NETWORK in text:
        call.state.fetched.add(call.locate(folder or ".")[0])


@program("patch")
def _patch(call: Call) -> str:
    options = call.options("pdioBDFgrVYz", ("directory", "input", "output", "strip"))
    folder = options.get("d", "directory")
    for path in options.rest[:1] + options.all("o", "output"):
        call.write(f"{folder}/{path}" if folder and not path.startswith("/") else path)
    if call.locate(folder or ".")[1] in ("root", "system", "kernel"):
        call.write(folder or ".")
    return ""


@program("zip 7z 7za unzip gzip bzip2 xz zstd compress rar")
def _zip(call: Call) -> str | None:
    options = call.options("dTPb" if call.name == "unzip" else "", ())
    if call.name == "zip":
        for flag in ("TT", "unzip-command"):
            if flag in options.values:
                call.emit("exec.hidden", options.get(flag))
                call.shell(options.get(flag))
        command = re.search(r"-TT[ =]?(.+)", unglob(" ".join(call.args)))
        if command:
            call.emit("exec.hidden", command[1])
            call.shell(command[1])
        if options.has("m"):
            for path in options.rest[1:]:
                call.delete(path, "recursive")
        text = "".join(
            SENSITIVE
            if call.locate(path)[1] in ("root", "home", "workspace_root") and "inner" not in call.locate(path)[2]
            else call.read(path)
            for path in options.rest[1:]
        )
        if options.rest and options.rest[0] != "-":
            call.write(options.rest[0], taints(text) or FILE)
        return taints(text)
    if call.name == "unzip":
        target = options.get("d")
        if options.rest and not options.has("l", "p", "t", "v", "Z"):
            _extracted(call, target, call.read(options.rest[0]))
        return UNKNOWN if options.has("p") else ""
    if call.name in ("7z", "7za", "rar"):
        target = next((arg[2:] for arg in call.args if re.match(r"-o.", arg)), "")
        if options.rest[:1] in (["x"], ["e"]):
            _extracted(call, target, call.read(options.rest[1]) if len(options.rest) > 1 else "")
        return ""
    for path in (
        options.rest if not options.has("c", "stdout", "to-stdout", "k", "keep", "l", "t", "list", "test") else []
    ):
        call.write(path)
    if options.has("d", "decompress", "uncompress") and not options.rest:
        return taints(call.stdin).replace(FILE, UNKNOWN) or (DISGUISED if call.stdin else UNKNOWN)
    text = "".join(call.read(path) for path in options.rest) or call.stdin
    return taints(text) or FILE if options.has("c", "stdout", "to-stdout") or not options.rest else ""


@program("sed gsed")
def _sed(call: Call) -> str | None:
    options = call.options("efl", ("expression", "file", "line-length"))
    in_place = (
        options.has("i", "in-place")
        or any(flag.startswith("i") for flag in options.flags)
        or "i" in options.values
        or "in-place" in options.values
    )
    clustered = next((arg for arg in call.args if re.fullmatch(r"-[nrEsuz]*i.*", arg)), "")
    scripts = options.all("e", "expression")
    rest = list(options.rest)
    if not scripts and not options.all("f", "file"):
        scripts, rest = [unglob(word) for word in rest[:1]], rest[1:]
    for path in options.all("f", "file"):
        scripts += (call.machine.read_file(path, call.state) or "").splitlines()
    for script in scripts:
        _sed_script(call, unglob(script))
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    if in_place or clustered:
        for path in rest:
            call.write(
                path,
                FILE
                if call.machine.read_file(path, call.state) is None
                else _substitute(scripts, call.machine.read_file(path, call.state) or ""),
            )
        return ""
    return _substitute(scripts, text)


_SED_SUB = (
    r"s(?P<d>[^\w\s\\])(?P<old>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<flags>[a-zA"
    r"-Z0-9]*)(?:\s+(?P<file>\S+))?"
)


def _sed_script(call: Call, script: str) -> None:
    """The commands of sed that run (`e`, `s///e`) or write (`w`)."""
    bare = script
    for found in re.finditer(_SED_SUB, script):
        if "e" in found["flags"]:
            plain = found[0][: -len(found["flags"])] if found["flags"] else found[0]
            call.shell(
                _substitute([plain], call.stdin)
                if call.stdin and known(call.stdin)
                else found["new"].replace("&", UNKNOWN)
            )
        if "w" in found["flags"] and found["file"]:
            call.write(found["file"])
        bare = bare.replace(found[0], "")
    for letter, rest in re.findall(_SED_COMMAND, bare):
        if letter == "e":
            call.shell(rest or call.stdin)
        elif rest.strip():
            call.write(rest.strip()) if letter in "wW" else call.read(rest.strip())


_SED_ADDRESS = r"(?:\d+|\$|/(?:\\.|[^/\n])*/I?)"
_SED_COMMAND = re.compile(
    rf"(?:^|[;{{}}\n])\s*(?:{_SED_ADDRESS}\s*(?:,\s*[+~]?{_SED_ADDRESS})?\s*)?!?\s*([ewrRW])(?![\w])\s*([^\n;}}]*)|"
    rf"(?!)",
    re.M,
)


def _substitute(scripts: list[str], text: str) -> str:
    if taints(text):
        return text
    for script in scripts:
        found = re.fullmatch(_SED_SUB, script.strip())
        if not found:
            return DISGUISED if text else ""
        try:
            new = re.sub(r"\\(\d)", r"\\g<\1>", found["new"]).replace("&", r"\g<0>")
            old = (
                found["old"]
                if "E" in script
                else re.sub(r"\\([(){}|+?])", r"\1", re.sub(r"(?<!\\)([(){}|+?])", r"\\\1", found["old"]))
            )
            text = "".join(
                re.sub(old, new, line, count=0 if "g" in found["flags"] else 1) for line in text.splitlines(True)
            )
        except (re.error, IndexError):
            return DISGUISED
    return text
