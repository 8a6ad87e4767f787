"""Roles of arguments that are run: commands, code, scripts, settings that execute, what runs elsewhere."""

import re

from belljar.patterns import lazy_pattern

from . import expressions
from .expressions import named
from .knowledge import tables
from .marks import FILE, NETWORK, SENSITIVE, solid, unglob
from .paths import HOME, WORKSPACE
from .quoting import quiet_command
from .reading import MANY, ONE, Reading

_NAMES = lazy_pattern(r"(?<!\w)(?:pre|post)?([\w./%-]+)")
_TRANSPORT = lazy_pattern(r"(\S*/)?(ssh|rsync|sudo)\b(?!.*(?i:proxy|local)command)")
_VOLUME = "/var/lib/volumes/"  # a container's own
_KEPT = re.compile(r"/(var/lib/(?!apt/)|(data|db|backups?|mnt|home|etc|usr|var/www|bitnami)(/|$)|srv/(?!container/))")


def run(reading: Reading, words: list[str], _: str = "") -> None:
    words, assigns = list(words), "assigns" in reading.entry.traits
    while words and re.match(r"--$|[-+]?[\d.]+$" + (r"|[A-Za-z_]\w*=" if assigns else ""), words[0]):
        name, equals, value = words.pop(0).partition("=")
        reading.call.machine.set(name, value, reading.call.state.fork(), reading.call.name) if equals else None
    reading.ran += reading.call.run(words)


def run_program(reading: Reading, words: list[str], _: str) -> None:
    """Run what follows where it is a program; else it is a name in some other sense."""
    words = [word for word in words if word != "--"]
    if words and reading.call.is_program(solid(words[0]).rsplit("/", 1)[-1]):
        reading.ran += reading.call.run(words)


def run_as_root(reading: Reading, words: list[str], _: str) -> None:
    reading.call.machine.privileged += 1
    try:
        run(reading, words)
    finally:
        reading.call.machine.privileged -= 1


def shell(reading: Reading, words: list[str], _: str = "") -> None:
    if "exec" in reading.flags:
        run(reading, words)
    else:
        reading.ran += reading.call.shell(unglob(" ".join(words)))


def hidden_command(reading: Reading, text: str) -> None:
    """A command inside another program's option."""
    if solid(text).strip("'\" ") not in ("", "none", "cat", "less", "more", "true", "false", "-"):
        reading.call.emit("exec.hidden", text)
        shell(reading, [text])


def helper_program(reading: Reading, text: str) -> None:
    """An option for a program of one's choice: a compressor, or any known one that is no shell, may be chosen."""
    name = (solid(text).split() or [""])[0].rsplit("/", 1)[-1]
    known_one = reading.call.is_program(name) and not reading.call.machine.knowledge.has_trait(name, "shell")
    shell(reading, [text]) if known_one else hidden_command(reading, text)


def code(reading: Reading, words: list[str], language: str) -> None:
    for path in reading.rest if "edits" in reading.flags else []:
        reading.call.write(path, FILE)
    reading.ran += reading.call.scan(language, unglob("\n".join(words)), reading.rest)


def project(reading: Reading) -> None:
    """Files that the program runs by their name (`runs`), where this same command wrote them."""
    call = reading.call
    for names, language in reading.entry.runs.items():
        for path, text in list(call.state.files.items()):
            if call.machine.first_time(f"{language} {path} {text}") and re.search(rf"(^|/)({names})$", path):
                call.scan(language, text, []) if language != "lines" else targets(reading, text)


def targets(reading: Reading, text: str) -> None:
    """The commands of a makefile, a package.json or the like: of the targets that are named, or of all."""
    reading.call.emit("exec.network", text) if NETWORK in text else None
    words, values = set(reading.call.original.split()), dict(re.findall(r"(?m)^(\w+)\s*[:?]?=\s*(.*?)\s*$", text))
    blocks = re.split(r"(?m)^(?=(?:  )?[\w.%/-]+\s*:(?!=))|,(?=\s*\")", text)
    values = {"RM": "rm -f", "HOME": HOME, **values}
    default = [one for one in blocks if one[:1] != "."][:2] if reading.call.name.endswith("make") else blocks
    for _ in range(3):  # the targets that are named (or the first), and what they need
        chosen = [block for block in blocks if words & set(_NAMES.findall(block.partition(":")[0]))] or default
        words |= {word for block in chosen for word in block.partition("\n")[0].split()}
    whole = re.sub(r"\$[({](\w+)[)}]", lambda m: values.get(m[1], m[0]), "\n".join(chosen))
    for part in [one for line in whole.splitlines()[:300] for one in (line, *re.split(r"[\"'\[\],]+", line))]:
        part = re.sub(r"^[\s@:;-]*(?:[\w.-]+\s*[:=]+\s*)?[@|>;-]*\s*", "", part).replace("$$", "$")
        first = (part.split() or [""])[0]
        command = " " in part and reading.call.is_program(first) and ":" not in first
        if command or expressions.matched(named("suspect"), part):
            reading.call.guess(part)


def remote(reading: Reading, words: list[str], _: str = "") -> None:
    """A command for another host is judged as if it were for this one."""
    state = reading.call.state.spawned()
    state.cwd = state.home()
    text = re.sub(r"^(?:-[AfgkMnNqTtvXxY]+\s|-[EFiJlopS]\s*\S+\s|--\s)+", "", unglob(" ".join(words)))  # ssh HOST -t …
    reading.call.machine.run_text(text, state, reading.call.feed)


def container(reading: Reading, words: list[str], live: str) -> None:
    """A command in a container harms that container: what counts is what reaches out of it, or destroys its service.
    What the container got of this machine (`-v here:there`) is this machine's; what a live one keeps is a service's."""
    machine, outer, mounts = reading.call.machine, reading.call.machine.effects, _mounts(reading)
    state = reading.call.state.detached()
    state.cwd = "/srv/container/inside"
    for here, there in mounts:
        there_only = re.compile(rf"(?<![\w./-]){re.escape(there)}(?=[/\s'\";]|$)")
        words = [there_only.sub(here.replace("\\", "\\\\"), word) for word in words]
    if words[:1] and words[0].startswith("-") and "--" in words:  # `kubectl exec POD -n prod -- COMMAND`
        words = words[words.index("--") + 1 :]
    image = re.sub(r"(-cli)?(:[\w.-]+)?(@\S+)?$", "", solid(reading.rest[0])).rsplit("/", 1)[-1]
    entry = reading.options.get("entrypoint") or image
    tool = not live and reading.call.is_program(entry.rsplit("/", 1)[-1])  # `docker run hashicorp/terraform destroy`
    machine.effects = {}
    try:
        for argv in ([entry, *words], words) if tool else (words,):
            reading.ran += machine.simple(argv, state, reading.call.feed)
    finally:
        inner, machine.effects = machine.effects, outer
    mounted = tuple(reading.call.locate(here)[0] for here, _ in mounts if not here.startswith(_VOLUME))
    for effect in inner:
        wrecks = effect.kind == "delete" and "recursive" in effect.flags
        if wrecks and (live or effect.target.startswith(_VOLUME)):
            reading.call.emit("data.drop" if _KEPT.match(effect.target) else "service.change")
        elsewhere = expressions.fullmatch(named("leaves_container"), effect.kind) or "destroys" in effect.flags
        reaches = elsewhere or (effect.path_class in ("root", "secret") and effect.kind != "write")
        if reaches or (mounted and effect.target.startswith(mounted) and effect.kind in ("delete", "write", "chmod")):
            outer[effect] = None


def _mounts(reading: Reading) -> list[tuple[str, str]]:
    """What of this machine a container gets, and where: `-v here:there`, `--mount source=here,target=there`."""
    found = []
    for text in re.findall(r"(?:^|\s)(?:-v|--volume|--mount)[= ]?(\S+)", reading.call.original):
        plain = re.match(r"([^:,=]+):([^:,]+)", text)
        here = plain[1] if plain else "".join(re.findall(r"(?:source|src)=([^,]+)", text)[:1])
        there = plain[2] if plain else "".join(re.findall(r"(?:target|dst|destination)=([^,]+)", text)[:1])
        if here and there:
            found.append((here if here[0] in "/~.$" else _VOLUME + here, there.rstrip("/") or "/"))
    return found


def mount(reading: Reading, text: str) -> None:
    """A place of this machine that a container gets."""
    source = re.sub(r"^.*?(source|src)=|[:,].*$", "", text)
    full, kind, flags = reading.call.locate(source) if source and source[0] in "/~.$" else ("", "", frozenset())
    whole = kind == "system" and ("top" in flags or full in ("/var/run", "/var/lib"))
    if kind in ("root", "device", "secret", "kernel") or whole or (kind == "home" and "inner" not in flags):
        reading.call.emit("kernel.engine")


def engine(reading: Reading, path: str) -> None:
    reading.call.emit("kernel.engine") if "engine" in reading.call.locate(path)[2] else None


def setting(reading: Reading, text: str) -> None:
    """key=value, where some keys run their value: [setting.NAME] says which, and which values are harmless."""
    key, _, value = unglob(solid(text)).partition("=")
    settings = tables()["setting"][reading.settings or "git"].items()
    one = next((one for pattern, one in settings if expressions.fullmatch(pattern, key.lower())), None)
    value = value.strip()
    if one is None or expressions.fullmatch(one.get("harmless", "(?!)"), value):
        return
    if one.get("editor") and quiet_command(value):
        return
    if one.get("own") and reading.call.locate(value)[1] in ("workspace", "workspace_root") and value[:1] != "!":
        reading.emit(one["own"]) if one["own"] != "allow" else None
        return
    reading.call.emit(one.get("effect", "persist.git"), f"{key}={value}")
    reading.call.shell(value.lstrip("!")) if value and (value[0] != "/" or " " in value) else None


def ssh_option(reading: Reading, text: str) -> None:
    for line in text.splitlines():
        found = re.match(r"(?i)\s*(?:(?:proxy|local|knownhosts)command|match\b.*\bexec)[\s=]+(.+)", line)
        hidden_command(reading, found[1].strip('"')) if found else None
        if re.match(r"(?i)\s*(?:remote|dynamic)forward\b", line):
            reading.call.emit("net.tunnel", line)


def git_runs(reading: Reading, value: str) -> None:
    reading.call.emit("persist.git", value)
    reading.call.shell(value)


def commit_text(reading: Reading, text: str) -> None:
    """What git keeps leaves with the next push."""
    held = SENSITIVE if "sensitive" in reading.call.locate(text)[2] else text
    reading.call.machine.write_file(".git/COMMIT_EDITMSG", held + reading.call.stdin, reading.call.state, append=True)


def tree_shell(reading: Reading, text: str) -> None:
    """A command that git runs in a copy of every tree of the history."""
    state = reading.call.state.spawned()
    state.cwd = f"{WORKSPACE}/.tree"
    reading.call.machine.run_text(unglob(text), state)


MANY.update({
    "run": run, "run-program": run_program, "run-as-root": run_as_root,
    "shell": shell, "code": code, "remote": remote, "container": container,
    "run-package": lambda reading, words, _: run(reading, [re.sub(r"(?<=\w)@.*|^.*/", "", words[0]), *words[1:]]),
    "shell-or-run": lambda reading, words, _: shell(reading, words) if len(words) == 1 else run(reading, words),
    "flock": lambda reading, words, _: shell(reading, words[1:]) if words[0] == "-c" else run(reading, words),
    "words": lambda reading, words, language: reading.call.scan(language, unglob(" ".join(words)), []),
    "script": lambda reading, words, language: reading.hear("".join(map(reading.call.read, words))  # perl -ne CODE file
        if language in ("perl", "ruby") and reading.options.has("n", "p") and reading.call.script(words[0]) is None
        else reading.call.run_code(language, words)),
})  # fmt: skip
ONE.update({
    "hidden-command": hidden_command, "helper-program": helper_program, "mount": mount,
    "targets": lambda reading, path: targets(reading, reading.call.script(path) or ""),
    "transport": lambda reading, text: hidden_command(reading, text) if not _TRANSPORT.match(solid(text)) else None,
    "run-with-rest": lambda reading, path: reading.call.run([path, *reading.rest]),
    "make-eval": lambda reading, text: shell(reading, [text.partition(";")[2]]) if ";" in text else None,
    "engine": engine, "setting": setting, "ssh-option": ssh_option, "git-runs": git_runs,
    "options-file": lambda reading, path: reading.call.read(path),
    "setting-pair": lambda reading, text: setting(reading, text.strip().replace(" ", "=", 1)),
    "ssh-file": lambda reading, path: ssh_option(reading, reading.call.script(path) or ""),
    "preload": lambda reading, path: reading.call.emit("persist.env", f"--preload {path}"),
    "become": lambda reading, _: reading.call.emit("privilege.become"),
    "commit-text": commit_text, "tree-shell": tree_shell,
})  # fmt: skip
