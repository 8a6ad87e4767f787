"""Roles of arguments that are run: commands, code, scripts, settings that execute, what runs elsewhere."""

import json
import re

from . import expressions
from .call import Call, settings
from .knowledge import tables
from .machine import SUSPECT
from .marks import FILE, NETWORK, SENSITIVE, UNKNOWN, has, known, solid, unglob
from .paths import WORKSPACE
from .quoting import listed, quiet_command
from .reading import Reading, role, words_role

_COMPRESSORS = frozenset(listed("gzip pigz zstd xz bzip2 lz4 lzma pbzip2 unzstd zstdmt lzip brotli cat gunzip"))
_TRANSPORT = re.compile(r"(\S*/)?(ssh|rsync|sudo)\b(?!.*(?i:proxy|local)command)")
_ELSEWHERE = ("exec.network", "net.shell", "process.forkbomb", "service.delete", "data.drop")


@words_role("run")
def run(reading: Reading, words: list[str], _: str) -> None:
    words = list(words)
    while words and (words[0] == "--" or ("assigns" in reading.entry.traits and re.match(r"[A-Za-z_]\w*=", words[0]))):
        name, equals, value = words.pop(0).partition("=")
        reading.call.machine.set(name, value, reading.call.state.fork(), reading.call.name) if equals else None
    reading.ran += reading.call.run(words)


@words_role("run-program")
def run_program(reading: Reading, words: list[str], _: str) -> None:
    """Run what follows where it is a program; else it is a name in some other sense."""
    words = [word for word in words if word != "--"]
    if words and reading.call.is_program(solid(words[0]).rsplit("/", 1)[-1]):
        reading.ran += reading.call.run(words)


@words_role("run-after-number")
def run_after_number(reading: Reading, words: list[str], _: str) -> None:
    numbered = re.fullmatch(r"[-+\d.]+|record|stat|trace|report|top", solid(words[0]))
    reading.ran += reading.call.run(words[1:] if numbered else words)


@words_role("run-as-root")
def run_as_root(reading: Reading, words: list[str], _: str) -> None:
    reading.call.machine.privileged += 1
    try:
        run(reading, words, "")
    finally:
        reading.call.machine.privileged -= 1


@words_role("shell")
def shell(reading: Reading, words: list[str], _: str) -> None:
    if "exec" in reading.flags:
        run(reading, words, "")
        return
    reading.ran += reading.call.shell(unglob(" ".join(words)).replace("\0", " "))


@words_role("shell-or-run")
def shell_or_run(reading: Reading, words: list[str], _: str) -> None:
    """One word is a text for a shell, several are a command."""
    shell(reading, words, "") if len(words) == 1 else run(reading, words, "")


@words_role("lock")
def lock(reading: Reading, words: list[str], _: str) -> None:
    shell(reading, words[1:], "") if words[0] in ("-c", "--command") else run(reading, words, "")


@role("hidden")
def hidden(reading: Reading, text: str) -> None:
    """A command inside another program's option."""
    if solid(text).strip("'\" ") not in ("", "none", "cat", "less", "more", "true", "false", "-"):
        reading.call.emit("exec.hidden", text)
        shell(reading, [text], "")


@role("helper")
def helper(reading: Reading, text: str) -> None:
    """An option for a program of one's choice: a compressor, or any known one that is no shell, may be chosen."""
    name = (solid(text).split() or [""])[0].rsplit("/", 1)[-1]
    if name in _COMPRESSORS:
        return
    known_one = reading.call.is_program(name) and not reading.call.machine.knowledge.has_trait(name, "shell")
    shell(reading, [text], "") if known_one else hidden(reading, text)


@role("transport")
def transport(reading: Reading, text: str) -> None:
    hidden(reading, text) if not _TRANSPORT.match(solid(text)) else None


@role("checkpoint")
def checkpoint(reading: Reading, text: str) -> None:
    hidden(reading, text.split("exec=", 1)[1]) if "exec=" in text else None


@words_role("code")
def code(reading: Reading, words: list[str], language: str) -> None:
    for path in reading.rest if "edits" in reading.flags else []:
        reading.call.write(path, FILE)
    reading.ran += reading.call.scan(language, unglob("\n".join(words)), reading.rest)


@words_role("words")
def words_of_code(reading: Reading, words: list[str], language: str) -> None:
    """Operands that together are one statement: `redis-cli -n 1 FLUSHALL`."""
    reading.ran += reading.call.scan(language, unglob(" ".join(words)), [])


@words_role("script")
def script(reading: Reading, words: list[str], language: str) -> None:
    """A script file: looked through where this command wrote it, else the project's own code."""
    reading.ran += reading.call.run_code(language, words)


@words_role("stdin")
def stdin(reading: Reading, _: list[str], language: str) -> None:
    text = reading.call.stdin
    reading.ran += reading.call.scan(language, text, []) if text and text.strip() else ""


@words_role("project")
def project(reading: Reading, _: list[str], __: str) -> None:
    """Files that the program runs by their name (`runs`), where this same command wrote them."""
    call = reading.call
    for names, language in reading.entry.runs.items():
        for path, text in list(call.state.files.items()):
            key = f"{language} {path} {text}"
            if key in call.machine.judged or not re.search(rf"(^|/)({names})$", path):
                continue
            call.machine.judged.add(key)
            if NETWORK in text:
                call.emit("exec.network", path)
            call.scan(language, text, []) if language != "lines" else _targets(reading, text)


@role("targets")
def targets(reading: Reading, path: str) -> None:
    """A file of targets by name: `make -f …`."""
    text = reading.call.script(path) or ""
    if NETWORK in text:
        reading.call.emit("exec.network", path)
    _targets(reading, text)


def _targets(reading: Reading, text: str) -> None:
    """The commands of a makefile, a package.json or the like that this call reaches."""
    words = set(reading.call.original.split())
    lines = _scripts(text, words) if text.lstrip()[:1] == "{" else _recipes(text, words)
    for line in lines[:300]:
        for part in dict.fromkeys([line, *re.split(r"[\"'\[\],]+", line)]):
            part = re.sub(r"^[\s@:;-]*(?:[\w.-]+\s*[:=]+\s*)?[@|>;-]*\s*", "", part).replace("$$", "$")
            first = (part.split() or [""])[0]
            if SUSPECT.match(part) or (" " in part and reading.call.is_program(first) and ":" not in first):
                reading.call.guess(part)


def _scripts(text: str, words: set[str]) -> list[str]:
    """package.json: the scripts that are named, and those that run by themselves."""
    try:
        scripts = json.loads(text)["scripts"].items()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    aliases = {"t": "test", "tst": "test"}
    named = {aliases.get(word, word) for word in words} | {"preinstall", "install", "postinstall", "prepare"}
    return [
        str(command)
        for name, command in scripts
        if name in named or name.removeprefix("pre").removeprefix("post") in named
    ]


def _recipes(text: str, words: set[str]) -> list[str]:
    """Of a file of targets, the lines of those that are named (of the first where none is) and of what these need."""
    blocks = re.split(r"(?m)^(?=(?:  )?[\w.%/-]+\s*:(?!=))", text)
    names = [re.match(r"\s*([\w.%/-]+?)\s*:[ \t]*([^\n;]*)", block) for block in blocks]
    values = {"RM": "rm -f", "HOME": "/home/sandbox", **dict(re.findall(r"(?m)^(\w+)\s*[:?]?=\s*(.*?)\s*$", text))}
    firsts = [
        name[1] for name in names if name and name[1] not in ("version", "tasks", "vars", "env") and name[1][0] != "."
    ]
    wanted = (words & set(firsts)) or {*firsts[:1], "default"}
    for _ in range(4):
        wanted |= {need for name in names if name and name[1] in wanted for need in name[2].split()[:50]}
    chosen = [block for block, name in zip(blocks, names, strict=True) if name and name[1] in wanted]
    found = "\n".join([*re.findall(r"\$\(shell [^\n]*\)", text), *(chosen or blocks)])
    return re.sub(r"\$[({](\w+)[)}]", lambda m: values.get(m[1], m[0]), found).splitlines()


# -- elsewhere


@words_role("remote")
def remote(reading: Reading, words: list[str], _: str) -> None:
    """A command for another host is judged as if it were for this one."""
    state = reading.call.state.fork()
    state.cwd = state.home()
    reading.call.machine.run_text(unglob(" ".join(words)), state, reading.call.feed)


@words_role("container")
def container(reading: Reading, words: list[str], _: str) -> None:
    """A command in a container harms that container: what counts is what reaches out of it, or destroys its service.
    What the container got of this machine (`-v here:there`) is this machine's."""
    machine, outer = reading.call.machine, reading.call.machine.effects
    state = reading.call.state.detached()
    state.cwd, mounts = "/srv/container/inside", _mounts(reading)
    for here, there in mounts:
        there_only = re.compile(rf"(?<![\w./-]){re.escape(there)}(?=[/\s'\";]|$)")
        words = [there_only.sub(here.replace("\\", "\\\\"), word) for word in words]
    machine.effects = {}
    try:
        reading.ran += machine.simple([word for word in words if word != "--"], state, reading.call.feed)
    finally:
        inner, machine.effects = machine.effects, outer
    mounted = tuple(reading.call.locate(here)[0] for here, _ in mounts)
    for effect in inner:
        reaches = effect.kind in _ELSEWHERE or (effect.path_class in ("root", "secret") and effect.kind != "write")
        if reaches or (mounted and effect.target.startswith(mounted) and effect.kind in ("delete", "write", "chmod")):
            outer[effect] = None


@words_role("container-text")
def container_text(reading: Reading, words: list[str], _: str) -> None:
    container(reading, words[0].split(), "")


def _mounts(reading: Reading) -> list[tuple[str, str]]:
    """What of this machine a container gets, and where: `-v here:there`, `--mount source=here,target=there`."""
    found = []
    for text in re.findall(r"(?:^|\s)(?:-v|--volume|--mount)[= ]?(\S+)", reading.call.original):
        plain = re.match(r"([^:,=]+):([^:,]+)", text)
        here = plain[1] if plain else "".join(re.findall(r"(?:source|src)=([^,]+)", text)[:1])
        there = plain[2] if plain else "".join(re.findall(r"(?:target|dst|destination)=([^,]+)", text)[:1])
        if here and there and here[0] in "/~.$":
            found.append((here, there.rstrip("/") or "/"))
    return found


@role("mount")
def mount(reading: Reading, text: str) -> None:
    """A place of this machine that a container gets."""
    source = re.sub(r"^.*?(source|src)=|[:,].*$", "", text)
    full, kind, flags = reading.call.locate(source) if source[:1] in "/~.$" and source else ("", "", frozenset())
    whole = (kind == "system" and ("top" in flags or full in ("/var/run", "/var/lib"))) or (
        kind == "home" and "inner" not in flags
    )
    if kind in ("root", "device", "secret", "kernel") or whole:
        reading.call.emit("kernel.engine")


@role("engine")
def engine(reading: Reading, path: str) -> None:
    reading.call.emit("kernel.engine") if "engine" in reading.call.locate(path)[2] else None


# -- settings that execute


@role("setting")
def setting(reading: Reading, text: str) -> None:
    """key=value, where some keys run their value: [setting.NAME] says which, and which values are harmless."""
    key, _, value = unglob(solid(text)).partition("=")
    for pattern, one in tables()["setting"][reading.settings or "git"].items():
        if expressions.fullmatch(pattern, key.lower()):
            _set(reading, key, value.strip(), one)
            return


def _set(reading: Reading, key: str, value: str, one: dict[str, str]) -> None:
    harmless = one.get("harmless", "(?!)")
    own = reading.call.locate(value)[1] in ("workspace", "workspace_root") and not value.startswith("!")
    if expressions.fullmatch(harmless, value) or (one.get("editor") and quiet_command(value)):
        return
    if own and one.get("own"):
        reading.emit(one["own"]) if one["own"] != "allow" else None
        return
    reading.call.emit(one.get("effect", "persist.git"), f"{key}={value}")
    if value and (not value.startswith("/") or " " in value):
        reading.call.shell(value.lstrip("!"))


@role("setting-pair")
def setting_pair(reading: Reading, text: str) -> None:
    key, _, value = text.strip().partition(" ")
    setting(reading, f"{key}={value}")


@role("options-file")
def options_file(reading: Reading, path: str) -> None:
    """A file of options: they count as if they were given."""
    given = settings(reading.call.read(path))
    key = "\0".join(given)
    if given and key not in reading.call.machine.judged:
        reading.call.machine.judged.add(key)
        call = reading.call
        Reading(Call(call.machine, call.name, [*call.args, *given], call.state, call.feed), reading.entry).run()


@role("ssh-option")
def ssh_option(reading: Reading, text: str) -> None:
    for line in text.splitlines():
        found = re.match(r"(?i)\s*(?:(?:proxy|local|knownhosts)command|match\b.*\bexec)[\s=]+(.+)", line)
        hidden(reading, found[1].strip('"')) if found else None


@role("ssh-file")
def ssh_file(reading: Reading, path: str) -> None:
    ssh_option(reading, reading.call.script(path) or "")


@role("preload")
def preload(reading: Reading, path: str) -> None:
    reading.call.emit("persist.env", f"--preload {path}")


@role("planted")
def planted(reading: Reading, value: str) -> None:
    reading.call.emit("persist.git", value)
    reading.call.shell(value)


@role("schedule")
def schedule(reading: Reading, _: str) -> None:
    """Lines of a crontab, or the text that at is given."""
    for line in reading.call.stdin.splitlines()[:50]:
        found = re.match(r"\s*(?:@\w+|(?:\S+\s+){5})(.+)", line)
        text = found[1] if found else line if reading.call.name in ("at", "batch") else ""
        reading.call.shell(text) if text and known(text) else None


@role("commit-text")
def commit_text(reading: Reading, text: str) -> None:
    """What git keeps leaves with the next push."""
    held = SENSITIVE if "sensitive" in reading.call.locate(text)[2] else text
    reading.call.machine.write_file(".git/COMMIT_EDITMSG", held + reading.call.stdin, reading.call.state, append=True)


@role("unseen-stdin")
def unseen_stdin(reading: Reading, _: str) -> None:
    if has(reading.call.stdin, NETWORK):
        reading.call.emit("exec.network")
    elif has(reading.call.stdin, UNKNOWN):
        reading.call.emit("exec.unseen")


@role("become")
def become(reading: Reading, _: str) -> None:
    reading.call.emit("privilege.become")


@role("tree-shell")
def tree_shell(reading: Reading, text: str) -> None:
    """A command that git runs in a copy of every tree of the history."""
    state = reading.call.state.fork()
    state.cwd = f"{WORKSPACE}/.tree"
    reading.call.machine.run_text(unglob(text), state)


@role("make-eval")
def make_eval(reading: Reading, text: str) -> None:
    shell(reading, [text.partition(";")[2]], "") if ";" in text else None


@role("ansible")
def ansible(reading: Reading, text: str) -> None:
    shell(reading, [text], "") if re.search(
        r"-m\s*(ansible\.builtin\.)?(shell|command|raw)|^(?!.*-m)", reading.text
    ) else None


@role("run-with-rest")
def run_with_rest(reading: Reading, path: str) -> None:
    reading.call.run([path, *reading.rest])
