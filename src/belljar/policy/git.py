"""git: settings that execute, transports that execute, hooks; and what its everyday commands print."""

import re

from .call import Call, program
from .environment import quiet_command
from .expand import flat
from .marks import ATOM, FILE, NETWORK, SECRET, SENSITIVE, STAR, has, show, solid, unglob
from .network import sends
from .paths import WORKSPACE
from .quoting import listed

_EXECUTING = re.compile(
    r"(?i)(alias\..+|core\.(hookspath|fsmonitor|sshcommand|pager|editor|askpass|gitproxy|alternaterefscomman"
    r"d|attributesfile|worktree)|pager\..+|sequence\.editor|credential\..*helper|credential\.helper|"
    r"diff\..+\.(command|textconv)"
    r"|diff\.external|difftool\..+\.cmd|mergetool\..+\.cmd|merge\..+\.driver|filter\..+\.(clean|"
    r"smudge|process)|gpg\.(.+\.)?program|include(if\..+)?\.path|init\.templatedir|interactive\.difffilter|"
    r"protocol\.(.+\.)?allow|remote\..+\.(uploadpack|receivepack|vcs|proxy)"
    r"|uploadpack\.packobjectshook|url\..+\.insteadof|web\.browser|man\..+\.cmd|browser\..+\.(cmd|"
    r"path)|sendemail\..*|submodule\..+\.update|trailer\..+\.(command|cmd)|ssh\.variant|(diff|merge)tool\..+\.path|imap\.tunnel|.*hook|.*cmd|tar\..+\.command|"
    r"guitool\..+|hook\..+|fsmonitor\..*|safe\.directory-exec|receive\.procreceiverefs|instaweb\..*|"
    r"log\.showsignature-cmd)"
)
_HARMLESS = re.compile(
    r"(?i)(cat|less( -\w+)*|more|vim?|nvim|nano|emacs|code( --wait)?|true|false|:|delta|diff-so-fancy.*|"
    r"store|cache.*|osxkeychain|manager(-core)?|true|never|user|ssh( -[io] ?\S+)*|gpg2?|vimdiff|"
    r"meld|bat|)"
)


def _setting(call: Call, key: str, value: str) -> None:
    key, value = solid(key), unglob(solid(value)).strip()
    if not _EXECUTING.fullmatch(key):
        return
    low = key.lower()
    if low.startswith("alias."):
        if value.startswith("!"):
            call.emit("persist.git", f"{key}={value}")
            call.shell(value[1:])
        return
    if low.startswith("url."):
        if "ext::" in key + value:
            call.emit("persist.git", f"{key}={value}")
        return
    if (low.startswith("filter.lfs.") and value.startswith("git-lfs")) or (
        low.startswith(("pager.", "submodule.", "sendemail."))
        and not low.endswith("cmd")
        and re.fullmatch(r"[\w-]*", value)
    ):
        return
    if low == "core.hookspath" and re.fullmatch(r"/dev/null|", value):
        return
    places = ("workspace", "workspace_root", "scratch")
    if low == "protocol.file.allow" or (low == "core.worktree" and call.locate(value)[1] in places):
        return
    if (_HARMLESS.fullmatch(value) and "helper" not in low) or (
        low.startswith("credential") and re.fullmatch(r"(store|cache|osxkeychain|manager)?( --\S+( \S+)?)*", value)
    ):
        return
    if re.search(r"editor|pager", low) and quiet_command(value):
        return
    call.emit("persist.git", f"{key}={value}")
    if not value.startswith("/") or " " in value:
        call.shell(value.lstrip("!"))


@program("git hub jj hg svn yadm")
def _git(call: Call) -> str | None:
    args, tree = list(call.args), flat(call.state.env.get("GIT_WORK_TREE", ""))
    while args and args[0].startswith("-"):
        flag = solid(args.pop(0))
        if flag in ("-c", "--config-env") and args:
            key, _, value = args.pop(0).partition("=")
            _setting(call, key, (flag != "-c" and solid(flat(call.state.get(value)))) or value or "true")
        elif flag.startswith("--config-env="):
            args = ["--config-env", flag.partition("=")[2], *args]
        elif flag.startswith("-c") and "=" in flag:
            key, _, value = flag.removeprefix("-c").partition("=")
            _setting(call, key, value)
        elif flag in ("-C", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config") and args:
            value = args.pop(0)
            if flag == "--exec-path":
                call.emit("persist.git", f"--exec-path {show(value)}")
            if flag == "--config" and call.name == "hg" and re.match(r"(alias|hooks|extensions)\.", value):
                call.emit("persist.git", value)
                call.shell(value.partition("=")[2].lstrip("!"))
            if flag == "-C":
                call.state = call.state.fork()
                call.state.cwd = call.locate(value)[0]
            if flag in ("--work-tree", "-C"):
                tree = value
        elif flag.startswith("--work-tree="):
            tree = flag.partition("=")[2]
        elif flag.startswith("--exec-path="):
            call.emit("persist.git", flag)
    if not args:
        return None
    verb, rest = solid(args[0]), args[1:]
    if verb not in ("rebase", "format-patch"):
        _transport(call, rest)
    pack = (
        next((index for index, word in enumerate(rest) if re.match(r"-u", word)), -1)
        if verb in ("clone", "fetch", "pull", "ls-remote")
        else -1
    )
    if pack >= 0:
        command = rest[pack][2:] or (rest[pack + 1] if pack + 1 < len(rest) else "")
        call.emit("exec.hidden", f"git {verb} -u {command}")
        call.shell(unglob(command))
    if verb in ("clean", "checkout", "restore", "reset") and call.locate(tree or ".")[1] not in listed(
        "workspace workspace_root scratch elsewhere unknown"
    ):
        call.delete(tree or ".", "recursive")
    handler = _VERBS.get(verb)
    return handler(call, rest) if handler else _other(call, verb, rest)


def _transport(call: Call, rest: list[str]) -> None:
    for index, word in enumerate(rest):
        bare = unglob(solid(word))
        found = re.match(r"--(upload-pack|receive-pack|exec)(?:=(.*))?$", bare)
        value = (
            found[2] if found and found[2] is not None else rest[index + 1] if found and index + 1 < len(rest) else ""
        )
        if found and value and not re.fullmatch(r"git[ -](upload|receive)-pack", value):
            call.emit("exec.hidden", bare)
            call.shell(unglob(value))
        bare = bare.removeprefix("--remote=")
        if bare.startswith("ext::") or re.match(r"(fd|remote-ext)::", bare):
            call.emit("exec.hidden", bare)
            call.shell(re.sub(r"%.", " ", bare.partition("::")[2]))
        if re.match(r"ssh://-|-oProxyCommand|\S+@-o", bare):
            call.emit("exec.hidden", bare)


def _config(call: Call, rest: list[str]) -> str | None:
    words = [
        word
        for word in rest
        if not re.fullmatch(
            r"--(global|local|system|worktree|add|replace-all|type=.*|bool|int|path|set|fixed-value|show-origin)|"
            r"set",
            word,
        )
    ]
    if any(
        re.match(
            r"--(get|list|unset|get-regexp|get-all|remove-section|show-scope|name-only)|-l$|get$|list$|unset$", word
        )
        for word in rest
    ):
        if re.search(r"(?i)extraheader|password|token|secret", " ".join(rest)):
            call.machine.emit("read", "a credential in git's settings", "secret", program="git")
        return ATOM
    if rest[:1] in (["--edit"], ["-e"], ["edit"]):
        return None
    for flag in ("-f", "--file"):
        if flag in words:
            at = words.index(flag)
            call.write(words[at + 1]) if at + 1 < len(words) and len(words) > at + 3 else None
            words = words[:at] + words[at + 2 :]
    if len(words) >= 2:
        _setting(call, words[0], words[1])
    return ATOM


def _rebase(call: Call, rest: list[str]) -> str | None:
    """--exec of rebase, bisect run, submodule foreach, filter-branch: commands that git runs for you."""
    call.args = rest
    options = call.options("xs", ("exec", "onto", "strategy"))
    for text in options.all("x", "exec"):
        call.shell(unglob(text))
    return None


def _foreach(call: Call, rest: list[str]) -> str | None:
    words = [word for word in rest if not word.startswith("-")]
    if words[:1] == ["foreach"]:
        call.shell(unglob(" ".join(words[1:])))
    elif words[:1] == ["run"]:
        command = rest[rest.index("run") + 1 :]
        call.run(command) if len(command) > 1 else call.shell(unglob(command[0]) if command else "")
    return None


def _filter_branch(call: Call, rest: list[str]) -> str | None:
    for index, word in enumerate(rest[:-1]):
        if re.fullmatch(
            r"--(tree|index|msg|env|commit|parent|tag-name|subdirectory|setup)(-filter)?|--(filename|blob|"
            r"message)-callback",
            word,
        ):
            text = unglob(rest[index + 1])
            if "callback" in word:
                from .interpreters import scan

                scan(call, "python", text)
            else:
                state = call.state.fork()
                state.cwd = WORKSPACE + "/.tree"
                with call.machine.under("git filter-branch"):
                    call.machine.run_text(text, state)
    return None


def _clone(call: Call, rest: list[str]) -> str | None:
    for index, word in enumerate(rest):
        setting = (
            word[9:]
            if word.startswith("--config=")
            else rest[index + 1]
            if word in ("-c", "--config") and index + 1 < len(rest)
            else ""
        )
        if setting:
            key, _, value = setting.partition("=")
            _setting(call, key, value)
        if re.match(r"--template(=|$)", word):
            template = word.partition("=")[2] or (rest[index + 1] if index + 1 < len(rest) else "")
            call.emit("persist.git", f"--template {template}") if template else None
    call.emit("net.fetch")
    words = [word for word in rest if not word.startswith("-")]
    if (
        words
        and call.locate(words[-1])[1] in ("system", "root", "kernel", "exec_hook")
        and words[-1].startswith(("/", ".."))
    ):
        call.write(words[-1])
    url = next((word for word in words if re.match(r"\w+://|[\w.-]+@[\w.-]+:|git::", word)), "")
    if url and not url.startswith("file:"):
        after = words[words.index(url) + 1 :]
        name = after[0] if after else re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
        call.state.fetched.add(call.locate(name)[0])
    return None


_MESSAGES = ".git/COMMIT_EDITMSG"


def _push(call: Call, rest: list[str]) -> str | None:
    """What leaves: the names that are pushed, and what this command put into messages and files before."""
    call.emit("exec.push")
    words = [re.sub(r"//[^/@]*@", "//", word) for word in rest]
    held = call.machine.read_file(_MESSAGES, call.state)
    files = call.state.files.values() if held is not None else []
    text = "".join([*words, held or "", *(text for text in files if has(text, SECRET + SENSITIVE))])
    sends(call, text, "a remote") if has(text, SECRET + SENSITIVE) else None
    return None


def _fetch(call: Call, rest: list[str]) -> str | None:
    """What a remote is said to hold came from the network; from an address that is written out, all of it may."""
    call.emit("net.fetch")
    outside = any(re.match(r"(https?|git|ssh)://|[\w.-]+@[\w.-]+:", word) for word in rest)
    call.state.fetched.add(call.locate("." if outside else ".git/refs/remotes")[0])
    return None


def _fetched(call: Call, words: list[str]) -> bool:
    objects = [word.partition(":")[0] for word in words if ":" in word and word[:1] != "-"]
    here = call.fetched(call.locate(f"{call.state.cwd}/x")[0])
    refs = [call.locate(f".git/refs/remotes/{name}")[0] for name in objects if "/" in name]
    named = any(name.startswith("FETCH_HEAD") for name in objects) or any(w.startswith("--remote=") for w in words)
    return named or (here and bool(objects)) or any(call.fetched(ref) for ref in refs)


def _clean(call: Call, rest: list[str]) -> str | None:
    call.emit("exec.clean")
    return None


def _rev_parse(call: Call, rest: list[str]) -> str:
    if rest[:1] == ["--git-path"]:
        return f".git/{rest[1] if len(rest) > 1 else ''}\n"
    return {"--show-toplevel": WORKSPACE, "--git-dir": ".git", "--git-common-dir": ".git"}.get(
        solid(rest[0]) if rest else "", ATOM
    ) + "\n"


def _credential(call: Call, rest: list[str]) -> str:
    if rest[:1] in (["fill"], ["get"]):
        call.machine.emit("read", "git credential", "secret", program="git")
        return SECRET
    return ""


def _grep(call: Call, rest: list[str]) -> str:
    call.args = rest
    options = call.options("eABCOfm")
    pager = next((word for word in rest if re.match(r"-O.|--open-files-in-pager=", word)), "")
    if pager:
        call.emit("exec.hidden", pager)
        call.shell(re.sub(r"^(-O|--open-files-in-pager=)", "", pager))
    return ATOM if options.has("l", "files-with-matches", "name-only") else FILE


def _other(call: Call, verb: str, rest: list[str]) -> str | None:
    words = [solid(word) for word in rest]
    if verb in ("difftool", "mergetool", "diff", "log", "show"):
        for word in words:
            found = re.match(r"(?:-x|--extcmd=)(.+)", word)
            if found and verb == "difftool":
                call.shell(found[1])
        if verb == "difftool" and "-x" in words[:-1]:
            command = unglob(words[words.index("-x") + 1])
            call.shell(command)
            if re.search(r"sh\b", command.split()[0] if command else ""):
                call.emit("exec.hidden", command)
    for index, word in enumerate(words):
        if word.startswith("--output="):
            call.write(word.partition("=")[2])
        if word in ("-o", "--output") and verb in ("archive", "diff", "log") and index + 1 < len(words):
            call.write(words[index + 1])
    if (
        verb in ("rm",)
        and words
        and words[-1] in (".", "*", "./", "-r*", ":/")
        and any("r" in word for word in words if word.startswith("-"))
        and "--cached" not in words
    ):
        call.delete(".", "recursive")
    if verb in ("add", "hash-object", "diff", "apply", "stash", "commit", "notes", "bundle"):
        for word in words:
            if not word.startswith("-") and "/" in word and " " not in word and call.locate(word)[1] == "secret":
                call.read(word)
    if verb in listed("add commit tag notes branch checkout switch stash hash-object update-ref commit-tree"):
        call.machine.write_file(_MESSAGES, "".join([*call.args, call.stdin]), call.state, append=True)
        for word in rest if verb in ("add", "hash-object") else []:
            call.machine.write_file(
                _MESSAGES, SENSITIVE if "sensitive" in call.locate(word)[2] else "", call.state, True
            )
    if (verb in ("show", "cat-file", "archive") and _fetched(call, words)) or (
        verb == "cat" and "://" in "".join(words)
    ):
        return NETWORK
    if verb == "send-email":
        for word in words:
            if re.match(r"--(smtp-server|to-cmd|cc-cmd|sendmail-cmd|header-cmd)=?[/.]", word):
                call.emit("exec.hidden", word)
    if verb == "daemon":
        call.emit("net.listen")
    if verb == "ls-files" and not [word for word in words if word not in ("-z", "--", ".", "-c", "--cached")]:
        return STAR + "\n"
    names = verb in listed(
        "ls-files ls-tree branch tag stash status describe merge-base symbolic-ref remote for-each-ref"
    ) or any("name-only" in word or "name-status" in word or "%h" in word.lower() for word in words)
    return ATOM + "\n" if names else FILE


_VERBS = {
    "config": _config,
    "rebase": _rebase,
    "bisect": _foreach,
    "submodule": _foreach,
    "filter-branch": _filter_branch,
    "filter-repo": _filter_branch,
    "clone": _clone,
    "init": _clone,
    "push": _push,
    "fetch": _fetch,
    "pull": _fetch,
    "clean": _clean,
    "rev-parse": _rev_parse,
    "credential": _credential,
    "credential-store": _credential,
    "credential-cache": _credential,
    "grep": _grep,
}
