"""Programs known by their purpose: disks, power, accounts, services, modules, firewall, processes."""

import re

from .call import PROGRAMS, Call, program
from .marks import ATOM, FILE, UNKNOWN, has, has_glob, known, solid, unglob
from .quoting import listed

# program: (effect kind, arguments that make it harmless). Without such an argument the effect is emitted.
_PURPOSE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        listed("mkfs mke2fs mkswap mkdosfs mkntfs mkreiserfs newfs"), ("device.format", r"--help|--version|-V\b")
    ),
    **dict.fromkeys(
        listed(
            "wipefs blkdiscard sgdisk gdisk cfdisk sfdisk fdisk parted partprobe hdparm nvme badblocks "
            "cryptsetup pvcreate pvremove vgremove vgcreate lvremove lvcreate zpool zfs mdadm dmsetup "
            "losetup e2label tune2fs resize2fs debugfs flashrom fatlabel dc3dd nwipe partx sg_format "
            "efibootmgr grub-install bmaptool extlinux syslinux lilo dmraid bcache-super-show sg_dd secure-delete "
            "mkfatimage mkisofs-burn"
        ),
        (
            "device.format",
            r"(^|\s)(-l|--list|-L|print|list|status|-h|--help|--version|-V|-I|-i|show|id-ctrl|get)(\s|"
            r"$)|^$|^-a$",
        ),
    ),
    **dict.fromkeys(
        listed("shutdown reboot halt poweroff telinit kexec openrc-shutdown pm-suspend pm-hibernate rtcwake"),
        ("process.power", r"--help|--version"),
    ),
    **dict.fromkeys(
        listed(
            "iptables ip6tables nft ufw firewall-cmd ebtables arptables iptables-restore nft-restore "
            "pfctl ipset conntrack"
        ),
        (
            "net.firewall",
            r"(^|\s)(-L|-S|--list\S*|list|status|--state|--get-\S+|--help|--version|-V|-nvL|-nL|-vnL|show)(\s|"
            r"$)",
        ),
    ),
    **dict.fromkeys(
        listed(
            "useradd adduser userdel deluser usermod groupadd groupdel groupmod gpasswd chpasswd passwd "
            "chage visudo vipw vigr chsh chfn newusers pwconv grpck addgroup delgroup"
        ),
        ("privilege.account", r"(^|\s)(-S|--status|-l|--list|--help|--version|-c)(\s|$)"),
    ),
    **dict.fromkeys(listed("setcap setpcap filecap pscap"), ("privilege.setuid", r"--help|(^|\s)-v\s")),
    **dict.fromkeys(
        listed("umount fusermount fusermount3 mount.cifs mount.nfs swapon swapoff sshfs mergerfs losetup"),
        ("kernel.mount", r"--help|--version|--show|-s(\s|$)"),
    ),
    **dict.fromkeys(
        listed("insmod modprobe rmmod depmod kmod dkms"),
        ("kernel.module", r"--help|--version|-V|status|list|-n\b|--show-depends|--dry-run"),
    ),
    **dict.fromkeys(listed("crontab at batch anacron incrontab"), ("persist.cron", r"(^|\s)-l(\s|$)|--help|-V")),
    **dict.fromkeys(
        listed("update-rc.d chkconfig rc-update initctl launchctl loginctl update-alternatives"),
        (
            "persist.service",
            r"(^|\s)(--?list\S*|status|show\S*|--display|--query|print|--get-selections|session-status|"
            r"user-status)(\s|$)",
        ),
    ),
    **dict.fromkeys(
        listed(
            "bpftool bpftrace keyctl setenforce aa-disable apparmor_parser auditctl semanage tc ethtool "
            "kubeadm dmidecode"
        ),
        ("kernel.sysctl", r"(^|\s)(list|show|status|-l|--list|-s)(\s|$)|^$"),
    ),
    **dict.fromkeys(
        listed("telnetd ttyd gotty shellinaboxd shellinabox sshd in.telnetd rshd wetty tmate upterm sshx"),
        ("net.shell", r"--help|--version|(^|\s)-[tTV](\s|$)"),
    ),
    **dict.fromkeys(listed("ztcp zsocket"), ("net.socket", r"(?!)")),
    **dict.fromkeys(listed("xhost gcore criu reptyr"), ("kernel.namespace", r"^$|--help|--version|check")),
    **dict.fromkeys(
        listed(
            "msfvenom msfconsole msfcli meterpreter linpeas.sh linenum.sh mimikatz hydra john hashcat "
            "sqlmap responder unshadow gtfonow deepce.sh amicontained cdk traitor"
        ),
        ("privilege.become", r"--help|--version"),
    ),
}


@program(" ".join(_PURPOSE))
def _purpose(call: Call) -> str | None:
    kind, harmless = _PURPOSE.get(call.name) or _PURPOSE["mkfs"]
    text = " ".join(solid(arg) for arg in call.args)
    quiet = re.search(harmless, text) or any(arg in ("--help", "--version") for arg in call.args)
    if not quiet:
        call.emit(kind)
    if call.name in ("at", "batch"):
        call.shell(call.stdin)
    if call.name == "crontab" and kind and call.stdin and not re.search(r"-l", text):
        for line in call.stdin.splitlines():
            found = re.match(r"\s*(?:@\w+|(?:\S+\s+){5})(.+)", line)
            if found and known(found[1]):
                call.shell(found[1])
    return FILE if re.search(harmless, text) else None


@program("format diskpart cipher")
def _windows(call: Call) -> str | None:
    if call.name != "format" or (call.args and re.match(r"[A-Za-z]:", call.args[0])):
        call.emit("device.format")
    return None


@program("init")
def _init(call: Call) -> str | None:
    if call.args[:1] and call.args[0] in listed("0 1 2 3 4 5 6 s S q u"):
        call.emit("process.power")
    return None


@program("systemctl service rc-service systemd-run busctl dbus-send gdbus invoke-rc.d supervisorctl pm2")
def _service(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    verbs = {word for word in words if not word.startswith("-")}
    if verbs & {
        "poweroff",
        "reboot",
        "halt",
        "suspend",
        "hibernate",
        "kexec",
        "emergency",
        "rescue",
        "soft-reboot",
    } or re.search(
        r"login1|(poweroff|reboot|halt|kexec|rescue|emergency)\.target|\.(Reboot|PowerOff|Halt)\b", " ".join(words)
    ):
        call.emit("process.power")
    elif call.name == "systemd-run":
        call.emit("persist.service")
        call.run(
            call.options(
                "pu", ("property", "unit", "uid", "gid", "on-calendar", "on-active", "on-boot"), posix=True
            ).rest
        )
    elif call.name == "systemctl" and verbs & {
        "enable",
        "link",
        "edit",
        "set-default",
        "mask",
        "disable",
        "preset",
        "daemon-reexec",
        "set-property",
        "set-environment",
        "import-environment",
        "unmask",
        "add-wants",
    }:
        call.emit("persist.service")
    elif verbs & {"stop", "disable", "kill"} and verbs & {
        "firewalld",
        "ufw",
        "iptables",
        "nftables",
        "auditd",
        "apparmor",
        "docker",
        "containerd",
        "sshd",
        "ssh",
        "rsyslog",
        "fail2ban",
    }:
        call.emit("net.firewall")
    elif verbs & {"stop", "start", "restart", "reload", "kill"} and call.name in ("systemctl", "service", "rc-service"):
        call.emit("process.service")
    return None


@program("mount")
def _mount(call: Call) -> str | None:
    if (
        call.args
        and call.args not in (["-l"], ["--help"], ["-V"], ["--version"])
        and not (call.args[0] in ("-t", "--types") and len(call.args) == 2)
    ):
        call.emit("kernel.mount")
    return FILE


@program("sysctl")
def _sysctl(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if re.search(r"(^|\s)(-w|--write|-p|--load|--system)|=", text):
        call.emit("kernel.sysctl")
    return ATOM


@program("ip ifconfig route nmcli brctl iw iwconfig macchanger")
def _ip(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if "netns exec" in text or "netns add" in text:
        call.emit("kernel.namespace")
        if "exec" in call.args:
            call.run(call.args[call.args.index("exec") + 2 :])
    elif re.search(r"\b(add|del|delete|set|flush|change|replace|up|down|hw|gw)\b", text):
        call.emit("net.firewall")
    return ATOM


@program("kill tkill")
def _kill(call: Call) -> str:
    words = [solid(arg) for arg in call.args]
    if any(re.fullmatch(r"-(l|L|-list)", word) for word in words[:1]):
        return ""
    operands = list(words)
    if operands and re.match(r"-(\d+|[A-Za-z]+\w*|-signal.*)$", operands[0]) and len(operands) > 1:
        operands = operands[2:] if operands[0] in ("-s", "-n", "--signal") else operands[1:]
    for operand in operands:
        if operand == "--":
            continue
        if operand in ("-1", "1", "0", "-0") or has_glob(operand):
            call.emit("process.killall")
        else:
            call.emit("process.kill", operand)
    return ""


@program("pkill killall killall5 skill xkill fuser slay")
def _pkill(call: Call) -> str:
    options = call.options("sguUGtPFnoc", ("signal", "user", "euid", "uid", "group", "parent", "session"))
    pattern = unglob(options.rest[-1]) if options.rest else ""
    text = " ".join(solid(arg) for arg in call.args)
    everyone = (
        call.name == "killall5"
        or options.has("v", "inverse")
        or re.search(r"(^|\s)-(u|U|-user|-euid|-uid)\s*=?(root|0|sandbox|\$)", text)
        or (pattern.strip(".*^$ ") == "" and (bool(options.rest) or not text or re.search(r"-[uvU]", text) is not None))
    )
    target = re.fullmatch(r"-?f?\s*(init|systemd|dockerd|containerd|sshd|bash|sh|tini|belljar.*)", pattern) is not None
    if call.name == "fuser":
        if options.has("k", "kill"):
            call.emit(
                "process.killall"
                if any(
                    call.locate(path)[1] in ("root", "system", "workspace_root") for path in options.rest if "/" in path
                )
                else "process.kill"
            )
        return ""
    call.emit("process.killall" if everyone or target else "process.kill")
    return ""


@program(
    "apt apt-get aptitude yum dnf apk pacman zypper brew snap flatpak dpkg rpm pip pip3 npm yarn "
    "pnpm gem cargo go composer rustup easy_install cpan cpanm luarocks opam stack cabal mix "
    "nuget dotnet twine"
)
def _packages(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    text = " ".join(words)
    for option in re.findall(r"(?:-o\s*|--option[= ])(\S*(?:Pre-Invoke|Post-Invoke|Pre-Install-Pkgs)\S*=.*)", text):
        call.emit("exec.hidden", option)
        call.shell(option.split("=", 1)[1].strip("'\""))
    if (call.name == "dpkg" and re.search(r"(^|\s)(-i|--install|--unpack|-r|-P|--purge)", text)) or (
        call.name == "rpm" and re.search(r"(^|\s)-[iUe]", text)
    ):
        _local_package(call, words)
    if call.name in ("npm", "pnpm", "yarn"):
        _npm(call, words)
    if call.name in ("cargo", "go"):
        _tool_options(call, words)
    if any(has(arg, "\ufdd1") for arg in call.args):
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
    publishing = re.search(r"\b(publish|login|adduser|token)\b", text)
    call.emit("exec.publish" if publishing else "exec.install" if installing else "exec.build")
    return None


def _tool_options(call: Call, words: list[str]) -> None:
    """Options of cargo and go that name a program to run."""
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
        if text is not None and "\ufdd1" in text:
            call.emit("exec.network", word)


def _npm(call: Call, words: list[str]) -> None:
    text = " ".join(words)
    if (
        re.search(
            r"config set (script-shell|init-module|git|ignore-scripts|editor|viewer|shell|node-options)|"
            r"--script-shell",
            text,
        )
        and "ignore-scripts" not in text
    ):
        call.emit("persist.env")
    if words[:1] in (["exec"], ["x"], ["dlx"]) and "-c" in words:
        call.shell(call.args[words.index("-c") + 1] if words.index("-c") + 1 < len(words) else "")
    elif words[:1] in (["exec"], ["x"], ["run"], ["dlx"], ["run-script"]):
        rest = [arg for arg in call.args[1:] if not solid(arg).startswith("-") or arg is not call.args[1]]
        rest = rest[1:] if rest[:1] == ["--"] else rest
        if rest and solid(rest[0]) in PROGRAMS and len(rest) > 1:
            call.run(rest)
    manifest = call.machine.read_file("package.json", call.state)
    if manifest:
        for text in re.findall(r'"[\w:-]+"\s*:\s*"((?:[^"\\]|\\.)*)"', manifest):
            call.shell(text.replace('\\"', '"')) if text.split()[:1] and text.split()[0] in PROGRAMS else None
    if words[:2] == ["pkg", "set"] or words[:2] == ["set-script"]:
        for item in call.args[2:]:
            key, _, value = item.partition("=")
            if re.match(r"scripts\.(pre|post)?(install|prepare|publish)", key):
                call.emit("persist.later", item)
            if key.startswith("scripts."):
                call.shell(value)


@program(
    "make gmake cmake ninja meson gradle gradlew mvn mvnw bazel tsc webpack vite rake just task "
    "ant sbt scons gcc g++ clang clang++ cpp rustc javac cc tox nox pytest jest mocha vitest "
    "eslint prettier ruff mypy black"
)
def _build(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    call.emit("exec.build")
    for word in words if call.name in ("make", "gmake") else []:
        found = re.match(r"(?:SHELL|\.SHELLFLAGS|CC|MAKE)=(.+)", word)
        if found and re.search(r"[;|&]|\s-c|^-c|/tmp/", found[1]):
            call.emit("exec.hidden", word)
            call.shell(found[1].removeprefix("-c").strip().strip("\"'"))
        for command in re.findall(r"\$\(shell ([^)]+)\)", word):
            call.shell(command)
    _build_files(call, words)
    if call.name in ("make", "gmake", "just"):
        _makefile(call, words)
    if call.name in ("gcc", "cc", "cpp", "clang", "g++", "clang++"):
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
        if text and call.name in ("cmake", "ninja"):
            for command in re.findall(r"COMMAND\s+([^)\n]+)|command\s*=\s*([^\n]+)", text):
                command = command[0] or command[1]
                call.shell(command)
        elif text and call.name in ("gradle", "gradlew", "ant", "just", "task", "meson"):
            _scan(call, "groovy", text)
    if call.name in ("pytest", "tox", "nox"):
        for path, text in list(call.state.files.items()):
            if path.endswith(".py"):
                _scan(call, "python", text)
    _written_code(call)


def _written_code(call: Call) -> None:
    """Files that a package or build tool runs by their name, where this same command wrote them."""
    for path, text in list(call.state.files.items()):
        name = path.rsplit("/", 1)[-1]
        language = {
            "setup.py": "python",
            "conftest.py": "python",
            "noxfile.py": "python",
            "build.rs": "other",
            "Rakefile": "ruby",
            "extconf.rb": "ruby",
            "Gemfile": "ruby",
            "build.gradle": "groovy",
            "gulpfile.js": "node",
            "Gruntfile.js": "node",
            "binding.gyp": "other",
        }.get(name)
        if language and text.strip(FILE):
            _scan(call, language, text)


def _scan(call: Call, language: str, code: str) -> None:
    from .interpreters import scan

    scan(call, language, code)


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
    for path in [chosen] if chosen else ["Makefile", "makefile", "GNUmakefile", "justfile"]:
        text = call.stdin if path in ("-", "/dev/stdin") else call.machine.read_file(path, call.state)
        texts += [text] if text else []
    for text in texts:
        if "\ufdd1" in text:
            call.emit("exec.network", "makefile")
        for line in re.findall(
            r"(?m)^(?:\t| {4})\s*[@\-+]*(.+)$|^[\w.%-]+\s*:[^=\n]*;\s*[@\-+]*(.+)$|\$\(shell ([^)]+)\)", text
        ):
            recipe = next(part for part in line if part).replace("$$", "$")
            call.shell(recipe)


@program("systemd-tmpfiles logrotate run-parts start-stop-daemon dbus-daemon")
def _daemon(call: Call) -> str | None:
    options = call.options("xanpcu", ("exec", "startas", "name", "pidfile", "chuid", "user"))
    if call.name == "start-stop-daemon" and options.get("c", "chuid"):
        call.emit("privilege.become")
    for path in options.all("exec", "x", "a", "startas"):
        call.run([path, *options.rest])
    return UNKNOWN


@program("ssh-keygen ssh-copy-id ssh-add ssh-agent ssh-keyscan")
def _keys(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    if call.name == "ssh-copy-id":
        call.emit("persist.keys")
    if call.name == "ssh-keygen" and "-D" in words:
        call.emit("exec.hidden")
    if call.name == "ssh-keygen" and {"-y", "-e", "-p"} & set(words) and "-f" in words[:-1]:
        call.read(words[words.index("-f") + 1])
    if call.name == "ssh-keygen" and "-f" in words and words.index("-f") + 1 < len(words):
        full, kind, flags = call.locate(words[words.index("-f") + 1])
        if kind in ("system", "exec_hook") or full.startswith("/etc/"):
            call.write(full)
    return FILE if call.name == "ssh-agent" else ATOM
