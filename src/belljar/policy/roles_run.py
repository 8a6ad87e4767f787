"""Roles of arguments that are run: commands, code, scripts, settings that run programs, containers."""

import re

from belljar.patterns import lazy_pattern

from . import environment, expressions
from .marks import FILE, SENSITIVE, drop_unset, plain_text, unglob
from .paths import WORKSPACE
from .project_files import targets
from .quoting import is_plain_editor
from .reading import WORD_ROLES, WORDS_ROLES, Reading

_TRANSPORT = lazy_pattern(r"(\S*/)?(ssh|rsync|sudo)\b(?!.*(?i:proxy|local)command)")
_VOLUME = "/var/lib/volumes/"  # where a container's volumes seem to be
_KEPT = re.compile(
    r"/(var/lib/(?!apt/)|(data|db|backups?|mnt|home|etc|usr|var/www|bitnami)(/|$)|srv/(?!container/))"
)


def run(reading: Reading, words: list[str], _: str = "") -> None:
    words = list(words)
    assigns = "assigns" in reading.entry.traits
    while words and re.match(
        r"--$|[-+]?[\d.]+$" + (r"|[A-Za-z_]\w*=" if assigns else ""), words[0]
    ):
        name, equals, value = words.pop(0).partition("=")
        if equals:
            reading.call.machine.set(
                name, value, reading.call.state.fork(), reading.call.name
            )
    reading.output += reading.call.run(words)


def run_program(reading: Reading, words: list[str], _: str) -> None:
    """Run the words if the first is a known program; else they are something else."""
    words = [word for word in words if word != "--"]
    if words and reading.call.is_program(drop_unset(words[0]).rsplit("/", 1)[-1]):
        reading.output += reading.call.run(words)


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
        reading.output += reading.call.shell(unglob(" ".join(words)))


def typed(reading: Reading, words: list[str], _: str = "") -> None:
    """Lines that something else reads: commands if that is a shell; what is no bash is for another program."""
    for line in unglob(" ".join(words)).splitlines():
        reading.output += reading.call.shell_if_bash(line)


def hidden_command(reading: Reading, text: str) -> None:
    """A command inside another program's option."""
    if drop_unset(text).strip("'\" ") not in (
        "",
        "none",
        "cat",
        "less",
        "more",
        "true",
        "false",
        "-",
    ):
        reading.call.emit("exec.hidden", text)
        shell(reading, [text])


def helper_program(reading: Reading, text: str) -> None:
    """An option that names a helper program, such as a compressor. Any known program but a shell is fine."""
    name = (drop_unset(text).split() or [""])[0].rsplit("/", 1)[-1]
    known_one = reading.call.is_program(
        name
    ) and not reading.call.machine.knowledge.has_trait(name, "shell")
    if known_one:
        shell(reading, [text])
    else:
        hidden_command(reading, text)


def code(reading: Reading, words: list[str], language: str) -> None:
    for path in reading.rest if "edits" in reading.flags else []:
        reading.call.write(path, FILE)
    reading.output += reading.call.scan(
        language, unglob("\n".join(words)), reading.rest
    )


def script(reading: Reading, words: list[str], language: str) -> None:
    filters = language in ("perl", "ruby") and reading.options.has(
        "n", "p"
    )  # perl -ne CODE FILE: the file is read
    read = filters and reading.call.script(words[0]) is None
    reading.output += (
        "".join(map(reading.call.read, words))
        if read
        else reading.call.run_code(language, words)
    )


def remote(reading: Reading, words: list[str], _: str = "") -> None:
    """A command for another host: judged as if it ran here, in the home."""
    state = reading.call.state.new_process()
    state.cwd = state.home()
    text = re.sub(
        r"^(?:-[AfgkMnNqTtvXxY]+\s|-[EFiJlopS]\s*\S+\s|--\s)+",
        "",
        unglob(" ".join(words)),
    )  # ssh HOST -t …
    reading.call.machine.run_text(text, state, reading.call.feed)


def container(reading: Reading, words: list[str], live: str) -> None:
    """A command in a container: effects on mounted directories, other machines and a live container's data count."""
    machine, outer, mounts = (
        reading.call.machine,
        reading.call.machine.effects,
        _mounts(reading),
    )
    state = reading.call.state.detached()
    state.cwd = "/srv/container/inside"
    for here, there in mounts:
        there_only = re.compile(rf"(?<![\w./-]){re.escape(there)}(?=[/\s'\";]|$)")
        words = [there_only.sub(here.replace("\\", "\\\\"), word) for word in words]
    if (
        words[:1] and words[0].startswith("-") and "--" in words
    ):  # `kubectl exec POD -n prod -- COMMAND`
        words = words[words.index("--") + 1 :]
    image = re.sub(
        r"(-cli)?(:[\w.-]+)?(@\S+)?$", "", drop_unset(reading.rest[0])
    ).rsplit("/", 1)[-1]
    entry = reading.options.get("entrypoint") or image
    tool = not live and reading.call.is_program(
        entry.rsplit("/", 1)[-1]
    )  # `docker run hashicorp/terraform destroy`
    machine.effects = {}
    try:
        for argv in ([entry, *words], words) if tool else (words,):
            reading.output += machine.simple_command(argv, state, reading.call.feed)
    finally:
        inner = machine.effects
        machine.effects = outer
    mounted = tuple(
        reading.call.locate(here)[0]
        for here, _ in mounts
        if not here.startswith(_VOLUME)
    )
    for effect in inner:
        deletes_tree = effect.kind == "delete" and "recursive" in effect.flags
        if deletes_tree and (live or effect.target.startswith(_VOLUME)):
            reading.call.emit(
                "data.drop" if _KEPT.match(effect.target) else "service.change"
            )
        elsewhere = (
            expressions.is_a("leaves_container", effect.kind)
            or "destroys" in effect.flags
        )
        reaches = elsewhere or (
            effect.path_class in ("root", "secret") and effect.kind != "write"
        )
        if reaches or (
            mounted
            and effect.target.startswith(mounted)
            and effect.kind in ("delete", "write", "chmod")
        ):
            outer[effect] = None


def _mounts(reading: Reading) -> list[tuple[str, str]]:
    """The directories that a container gets, and where: `-v here:there`, `--mount source=here,target=there`."""
    found = []
    for text in re.findall(
        r"(?:^|\s)(?:-v|--volume|--mount)[= ]?(\S+)", reading.call.original
    ):
        plain = re.match(r"([^:,=]+):([^:,]+)", text)
        here = (
            plain[1]
            if plain
            else "".join(re.findall(r"(?:source|src)=([^,]+)", text)[:1])
        )
        there = (
            plain[2]
            if plain
            else "".join(re.findall(r"(?:target|dst|destination)=([^,]+)", text)[:1])
        )
        if here and there:
            found.append(
                (
                    here if here[0] in "/~.$" else _VOLUME + here,
                    there.rstrip("/") or "/",
                )
            )
    return found


def mount(reading: Reading, text: str) -> None:
    """A directory that a container gets: the root, devices, secrets and the like give it the host's rights."""
    source = re.sub(r"^.*?(source|src)=|[:,].*$", "", text)
    full, kind, flags = (
        reading.call.locate(source)
        if source and source[0] in "/~.$"
        else ("", "", frozenset())
    )
    whole = kind == "system" and ("top" in flags or full in ("/var/run", "/var/lib"))
    if (
        kind in ("root", "device", "secret", "kernel")
        or whole
        or (kind == "home" and "inner" not in flags)
    ):
        reading.call.emit("kernel.engine")


def setting(reading: Reading, text: str) -> None:
    """key=value. [setting.NAME] lists the keys that run their value, and the values that are harmless."""
    key, _, value = plain_text(text).partition("=")
    one = environment.setting(reading.settings or "git", key.lower())
    value = value.strip()
    if one is None or expressions.fullmatch(one.get("harmless", "(?!)"), value):
        return
    if one.get("editor") and is_plain_editor(value):
        return
    if (
        one.get("own")
        and reading.call.locate(value)[1] in ("workspace", "workspace_root")
        and value[:1] != "!"
    ):
        if one["own"] != "allow":
            reading.emit(one["own"])
        return
    reading.call.emit(one.get("effect", "persist.git"), f"{key}={value}")
    if value and (value[0] != "/" or " " in value):
        reading.call.shell(value.lstrip("!"))


def ssh_option(reading: Reading, text: str) -> None:
    for line in text.splitlines():
        found = re.match(
            r"(?i)\s*(?:(?:proxy|local|knownhosts)command|match\b.*\bexec)[\s=]+(.+)",
            line,
        )
        if found:
            hidden_command(reading, found[1].strip('"'))
        if re.match(r"(?i)\s*(?:remote|dynamic)forward\b", line):
            reading.call.emit("net.tunnel", line)


def git_runs(reading: Reading, value: str) -> None:
    reading.call.emit("persist.git", value)
    reading.call.shell(value)


def commit_text(reading: Reading, text: str) -> None:
    """Text that git keeps: the next push sends it."""
    held = SENSITIVE if "sensitive" in reading.call.locate(text)[2] else text
    reading.call.machine.write_file(
        ".git/COMMIT_EDITMSG",
        held + reading.call.stdin,
        reading.call.state,
        append=True,
    )


def tree_shell(reading: Reading, text: str) -> None:
    """A command that git runs in a copy of each tree of the history."""
    state = reading.call.state.new_process()
    state.cwd = f"{WORKSPACE}/.tree"
    reading.call.machine.run_text(unglob(text), state)


WORDS_ROLES.update(
    {
        "run": run,
        "run-program": run_program,
        "run-as-root": run_as_root,
        "shell": shell,
        "typed": typed,
        "code": code,
        "remote": remote,
        "container": container,
        "run-package": lambda reading, words, _: run(
            reading, [re.sub(r"(?<=\w)@.*|^.*/", "", words[0]), *words[1:]]
        ),
        "shell-or-run": lambda reading, words, _: (
            shell(reading, words) if len(words) == 1 else run(reading, words)
        ),
        "flock": lambda reading, words, _: (
            shell(reading, words[1:]) if words[0] == "-c" else run(reading, words)
        ),
        "words": lambda reading, words, language: reading.call.scan(
            language, unglob(" ".join(words)), []
        ),
        "script": script,
    }
)
WORD_ROLES.update(
    {
        "hidden-command": hidden_command,
        "helper-program": helper_program,
        "mount": mount,
        "targets": lambda reading, path: targets(
            reading.call, reading.call.script(path) or ""
        ),
        "transport": lambda reading, text: (
            hidden_command(reading, text)
            if not _TRANSPORT.match(drop_unset(text))
            else None
        ),
        "run-with-rest": lambda reading, path: reading.call.run([path, *reading.rest]),
        "make-eval": lambda reading, text: (
            shell(reading, [text.partition(";")[2]]) if ";" in text else None
        ),
        "engine": lambda reading, path: reading.call.use_socket(path),
        "setting": setting,
        "ssh-option": ssh_option,
        "git-runs": git_runs,
        "options-file": lambda reading, path: reading.call.read(path),
        "setting-pair": lambda reading, text: setting(
            reading, text.strip().replace(" ", "=", 1)
        ),
        "ssh-file": lambda reading, path: ssh_option(
            reading, reading.call.script(path) or ""
        ),
        "preload": lambda reading, path: reading.call.emit(
            "persist.env", f"--preload {path}"
        ),
        "become": lambda reading, _: reading.call.emit("privilege.become"),
        "commit-text": commit_text,
        "tree-shell": tree_shell,
    }
)
