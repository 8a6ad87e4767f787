"""Archives: what they take in, where they are unpacked, and the options of theirs that run something."""

import re

from .call import PROGRAMS, Call, program
from .marks import DISGUISED, FILE, NETWORK, UNKNOWN, known, solid, taints, unglob
from .quoting import listed, whole
from .wrappers import SHELLS


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
    valued = "fCTIXHbLKNVgF" if call.name != "cpio" else "CDFHIOMRE"
    options = call.options(valued, long)
    for path in options.all("T", "files-from"):
        call.args = [*call.args, *filter(known, call.read(path).splitlines())]
        options = call.options(valued, long)
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
        _packed(call, folder, [*options.rest, *(call.stdin.split() if call.name == "cpio" else [])])
        for path in options.rest:
            full = path if not folder or path.startswith("/") else f"{folder}/{path}"
            text += call.take(full, "system", "workspace_root")
        if options.has("remove-files"):
            for path in options.rest:
                call.delete(path if not folder or path.startswith("/") else f"{folder}/{path}", "recursive")
    archive = options.get("f", "file")
    extracting = options.has("x", "extract", "get") or (call.name == "cpio" and options.has("i", "extract"))
    if extracting and not options.has("O", "to-stdout"):
        folder = folder or options.get("D", "directory") or options.get("one-top-level")
        cut = options.get("strip-components")
        stripped = whole(cut) if cut.isdecimal() else 0
        _extracted(call, folder, call.read(archive) if archive and archive != "-" else call.stdin, stripped)
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


def _packed(call: Call, folder: str, paths: list[str]) -> None:
    """Remember what an archive holds: the members by their names, and the files of this command below them."""
    for path in paths:
        below = call.locate(f"{folder}/{path}" if folder else path)[0] + "/"
        inner = [f"{path}/{name.removeprefix(below)}" for name in call.state.files if name.startswith(below)]
        call.machine.packed += [path.lstrip("/"), *inner]


def _extracted(call: Call, folder: str, text: str, stripped: int = 0) -> None:
    """An archive is unpacked: into a system place it overwrites it; from the network, what it held came from there."""
    kind, flags = call.locate(folder or ".")[1:]
    for member in call.machine.packed[:100]:
        path = f"{folder or '.'}/{member.split('/', stripped)[-1]}"
        call.write(path) if call.locate(path)[1] in ("exec_hook", "secret") else None
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


@program("unsquashfs cabextract unar unrar dpkg-deb lha arj")
def _unpack(call: Call) -> None:
    options = call.options("do", ("dest", "directory", "output-directory"))
    last = options.rest[-1] if len(options.rest) > 1 and not options.has("l", "s", "c", "contents", "info") else ""
    folder = options.get("d", "dest", "o", "directory", "output-directory") or last
    _extracted(call, folder, call.read(options.rest[0]) if options.rest else "") if folder else None


_SUFFIX = {"bzip2": "bz2", "xz": "xz", "zstd": "zst", "compress": "Z"}


@program("zip 7z 7za unzip gzip bzip2 xz zstd compress rar")
def _zip(call: Call) -> str | None:
    options = call.options("dTPb" if call.name == "unzip" else "", ())
    if call.name == "zip":
        options.rest += call.stdin.splitlines() if options.has("@") else []
        command = re.search(r"(?:-TT[ =]?|--unzip-command[ =])(.+)", unglob(" ".join(call.args)))
        if command:
            call.emit("exec.hidden", command[1])
            call.shell(command[1])
        if options.has("m"):
            for path in options.rest[1:]:
                call.delete(path, "recursive")
        _packed(call, "", options.rest[1:])
        text = "".join(call.take(path, "workspace_root") for path in options.rest[1:])
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
        for path in options.rest[2:] if any(arg.startswith("-sdel") for arg in call.args) else []:
            call.delete(path, "recursive")
        if options.rest[:1] == ["a"]:
            _packed(call, "", options.rest[2:])
        if options.rest[:1] in (["x"], ["e"]):
            _extracted(call, target, call.read(options.rest[1]) if len(options.rest) > 1 else "")
        return ""
    for path in (
        options.rest if not options.has("c", "stdout", "to-stdout", "k", "keep", "l", "t", "list", "test") else []
    ):
        held = call.machine.read_file(path, call.state)
        call.write(path, held if held is not None else UNKNOWN)
        call.write(f"{path}.{_SUFFIX.get(call.name, 'gz')}", held) if held else None
    if options.has("d", "decompress", "uncompress") and not options.rest:
        return taints(call.stdin).replace(FILE, UNKNOWN) or (DISGUISED if call.stdin else UNKNOWN)
    text = "".join(call.read(path) for path in options.rest) or call.stdin
    packed = taints(text) or (DISGUISED if text.strip() else FILE)
    return packed if options.has("c", "stdout", "to-stdout") or not options.rest else ""
