"""tar: what it takes in, where it is unpacked, and the options of its that run something."""

import re

from .call import Call, Options, program
from .marks import FILE, UNKNOWN, known, solid, taints
from .quoting import listed, whole
from .reading import Reading
from .roles_run import checkpoint, helper

_LONG = listed(
    "rmt-command file directory one-top-level output checkpoint-action to-command use-compress-program rsh-command "
    "info-script new-volume-script exclude files-from exclude-from transform strip-components owner group mode format "
    "checkpoint"
)
_COMMANDS = listed("to-command rmt-command use-compress-program I rsh-command info-script new-volume-script F")


@program("tar bsdtar gtar star pax cpio ar")
def _tar(call: Call) -> str | None:
    if call.args and call.name.endswith("tar") and re.fullmatch(r"[A-Za-z]+", solid(call.args[0])):
        call.args = ["-" + solid(call.args[0]), *call.args[1:]]
    valued = "fCTIXHbLKNVgF" if call.name != "cpio" else "CDFHIOMRE"
    options = call.options(valued, _LONG)
    for path in options.all("T", "files-from"):
        call.args = [*call.args, *filter(known, call.read(path).splitlines())]
        options = call.options(valued, _LONG)
    reading = Reading(call, call.machine.knowledge.programs["tar"][0])
    for text in options.all("checkpoint-action"):
        checkpoint(reading, text)
    for text in options.all(*_COMMANDS):
        helper(reading, text)
    cpio = call.name == "cpio"
    if options.has("c", "create", "r", "append", "u", "update") or (cpio and options.has("o")):
        return _create(call, options)
    if options.has("x", "extract", "get") or (cpio and options.has("i", "extract")):
        return _extract(call, options)
    return ""


def _create(call: Call, options: Options) -> str:
    folder = options.get("C", "directory")
    call.pack(folder, [*options.rest, *(call.stdin.split() if call.name == "cpio" else [])])
    paths = [path if not folder or path.startswith("/") else f"{folder}/{path}" for path in options.rest]
    text = "".join(call.take(path, "system", "workspace_root") for path in paths)
    for path in paths if options.has("remove-files") else []:
        call.delete(path, "recursive")
    archive = options.get("f", "file")
    if archive and archive != "-":
        call.write(archive, taints(text) or FILE)
        return ""
    return taints(text) or FILE


def _extract(call: Call, options: Options) -> str:
    archive = options.get("f", "file")
    text = call.read(archive) if archive and archive != "-" else call.stdin
    if options.has("O", "to-stdout"):
        return taints(text).replace(FILE, UNKNOWN) or UNKNOWN
    folder = options.get("C", "directory", "D", "one-top-level")
    cut = options.get("strip-components")
    call.unpack(folder, whole(cut) if cut.isdecimal() else 0)
    for member in options.rest:
        call.write(f"{folder}/{member}" if folder else member)
    if options.has("P", "absolute-names"):
        call.emit("write.absolute")
    return ""
