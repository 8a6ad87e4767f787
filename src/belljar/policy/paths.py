"""Path classes: what a path inside the sandbox means to its owner.

Paths are resolved lexically (`..`, `//`, `/./`), against the directory the shell would be in and against the symbolic
links the same command made. A glob stands for what it could match.
"""

import fnmatch
import functools
import re

from .marks import ANY, ATOM, BRACKET, GLOBS, HOLES, STAR, UNSET, has, has_glob, known, solid, unglob
from .quoting import listed

WORKSPACE = "/workspace"
HOME = "/home/sandbox"

_SCRATCH = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")
_SYSTEM = listed(
    "bin boot etc lib lib32 lib64 libx32 opt run sbin srv usr var mnt media lost+found .belljar System Library "
    "init vmlinuz initrd.img swapfile .dockerenv"
)
_HARMLESS_DEVICES = re.compile(
    r"/dev/(null|zero|full|u?random|tty\w*|console|std(in|out|err)|fd(/.*)?|pts(/.*)?|ptmx)$"
)
_USER_DIRS = listed(
    "Documents Desktop Downloads Pictures Music Videos Library .ssh .gnupg .config .aws .kube .local .docker"
)

_IN_HOME_SECRETS = [
    r"\.ssh/(?!config$|known_hosts|authorized_keys|[^/]*\.pub$|environment$|rc$).+",
    r"\.ssh",
    r"\.gnupg(/.*)?",
    r"\.aws/(credentials|cli/cache|sso)(/.*)?",
    r"\.netrc",
    r"_netrc",
    r"\.git-credentials",
    r"\.config/git/credentials",
    r"\.npmrc",
    r"\.pypirc",
    r"\.docker/config\.json",
    r"\.kube(/config)?",
    r"\.pgpass",
    r"\.my\.cnf",
    r"\.config/gcloud(/.*)?",
    r"\.azure(/.*)?",
    r"\.config/gh(/hosts\.yml)?",
    r"\.config/hub",
    r"\.cargo/credentials(\.toml)?",
    r"\.gem/credentials",
    r"\.terraform\.d/credentials\.tfrc\.json",
    r"\.vault-token",
    r"\.password-store(/.*)?",
    r"\.local/share/keyrings(/.*)?",
    r"\.mozilla(/.*)?",
    r"\.config/(google-chrome|chromium|BraveSoftware)(/.*)?",
    r"\.bitcoin(/.*)?",
    r"\.electrum(/.*)?",
    r"\.ethereum(/.*)?",
    r"\.m2/settings\.xml",
    r"\.gradle/gradle\.properties",
    r"\.config/rclone/rclone\.conf",
    r"\.boto",
    r"\.s3cfg",
    r"\.bash_history",
    r"\.zsh_history",
    r"\.python_history",
    r"\.psql_history",
    r"\.mysql_history",
    r"\.config/op(/.*)?",
    r"\.claude/\.credentials\.json",
    r"\.codex/auth\.json",
    r"\.config/sops(/.*)?",
    r"Library/Keychains(/.*)?",
    r"\.aws",
    r"\.subversion/auth(/.*)?",
    r"\.config/doctl(/.*)?",
    r"\.fly(/.*)?",
    r"\.oci(/.*)?",
    r"\.lesshst",
    r"\.viminfo",
    r"\.zhistory",
    r"\.histfile",
]
_SECRET_HOME = re.compile(rf"(?:/home/[^/]+|/Users/[^/]+|/root)/(?:{'|'.join(_IN_HOME_SECRETS)})")
_SECRET = re.compile(
    r"(?:/home/[^/]+|/Users/[^/]+|/root)/\.(?:[^/]+/)*\.?(?:token|credentials?|secrets?|auth|api[_-]?key|kaggle|password)s?"
    r"(?:\.(?:json|ya?ml|toml|ini|txt))?|(?:/home/[^/]+|/root)/\.(?:dockercfg|terraformrc|m2/settings-security\.xml)"
    r"|/etc/(?:.*/)?(?:privkey[^/]*\.pem|[^/]*\.key|k3s\.yaml)|/etc/letsencrypt/(?:live|archive|keys)/.*"
    r"|"
    r"/etc/(shadow-?|gshadow-?|sudoers(\.d(/.*)?)?|security/opasswd|krb5\.keytab|ssh/ssh_host_[^/]*_key|"
    r"ssl/private(/.*)?"
    r"|NetworkManager/system-connections(/.*)?|wpa_supplicant(/.*)?|kubernetes(/.*)?|docker/key\.json)"
    r"|/(var/)?run/secrets(/.*)?|/proc/[^/]+/(environ|mem|maps|cmdline-secret)|/proc/[^/]+/task/[^/]+/enviro"
    r"n"
    r"|/var/lib/(kubelet|docker|rancher)(/.*)?|/root/\.ssh(/.*)?"
    r"|/var/spool/cron(/.*)?|.*/\.ssh/id_[a-z0-9]+|.*/\.git-credentials|.*/\.aws/credentials"
)
_OWN_PROC = re.compile(r"/proc/(self|thread-self|\d*)/maps$|/proc/(self|thread-self)/(mem|environ)$")
_HOOK = re.compile(
    r".*/\.git/(hooks(/.*)?|config|config\.worktree|info/attributes)|.*/\.git/(modules|worktrees)/.*/(hooks/.*|"
    r"config(\.worktree)?)"
    r"|/etc/(cron[^/]*(/.*)?|anacrontab|profile(\.d(/.*)?)?|bash\.bashrc|bashrc|zsh(/.*)?|environment|"
    r"ld\.so\.(preload|conf(\.d(/.*)?)?)"
    r"|rc\.local|rc\d?\.d(/.*)?|init\.d(/.*)?|init(/.*)?|inittab|systemd(/.*)?|pam\.d(/.*)?|update-motd\.d(/.*)?|"
    r"xdg/autostart(/.*)?|udev(/.*)?"
    r"|apt/apt\.conf\.d(/.*)?|logrotate\.d(/.*)?|modules-load\.d(/.*)?|gitconfig|binfmt\.d(/.*)?)"
    r"|/(usr/)?lib/systemd/(system|user)(/.*)?|/var/spool/(cron|at)(/.*)?"
    r"|(?:/home/[^/]+|/Users/[^/]+|/root)/(\.bashrc|\.bash_profile|\.bash_login|\.bash_logout|"
    r"\.bash_aliases|\.profile|\.zshrc|\.zshenv"
    r"|\.zprofile|\.zlogin|\.zlogout|\.kshrc|\.cshrc|\.tcshrc|\.login|\.inputrc|\.ssh/(authorized_keys2?|"
    r"config|rc|environment)|\.gitconfig|\.config/git/(config|hooks(/.*)?|attributes)"
    r"|\.config/(fish|autostart|systemd|environment\.d)(/.*)?|\.local/share/systemd(/.*)?|\.xinitrc|"
    r"\.xsession(rc)?|\.xprofile|\.pam_environment|\.vimrc|\.vim/(plugin|autoload)(/.*)?"
    r"|\.config/nvim/init\.(vim|lua)|\.ipython/profile_[^/]+/startup(/.*)?|\.jupyter/jupyter_\w+_config\.py|"
    r"\.emacs(\.d/init\.el)?|\.pythonrc(\.py)?|\.pdbrc|\.gdbinit|\.lldbinit|"
    r"\.irbrc|\.pryrc|\.tmux\.conf|\.screenrc|\.wgetrc|\.curlrc|\.forward|\.procmailrc"
    r"|\.(?!npmrc$|netrc$|pypirc$|eslintrc|prettierrc|babelrc|yarnrc|condarc|gemrc|mambarc|lessrc)[\w-]*rc(\.d(/.*)?)?"
    r"|\.\w*_?profile|\.z(log\w+|sh\w*)|\.config/[^/]+/\.?\w*(?<!np)rc|\.oh-my-zsh/custom(/.*)?|\.config/zsh(/.*)?"
    r"|\.gradle/init(\.d/.*|\.gradle(\.kts)?)|\.mailcap|\.lessfilter|Library/Launch(Agents|Daemons)(/.*)?|\.git-templates?(/.*)?)"
    r"|/Library/Launch(Agents|Daemons)(/.*)?|.*/site-packages/(sitecustomize|usercustomize)\.py|"
    r".*/site-packages/[^/]*\.pth|.*/dist-packages/[^/]*\.pth|.*/etc/conda/(de)?activate\.d/.*"
)
_HOST_LATER = re.compile(
    rf"{WORKSPACE}/(.*/)?(\.envrc|\.vscode/(tasks|launch|settings)\.json|\.idea/.*|\.devcontainer/.*|"
    rf"\.mcp\.json|\.claude/settings(\.local)?\.json|\.cursor/mcp\.json)"
)
_SENSITIVE = re.compile(
    r".*/(\.env(\.(?!example|sample|template|dist|test$)[\w.-]+)?|[^/]*\.(pem|key|p12|pfx|jks|"
    r"keystore|kdbx)|[^/]*(credentials?|secrets?)[^/]*\.(json|ya?ml|toml|ini|txt|env)"
    r"|secrets?|credentials?|service-account[^/]*\.json|\.npmrc|\.pypirc|\.netrc|\.htpasswd|[^/]*id_(rsa|"
    r"ed25519|ecdsa|dsa)|terraform\.tfstate|\.git/config)"
)
_ENGINE = re.compile(
    r"(/var)?/run/(docker|containerd|podman|crio|user/\d+/(podman|docker))(/.*)?(\.sock)?.*|.*/(docker|"
    r"containerd|podman|crio)\.sock"
)
_ESCAPE = re.compile(
    r"/proc/(1|[\ufdd0\ufdd8-\ufdda]+)/(root|cwd|ns|fd|mem|exe|map_files)(/.*)?|/proc/sysrq-trigger|"
    r"/proc/(kcore|kmem|kallsyms|keys|acpi|scsi)(/.*)?"
    r"|/sys/(firmware|kernel/(security|debug|tracing))(/.*)?"
)


def resolve(path: str, cwd: str, links: dict[str, str] | None = None, home: str = HOME, last: bool = True) -> str:
    """The absolute path, with `.`, `..`, doubled slashes and links of this command's own making taken out (the last
    component's too, unless the link itself is meant)."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif path.startswith("~"):
        user, _, rest = path[1:].partition("/")
        path = ("/root" if user == "root" else f"/home/{user or 'sandbox'}") + ("/" + rest if rest else "")
    absolute = path if path.startswith("/") else f"{cwd}/{path}"
    done, parts = "", absolute.split("/")
    for hop, part in enumerate(parts):
        if part in ("", ".") or hop > 4000:
            continue
        done = done.rsplit("/", 1)[0] if part == ".." else f"{done}/{part}"
        if links and done in links and (last or hop < len(parts) - 1):
            done = resolve(links[done], "/", {k: v for k, v in links.items() if k != done}, home).rstrip("/")
    return done or "/"


def could_match(pattern: str, path: str) -> bool:
    """Whether a path with active globs (or holes) could stand for this one."""
    regex = _shape(re.sub(f"{STAR}+", STAR, pattern)) if pattern.count(STAR) <= 12 else None
    return (regex is None or regex.fullmatch(path) is not None) and not any(
        part[:1] == "." and shape[:1] in (STAR, ANY, BRACKET)  # a glob does not match a leading dot
        for part, shape in zip(path.split("/"), pattern.split("/"), strict=False)
    )


@functools.lru_cache(maxsize=256)
def _shape(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile("".join(_regex_piece(piece) for piece in re.findall(f"{BRACKET}[^]/]*]|.", pattern, re.S)))
    except re.error:
        return None


def _regex_piece(piece: str) -> str:
    if piece in (STAR, ATOM) or piece in HOLES:
        return "[^/]*"
    if piece == ANY:
        return "[^/]"
    if piece[0] == BRACKET and len(piece) > 1:
        return fnmatch.translate("[" + unglob(piece[1:])).removeprefix("(?s:").removesuffix(")\\Z")
    return re.escape(piece)


def _sampled(pattern: str) -> list[str]:
    """Paths that a pattern of secrets stands for: each alternative, with and without what may be left out."""
    group = re.search(r"\(([^()]*)\)(\??)", pattern)
    if not group:
        return [pattern.removesuffix("/.*").replace("\\", "")]
    parts = [*group[1].split("|"), *([""] if group[2] else [])]
    return [one for part in parts for one in _sampled(pattern[: group.start()] + part + pattern[group.end() :])]


_SAMPLES = (
    *listed(
        "/etc/shadow /etc/gshadow /etc/sudoers /proc/1/environ /proc/1/root /root/.ssh/id_rsa /var/run/docker.sock "
        "/run/docker.sock /workspace/.git/hooks/pre-commit /workspace/.git/hooks /workspace/.git/config /etc/passwd"
    ),
    *(
        f"{home}/{name}"
        for home in (HOME, "/root", "/home/me")
        for name in (
            *listed(".ssh/id_rsa .ssh/id_ed25519 .bashrc .ssh .gnupg .cache/huggingface/token .kaggle/kaggle.json"),
            *(one for pattern in _IN_HOME_SECRETS if "(?" not in pattern for one in _sampled(pattern)),
        )
    ),
)


def classify(path: str) -> tuple[str, frozenset[str]]:
    """The class of an absolute path as `resolve` gives it, and its flags."""
    if has_glob(path):
        return _classify_glob(path)
    if has(path, HOLES):
        return _classify_hole(path)
    return _classify_known(path)


def _classify_glob(path: str) -> tuple[str, frozenset[str]]:
    if path.startswith("/proc/"):
        kind, flags = _classify_known(re.sub(f"^/proc/[^/]*[{STAR}{ANY}{BRACKET}][^/]*", "/proc/1", path))
        if flags or kind == "secret":
            return kind, flags | {"glob"}
    head, _, first = _split_at_glob(path)
    if _covers_all(first) and re.fullmatch(rf"(/[{GLOBSET}]+)*/?", path[len(head.rstrip("/")) + 1 + len(first) :]):
        kind, flags = classify(head or "/")
        return kind, flags | {"glob", "all"}
    start = re.split(f"[{GLOBS}{HOLES}]", path, maxsplit=1)[0]
    plain, parts = re.sub(f"[{STAR}{ANY}]|{BRACKET}[^]/]*]", "x", path), path.split("/")
    for sample in _SAMPLES:
        depth = sample.count("/") + 1
        if depth <= len(parts) and sample.startswith(start) and could_match("/".join(parts[:depth]), sample):
            kind, flags = _classify_known("/".join([sample, *plain.split("/")[depth:]]))
            if (
                kind == "secret"
                or "escape" in flags
                or (len(parts) == depth and (kind != "system" or not head.startswith(WORKSPACE)))
            ):
                return kind, flags | {"glob"}
    if head in ("", "/"):
        return ("system", frozenset({"glob", "top"}))
    kind, flags = _classify_known(plain)
    return kind, flags | {"glob"}


GLOBSET = STAR + ANY


def _covers_all(name: str) -> bool:
    """Whether a pattern stands for (about) everything in its directory: *, .*, ?*, [a-z]*, .[!.]*"""
    return (
        re.fullmatch(rf"\.?(?:{BRACKET}[^]]*]|{ANY})*{STAR}+|\.{{0,2}}(?:{ANY}|{BRACKET}[!^][^]]*])+{STAR}+", name)
        is not None
    )


def _split_at_glob(path: str) -> tuple[str, str, str]:
    parts = path.split("/")
    for index, part in enumerate(parts):
        if has_glob(part):
            return "/".join(parts[:index]) or "/", "/".join(parts[index + 1 :]), part
    return path, "", ""


def _classify_hole(path: str) -> tuple[str, frozenset[str]]:
    """Known up to a hole: inside its known parent, or anywhere where the hole comes first."""
    if UNSET in path:
        kind, flags = classify(resolve(solid(path) or "/", "/"))
        return kind, flags | {"unset"}
    head, hole, _ = re.split(f"([{HOLES}])", path, maxsplit=1)
    parent = head.rsplit("/", 1)[0] or "/"
    if hole == ATOM:
        kind, flags = _classify_known(path) if parent != "/" else ("system", frozenset({"top"}))
        return kind, flags
    if parent == "/":
        return "unknown", frozenset({"unknown"})
    kind, flags = _classify_known(parent + "/x" if kind_is_deep(parent) else path)
    return kind, flags | {"unknown"}


def kind_is_deep(parent: str) -> bool:
    return parent.startswith((WORKSPACE, *_SCRATCH))


def _classify_known(path: str) -> tuple[str, frozenset[str]]:
    none: frozenset[str] = frozenset()
    if path in ("/", WORKSPACE):
        return ("root" if path == "/" else "workspace_root"), none
    if path.startswith(WORKSPACE + "/"):
        return _classify_workspace(path)
    if _ENGINE.fullmatch(path):
        return "kernel", frozenset({"engine"})
    if _HOOK.fullmatch(path):
        return "exec_hook", frozenset({"secret"}) if _secret(path) else none
    if _secret(path):
        return "secret", none
    if path.startswith(_SCRATCH) and re.match(r"(/tmp|/var/tmp|/dev/shm|/private/tmp)(/|$)", path):
        return "scratch", frozenset({"top"}) if path in _SCRATCH else none
    if path.startswith("/dev/") or path == "/dev":
        if re.match(r"/dev/(tcp|udp)/", path):
            return "device", frozenset({"socket"})
        return ("scratch", frozenset({"sink"})) if _HARMLESS_DEVICES.match(path) else ("device", none)
    if re.match(r"/(proc|sys)(/|$)", path):
        return "kernel", frozenset({"escape"}) if _ESCAPE.fullmatch(path) else none
    return _classify_outer(path)


def _secret(path: str) -> bool:
    return (_SECRET_HOME.fullmatch(path) or _SECRET.fullmatch(path)) is not None and not _OWN_PROC.fullmatch(path)


def _classify_workspace(path: str) -> tuple[str, frozenset[str]]:
    if _HOOK.fullmatch(path):
        return "exec_hook", frozenset()
    if re.fullmatch(rf"{WORKSPACE}/\.git(/objects|/refs|/HEAD)?", path):
        return "workspace_root", frozenset({"git"})
    flags = {"sensitive"} if _SENSITIVE.fullmatch(path) else set()
    if _HOST_LATER.fullmatch(path):
        flags.add("later")
    if re.search(r"/\.git(/|$)", path):
        flags.add("git")
    return (
        "secret" if re.search(r"/\.ssh/id_|/\.git-credentials$|/\.aws/credentials$", path) else "workspace"
    ), frozenset(flags)


_RECORDS = re.compile(  # who was here, and what happened
    r"/var/log/([wb]tmp|lastlog|faillog|(auth|kern|user|daemon|mail|cron|boot|dpkg)\.log|syslog|messages|secure|audit|journal)(/|$)"
)


def _classify_outer(path: str) -> tuple[str, frozenset[str]]:
    parts = path.strip("/").split("/")
    if parts[0] in ("home", "Users"):
        return "home", _home_flags(parts[1:])
    if parts[0] == "root":
        return "home", _home_flags(["root", *parts[1:]])
    if re.match(r"/var/lib/apt/lists(/|$)|/var/(cache|log)/.", path) and not _RECORDS.match(path):
        return "elsewhere", frozenset()
    ours = parts[0].startswith(".belljar")  # our own files in a sandbox; the rest of the name is random
    if parts[0] in _SYSTEM or ours:
        return "system", frozenset({"top"}) if len(parts) == 1 else frozenset({"engine"}) if ours else frozenset()
    return (
        ("system", frozenset({"top", "odd"}))
        if len(parts) == 1
        else ("elsewhere", frozenset({"sensitive"}) if _SENSITIVE.fullmatch(path) else frozenset())
    )


def _home_flags(below: list[str]) -> frozenset[str]:
    """A home itself has no flag; `inner` is a place in it that may be deleted and rebuilt."""
    if len(below) < 2:
        return frozenset()
    if len(below) == 2 and below[0] != "sandbox" and not below[1].startswith("."):
        return frozenset({"child"})
    if len(below) == 2 and (below[1] in _USER_DIRS or not known(below[1])):
        return frozenset({"child"})
    return frozenset({"inner", "sensitive"}) if _SENSITIVE.fullmatch("/" + "/".join(below)) else frozenset({"inner"})
