"""Package managers and build tools, and the scripts that they run."""

import json
import re
import shlex
from itertools import pairwise

from .call import PROGRAMS, Call, program
from .folding import _STRING
from .machine import SUSPECT
from .marks import FILE, NETWORK, known, solid, unglob
from .quoting import listed

# tool: (how the names of the sources end that it makes or runs, their language, the verbs that do)
_SOURCES = {
    "cargo": (r"\.rs", "other", "run r build b test t bench install nextest"),
    "go": (r"\.go", "other", "run build test install generate"),
    "rustc": (r"\.rs", "other", ""),
    **dict.fromkeys(("javac", "gradle", "gradlew", "mvn", "mvnw"), (r"\.java", "other", "")),
    **dict.fromkeys(
        ("jest", "vitest", "mocha", "ava", "tap", "playwright", "cypress"), (r"\.[cm]?[jt]sx?", "node", "")
    ),
    **dict.fromkeys(("npm", "yarn", "pnpm"), (r"\.(?:test|spec)\.[cm]?[jt]sx?", "node", "test t run tst")),
    "rspec": (r"_spec\.rb", "ruby", ""),
    "phpunit": (r"\.php", "php", ""),
    "bats": (r"\.bats", "shell", ""),
    **dict.fromkeys(("pytest", "tox", "nox", "coverage"), (r"\.py", "python hooks", "")),
    **dict.fromkeys(
        ("make", "gmake", "just", "task"), (r"/(?:test_[^/]*|[^/]*_test|conftest)\.py", "python hooks", "")
    ),
}
_LIFE_CYCLE = ("install", "prepare", "prepublish", "publishOnly", "prepublishOnly", "pack", "publish", "dependencies")
_SPAWNS = re.compile(
    r"os/exec|os\.Remove|std::(process|fs)|child_process|ProcessBuilder|getRuntime|java\.n?io|rmSync|\bsyscall\.|libc::|nix::|"
    r"readFile|writeFile|ReadFile|WriteFile|os\.Open|net/http|std::net|"
    r"(?<![.\w])(?:system|exec|spawn|shell_exec|passthru|unlink)\b|%x|FileUtils|File\.|IO\."
)
_APPLIES = re.compile(r"terraform|tofu|terragrunt|packer|pulumi|ansible\S*|salt-call|skaffold|chef-\w+|gitlab-runner")
_CHECKS = listed("validate fmt init show version output state login")
_ABSENT = re.compile(
    r"\b(?:path|dest)\s*[:=]\s*['\"]?([^\s'\",}]{1,200})(?=[\s'\",])[^}]{0,200}?\bstate\s*[:=]\s*['\"]?absent|"
    r"\bstate\s*[:=]\s*['\"]?absent['\"]?\s+(?:path|dest)\s*[:=]\s*['\"]?([^\s'\",}]{1,200})"
)
_LANGUAGES = {  # of files that run by their name
    **dict.fromkeys(listed("setup.py conftest.py noxfile.py tasks.py fabfile.py SConstruct"), "python"),
    **dict.fromkeys(listed("Rakefile extconf.rb Gemfile Vagrantfile"), "ruby"),
    **dict.fromkeys(listed("build.gradle build.gradle.kts settings.gradle"), "groovy"),
    **dict.fromkeys(listed("build.rs binding.gyp"), "other"),
}
_CONFIG = re.compile(r"[\w.-]+\.config\.[cm]?[jt]s|\.\w+rc\.[cm]?js|(gulp|Grunt)file\.[cm]?[jt]s")
_RECIPES = re.compile(
    r"build\.ninja|BUILD(\.bazel)?|CMakeLists\.txt|Taskfile[.\w]*\.ya?ml|Procfile|tox\.ini|pyproject\.toml|composer\.json|deno\.jsonc?|"
    r"\.pre-commit-config\.yaml|lefthook\.yml|\.?(mise|config)\.toml|dvc\.yaml|pom\.xml|build\.xml|Snakefile|[jJ]ustfile"
)


@program(
    "apt apt-get aptitude yum dnf apk pacman zypper brew snap flatpak dpkg rpm pip pip3 npm yarn "
    "pnpm gem cargo go composer rustup easy_install cpan cpanm luarocks opam stack cabal mix "
    "nuget dotnet twine"
)
def _packages(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    text = " ".join(words)
    for macro in re.findall(r"%\((.*)\)", text) if call.name == "rpm" else []:
        call.shell(macro)
    for option in re.findall(
        r"(?:-o\s*|--option[= ]|--(?=p))(\S*(?:Pre-Invoke|Post-Invoke|Pre-Install-Pkgs|pre-invoke|post-invoke)\S*=.*)",
        text,
    ):
        call.emit("exec.hidden", option)
        call.shell(option.split("=", 1)[1].strip("'\""))
    if (call.name == "dpkg" and re.search(r"(^|\s)(-i|--install|--unpack|-r|-P|--purge)", text)) or (
        call.name == "rpm" and re.search(r"(^|\s)-[iUe]", text)
    ):
        _local_package(call, words)
    if call.name == "dpkg" and re.match(r"-[xX]\b|--v?extract", text):
        call.run(["dpkg-deb", *call.args])
    if call.name in ("npm", "pnpm", "yarn"):
        _npm(call, words)
    if call.name in ("cargo", "go"):
        _tool_options(call, words)
    if any(NETWORK in arg for arg in call.args):
        call.emit("exec.network")
    installing = re.search(r"\b(install|add|i|ci|get|update|upgrade|sync|-S|in|restore)\b", text) or (
        not words and call.name in ("yarn", "pnpm")
    )
    removing = re.search(
        r"\b(remove|purge|autoremove|uninstall|erase)\b.*\b(coreutils|bash|libc6|systemd|python3|base-files|"
        r"dpkg|apt)\b",
        text,
    )
    if removing and call.name in ("apt", "apt-get", "dpkg", "yum", "dnf", "apk"):
        call.machine.emit("delete", "/usr", "system", frozenset({"recursive"}), call.name)
    _written_code(call)
    publishing = re.search(r"\b(publish|login|adduser|token|upload|pack|push)\b", text)
    for before, word in pairwise(words) if publishing else []:
        if call.whole(word, "secret") and not before.startswith("--"):
            call.machine.emit("read", word, "secret", program=call.name)
    call.emit("exec.publish" if publishing else "exec.install" if installing else "exec.build")
    return None


def _tool_options(call: Call, words: list[str]) -> None:
    """Options of cargo and go that name a program to run, and the commands for go generate."""
    for path, code in list(call.state.files.items()) if call.name == "go" else []:
        for command in re.findall(r"(?m)^//go:generate\s+(.+)", code) if path.endswith(".go") else []:
            call.shell(command)
    for index, word in enumerate(words):
        value = words[index + 1] if index + 1 < len(words) else ""
        if re.fullmatch(r"--?(toolexec|exec|vettool)(=.*)?", word) and call.name == "go":
            command = word.partition("=")[2] or value
            call.emit("exec.hidden", command)
            call.shell(command)
        setting = word.partition("=")[2] if word.startswith("--config=") else value if word == "--config" else ""
        if re.search(r"wrapper|runner|linker|rustc\b|alias\.", setting) and call.name == "cargo":
            call.emit("exec.hidden", setting)


def _local_package(call: Call, words: list[str]) -> None:
    call.emit("exec.install")
    for word in words:
        text = call.machine.read_file(word, call.state)
        if text is not None and NETWORK in text:
            call.emit("exec.network", word)


def _npm(call: Call, words: list[str]) -> None:
    text = " ".join(words)
    if (
        re.search(
            r"(?:config )?set (script-shell|init-module|git|ignore-scripts|editor|viewer|shell|node-options|"
            r"yarn-?[pP]ath)|--script-shell",
            text,
        )
        and "ignore-scripts" not in text
    ):
        call.emit("persist.env")
    if words[:1] in (["exec"], ["x"], ["dlx"]) and "-c" in words:
        call.shell(call.args[words.index("-c") + 1] if words.index("-c") + 1 < len(words) else "")
    elif words[:1] in (["exec"], ["x"], ["dlx"]):
        rest = [arg for arg in call.args[1:] if not solid(arg).startswith("-") or arg is not call.args[1]]
        rest = rest[1:] if rest[:1] == ["--"] else rest
        if rest and solid(rest[0]) in PROGRAMS and len(rest) > 1:
            call.run(rest)
    _npm_scripts(call, words)
    if words[:2] == ["pkg", "set"] or words[:2] == ["set-script"]:
        for item in call.args[2:]:
            key, _, value = item.partition("=")
            if re.match(r"scripts\.(pre|post)?(install|prepare|publish)", key):
                call.emit("persist.later", item)
            if key.startswith("scripts."):
                call.shell(value)


def _npm_scripts(call: Call, words: list[str]) -> None:
    """The scripts of a package.json that this same command wrote, as far as they are reached."""
    manifest = call.machine.read_file("package.json", call.state) or ""
    scripts = dict(re.findall(r'"([\w:.-]+)"\s*:\s*"((?:[^"\\]|\\.)*)"', manifest))
    verbs = [word for word in words if not word.startswith("-")] or ["install"]
    name = verbs[1] if verbs[0] in ("run", "run-script", "rum", "urn") and len(verbs) > 1 else verbs[0]
    names = {"t": ["test"], "tst": ["test"]}.get(name, [name])
    if name in ("install", "i", "ci", "add", "publish", "pack", "install-test", "it", "link", "rebuild"):
        names = [*_LIFE_CYCLE, *(["test"] if name in ("install-test", "it") else [])]
    for step in [prefix + name for name in names for prefix in ("pre", "", "post")]:
        if step in scripts and known(scripts[step]):
            text = scripts[step].replace('\\"', '"').replace("\\\\", "\\")
            call.machine.run_script(f"npm:{step}", text, call.state.fork(), call.feed)


@program(
    "make gmake cmake ninja meson gradle gradlew mvn mvnw bazel tsc webpack vite rake just task "
    "ant sbt scons gcc g++ clang clang++ tcc cpp rustc javac cc tox nox pytest jest mocha vitest ava tap playwright "
    "cypress rspec phpunit bats coverage "
    "eslint prettier ruff mypy black foreman honcho overmind pre-commit lefthook invoke inv fab poe dvc snakemake mise "
    "terraform tofu terragrunt packer pulumi ansible ansible-playbook ansible-pull salt-call skaffold vagrant "
    "chef-apply chef-solo chef-client gitlab-runner"
)
def _build(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    applies = _APPLIES.fullmatch(call.name)
    ansible = "ansible" in call.name
    verb = next((word for word in words if word[:1] != "-"), "")
    checks = {"--check", "--syntax-check", "--list-tasks"} & {*words} if ansible else verb in _CHECKS
    if applies and checks:
        return None
    call.emit("exec.build")
    if call.name == "ansible-pull" and re.search(r"https?://|git@|ssh://", " ".join(words)):
        call.emit("exec.network")
    for word in words if call.name in ("make", "gmake") else []:
        found = re.match(r"(?:SHELL|\.SHELLFLAGS|CC|MAKE)=(.+)", word)
        if found and re.search(r"[;|&]|\s-c|^-c|/tmp/", found[1]):
            call.emit("exec.hidden", word)
            call.shell(found[1].removeprefix("-c").strip().strip("\"'"))
        if found and call.machine.read_file(found[1], call.state):
            call.run_file(found[1], [])
        for command in re.findall(r"\$\(shell ([^)]+)\)", word):
            call.shell(command)
    given = call.options("ac", ("args", "command")).all("a", "c", "args", "command")
    for text in given if call.name in ("ansible", "vagrant") else []:
        call.shell(unglob(text))
        _recipe(call, unglob(text))
    if applies:
        text = call.machine.written(r"\.(tf|hcl|ya?ml|sls|rb)$", call.state)
        local = r"localhost|127\.0\.0\.1|\blocal\b|hosts: all" if ansible else ""
        _recipe(call, text) if re.search(local, f"{words}{text}") else None
    _build_files(call, words)
    if call.name in ("make", "gmake", "just"):
        outer = call.state.cwd
        for folder in [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-C", "--directory", "-d")]:
            call.state.cwd = call.locate(folder)[0]
        _makefile(call, words)
        call.state.cwd = outer
    if call.name in ("gcc", "cc", "cpp", "clang", "g++", "clang++", "tcc"):
        return _compiler(call, words)
    if call.name in ("pytest", "mypy", "ruff", "black") and any(word.startswith("-o") for word in words):
        for index, word in enumerate(words[:-1]):
            if word == "-o":
                call.write(words[index + 1])
    return None


def _build_files(call: Call, words: list[str]) -> None:
    """Scripts that a build tool reads and this same command wrote; and tools with verbs of their own."""
    if call.name == "cmake" and words[:1] == ["-E"] and len(words) > 1:
        verb = {
            "remove_directory": "rm -r",
            "remove": "rm",
            "rm": "rm",
            "copy": "cp",
            "copy_directory": "cp -r",
            "rename": "mv",
            "env": "env",
            "time": "command",
            "chdir": "env -C",
        }.get(words[1])
        call.run([*verb.split(), *call.args[2:]]) if verb else None
    if call.name in ("mvn", "mvnw"):
        parts = dict(word[2:].partition("=")[::2] for word in words if word.startswith("-Dexec."))
        if "exec.executable" in parts:
            call.shell(f"{parts['exec.executable']} {parts.get('exec.args', '')}")
    if call.name == "rake" and "-e" in words[:-1]:
        _scan(call, "ruby", words[words.index("-e") + 1])
    for path in words:
        text = call.machine.read_file(path, call.state) if "/" in path or "." in path else None
        if text and call.name in ("cmake", "ninja", "ant", "just", "task"):
            _recipe(call, text)
        elif text and call.name in ("gradle", "gradlew", "meson"):
            call.emit("exec.network", path) if re.search(r"apply\s*\(?from\s*[:=]\s*['\"]https?:", text) else None
            _scan(call, "groovy", text)
    tasks = (call.machine.read_file("Taskfile.yml", call.state) or "") if call.name == "task" else ""
    for line in re.findall(r"[^\n\"'\[\]]+", reached(tasks, words)):
        command = re.sub(r"^[\s-]*(cmd:)?\s*", "", line)
        call.shell(command) if SUSPECT.match(command) else None
    _written_code(call)


def _written_code(call: Call) -> None:
    """Files that a package or build tool runs by their name, where this same command wrote them."""
    suffix, source, verbs = _SOURCES.get(call.name, ("", "", ""))
    built = suffix and (not verbs or {*verbs.split()} & {*call.args[:2]})
    for path, text in list(call.state.files.items()) if built else []:
        if re.search(rf"(?:{suffix})$", path) and (source in ("python hooks", "shell") or _SPAWNS.search(text)):
            _scan(call, source, text)
    for path, text in list(call.state.files.items()):
        name = path.rsplit("/", 1)[-1]
        text = reached(text, call.args) if call.name == "task" and name.startswith("Taskfile") else text
        if _RECIPES.fullmatch(name) and text not in call.machine.judged:
            call.machine.judged.add(text)
            _recipe(call, text)
        if name == "pyproject.toml" and "backend-path" in text:
            for code in [code for path, code in call.state.files.items() if path.endswith(".py")]:
                _scan(call, "python", code)
        language = "node" if _CONFIG.fullmatch(name) else _LANGUAGES.get(name)
        if language and text.strip(FILE):
            _scan(call, language, text)


def reached(text: str, goals: list[str], section: str = "tasks") -> str:
    """Of a Taskfile (or a compose file), what stands before the tasks and the tasks that are reached; all of it where
    none is named."""
    head, _, rest = text.partition(f"\n{section}:")
    tasks = dict(re.findall(r"(?m)^ {2}([\w:-]+):(.*\n(?: {3,}.*\n|\n)*)", rest + "\n"))
    pending, found = [goal for goal in goals if goal in tasks and len(tasks) < 200], [head]
    while pending:
        body = tasks.pop(pending.pop(), "")
        found.append(body)
        pending += [name for name in tasks if re.search(rf"\b{re.escape(name)}\b", body)]
    return "\n".join(found) if len(found) > 1 else text


def _recipe(call: Call, text: str) -> None:
    """A file of commands in a format of its own: each value that is a command, each argument list; cmake's `file`."""
    for url, path in re.findall(r"(?i)\bfile\s*\(\s*DOWNLOAD\s+\"?(\S+?)\"?\s+\"?([^\s\")]+)", text):
        call.emit("net.fetch", url)
        call.write(path, NETWORK)
    for path in re.findall(r"(?i)\binclude\s*\(\s*\"?([^\s\")]+)", text):
        call.load(path)
    for command in re.findall(r"\bcmd\w*\s*=\s*\"((?:[^\"\\]|\\.)*)\"", text):
        call.shell(re.sub(r"\$[@<^]", "made", command)) if _whole(command) else None
    text = re.sub(r"(?m)^\s*entry:.*(?=(?:\n.*){0,3}\n\s*language:\s*(?:pygrep|fail)\b)", "", text)  # a pattern
    for line in text.splitlines()[:500]:
        value = re.sub(r"^(?:.*\bCOMMAND\s+|[\s-]*(?:\"?\w[\w.:-]*\"?\s*(?:[:=]\s+|(?=['\"])))?[@>|-]*)", "", line)
        value = value.rstrip("), ")
        quoted = re.fullmatch(r"\[?\s*([\"'])(.*)\1\s*;?\]?", value)
        value = re.sub(r"\$ENV\{(\w+)\}", r"$\1", quoted[2] if quoted else value)
        words = re.split(r"[\"'],\s*[\"']", value)
        value = " ".join(words)
        if SUSPECT.match(value) or (value.split()[:1] and value.split()[0] in PROGRAMS and re.search(r"[~|;]", value)):
            call.run(words) if len(words) > 1 and " " not in words[0] else None
            for command in words if " " in words[0] else [value]:
                call.shell(command) if _whole(command) else None
    for command in _scripts(text):
        call.shell(command)
    for path in _ABSENT.findall(text):
        call.delete("".join(path), "recursive")
    for verb, path in re.findall(r"\bfile\s*\(\s*([A-Z_]+)\s+\"?([^\s\")]+)", text):
        call.run(["rm", "-r", path]) if verb.startswith("REMOVE") else None
        call.write(path) if verb in ("WRITE", "APPEND") else call.read(path) if verb in ("READ", "STRINGS") else None


def _whole(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _scripts(text: str) -> list[str]:
    """The scripts of a composer.json or deno.json."""
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        return []
    parts = [manifest.get(key) for key in ("scripts", "tasks")] if isinstance(manifest, dict) else []
    values = [value for part in parts if isinstance(part, dict) for value in part.values()]
    return [
        text for value in values for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)
    ]


def _scan(call: Call, language: str, code: str) -> None:
    from .codetext import MAX_CODE
    from .interpreters import scan

    if language == "shell":
        call.shell(re.sub(rf"@test\s+{_STRING}\s*\{{", "{", code))
    elif f"{language}:{code}" not in call.machine.judged:
        call.machine.judged.add(f"{language}:{code}")
        scan(call, language, code[:MAX_CODE])


def _compiler(call: Call, words: list[str]) -> str | None:
    for word in words:
        if re.match(r"-(wrapper|fplugin|B/)", word) or word.startswith("-specs="):
            call.emit("exec.hidden", word)
    if "-wrapper" in words and words.index("-wrapper") + 1 < len(words):
        call.run(words[words.index("-wrapper") + 1].split(","))
    for index, word in enumerate(words[:-1]):
        if word == "-o":
            call.write(words[index + 1], FILE)
    printed = next((word for word in words if word.startswith(("-print-file-name=", "--print-file-name="))), "")
    source = (
        call.stdin
        if "-" in words or "/dev/stdin" in words or call.name == "cpp"
        else "".join(
            call.machine.read_file(word, call.state) or "" for word in words if word.endswith((".c", ".cc", ".cpp"))
        )
    )
    for path in re.findall(r'#\s*include\s*[<"](/[^>"]+)', source):
        call.read(path)
    if source:
        _scan(call, "c", source)
    return printed.partition("=")[2] + "\n" if printed else None


def _makefile(call: Call, words: list[str]) -> None:
    """Recipes of a makefile that this same command wrote or feeds, and --eval."""
    texts = [word.partition("=")[2] for word in words if word.startswith(("--eval=", "-E="))]
    texts += [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--eval"]
    texts += [words[i + 1] for i, word in enumerate(words[:-1]) if word == "-E"]
    chosen = next((words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-f", "--file", "--makefile")), "")
    chosen = next(
        (re.sub(r"^(-f|--(make)?file=)", "", word) for word in words if re.match(r"-f.|--(make)?file=", word)), chosen
    )
    for path in [f"{word}{suffix}" for word in words for suffix in (".c", ".cc", ".cpp")]:  # make's own rules
        _scan(call, "c", call.machine.read_file(path, call.state) or "")
    for path in [chosen] if chosen else ["Makefile", "makefile", "GNUmakefile", "justfile"]:
        text = call.script(path)
        texts += [text] if text else []
    for text in texts:
        if NETWORK in text:
            call.emit("exec.network", "makefile")
        goals = [word for word in words if not word.startswith("-") and "=" not in word]
        for recipe in _recipes(text, goals, call):
            call.shell(recipe)


def _recipes(text: str, goals: list[str], call: Call) -> list[str]:
    """The commands of the targets that are reached, with make's variables put in."""
    values = dict(re.findall(r"(?m)^(\w+)\s*[:?+]*=\s*(.*?)\s*$", text))
    bodies = dict(re.findall(r"(?ms)^define\s+(\w+).*?\n(.*?)^endef", text))
    values = {"HOME": call.state.home(), "PWD": call.state.cwd, "CURDIR": call.state.cwd, "RM": "rm -f"} | values
    rules: dict[str, tuple[list[str], list[str]]] = {}
    current: list[str] = []
    for line in text.replace("\\\n", " ").split("\n"):
        rule = re.match(r"([\w.%/ -]+?)\s*::?(?!=)\s*([^;=]*)(?:;(.*))?$", line)
        if line[:1] in ("\t", " ") and line.strip():
            current.append(line.strip().lstrip("@-+"))
        elif rule:
            current = [rule[3].strip().lstrip("@-+")] if rule[3] else []
            rules.update(dict.fromkeys(rule[1].split(), (rule[2].split(), current)))
    pending = [goal for goal in goals if goal in rules] or [name for name in rules if not name.startswith(".")][:1]
    found = re.findall(r"\$\(shell ([^)]+)\)", text)
    seen: set[str] = set()
    while pending:
        name = pending.pop(0)
        if name in rules and name not in seen:
            seen.add(name)
            pending += rules[name][0]
            found += rules[name][1]
    for _ in range(3):
        found = [
            re.sub(r"\$\(call (\w+),?([^()]*)\)", lambda m: _called(bodies.get(m[1], ""), m[2]), one) for one in found
        ]
        found = [re.sub(r"\$[({](\w+)[)}]", lambda m: values.get(m[1], m[0]), recipe) for recipe in found]
    return [re.sub(r"\$\(\w+\)", "", recipe).replace("$$", "$") for recipe in found]


def _called(body: str, args: str) -> str:
    """make's `$(call name,a,b)`: the body with $(1), $(2) put in."""
    given = ["", *args.split(",")]
    return re.sub(r"\$\((\d)\)", lambda m: given[int(m[1])] if int(m[1]) < len(given) else "", body)
