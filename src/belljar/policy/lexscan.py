"""Other languages' one-liners, read tolerantly: string literals are folded, then the calls that matter are looked for.

No grammar per language: what counts is the text that reaches a call that runs, deletes, writes, reads or sends.
"""

import re

from . import shapes
from .call import Call
from .codetext import MAX_CODE, after, balanced, constant, edited, quoted, unrolled
from .deletions import DELETISH, masked_code, named_targets, path_literals
from .folding import _STRING, _places, fold, unquote
from .machine import SUSPECT
from .marks import ATOM, DISGUISED, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, has, solid, unglob
from .parser import TooComplex
from .quoting import listed
from .roles_net import metadata
from .shellstate import BASE_ENV, PERHAPS


class LexScan:
    def __init__(self, call: Call, language: str, code: str, argv: list[str] | None = None) -> None:
        self.call, self.language, self.argv = call, language, argv or []
        self.stdin = call.stdin if call.stdin != code else ""
        call.machine.tick()
        self._bounded(code)
        code = shapes.SUBSTITUTION.sub("1", code) if language == "perl" else code
        if language in ("node", "groovy", "c", "other"):
            code = re.sub(r"(?ms)^[ \t]*(?://[^\n]*|/\*.{0,3000}?\*/)", "", code)
        self.code = self._with_names(fold(_places(self._with_environment(code))))
        self.out = ""

    @staticmethod
    def _bounded(code: str) -> str:
        if len(code) > MAX_CODE:
            raise TooComplex("its inline code is too long to judge; put it in a file and run that")
        return code

    def _with_environment(self, code: str) -> str:
        """Put the values in the place of environment variables, and files that this command wrote in theirs."""
        for name, value in self.call.state.env.items():
            if (
                isinstance(value, str)
                and name in code
                and name.isidentifier()
                and name not in BASE_ENV
                and name not in PERHAPS
            ):
                key = rf"['\"]?{name}['\"]?"
                forms = rf"process\.env(?:\.{name}\b|\[{key}\])|\$?ENV[\[{{]{key}[\]}}]|getenv\({key}\)"
                code = self._bounded(re.sub(forms, constant(quoted(value)), code))
        for path in re.findall(r"['\"]([\w./-]+)['\"]", code) if self.call.state.files else []:
            text = self.call.machine.read_file(path, self.call.state)
            if text and SUSPECT.match(text) and shapes.EXECISH.search(code):
                self.call.shell(text)
            if re.search(
                rf"(?:require\w*|import|from|include\w*|load\w*|dlopen|\bdo(?:file)?)\s*\(?\s*(?:\w+\s*,\s*)?['\"]{re.escape(path)}['\"]",
                code,
            ):
                self.call.load(path)
                texts = [self.call.machine.read_file(path + suffix, self.call.state) for suffix in shapes.MODULES]
                code += "".join(f"\n{text}" for text in texts if text)
        return code

    def _with_names(self, code: str) -> str:
        """Put literals in the place of the variables that hold them."""
        for name, literal in re.findall(
            rf"(?:^|[;\s{{(])(?:my\s+|var\s+|let\s+|const\s+|local\s+)?([$@]?\w+)\s*:?=\s*({_STRING})", code
        )[:20]:
            self.call.machine.tick()
            literal = edited(name, literal, code)
            code = re.sub(rf"(?<![\w$'\"`]){re.escape(name)}(?!\w)(?!\s*:?=[^=>])", constant(literal), code)
            self._bounded(code)
            inner = literal[1:-1].replace('"', '\\"')
            inserts = [re.escape(name)] if name.startswith("$") else []
            inserts += [rf"[#$]\{{\s*(?:{re.escape(name)}|{re.escape(literal)})\s*\}}"]
            for insert in inserts:
                code = self._bounded(re.sub(rf'(["`](?:[^"`\\]|\\.)*?){insert}(?!\w)', after(inner), code))
        return fold(self._bounded(unrolled(code)))

    def unquoted(self, literal: str, expand: bool = True) -> str:
        """The text of a literal. In JavaScript and the like only a template has holes."""
        holes = self.language in ("perl", "ruby", "php", "tcl") or literal[0] == "`"
        return unquote(literal, expand and holes)

    def literals(self) -> list[str]:
        found = [self.unquoted(literal) for literal in re.findall(_STRING, self.code)[:200]]
        return found + re.findall(r"<([~/][^<>\s]*)>", self.code) + self._given()

    def _given(self) -> list[str]:
        """Arguments and lines of the standard input, where the code looks at them."""
        given = self.argv if shapes.ARGUMENTS.search(self.code) else []
        looping = any(re.fullmatch(r"-[\w.]*[np]\w*", arg) for arg in self.call.args)
        lines = re.split(r"[\n\0]", self.stdin)[:8] if looping or shapes.STDIN.search(self.code) else []
        return [unglob(word) for word in given if word != "--"] + [line for line in lines if line]

    def run(self) -> None:
        outer, moved = self.call.state, re.search(rf"\bchdir\s*\(?\s*({_STRING})", self.code, re.I)
        if moved:
            self.call.state = outer.fork()
            self.call.state.cwd = self.call.locate(self.unquoted(moved[1]))[0]
        bare = re.sub(_STRING, '""', self.code)
        words = [literal for literal in self.literals() if re.fullmatch(r"\w+", literal)]
        self._shapes(bare)
        if shapes.EXECISH.search(bare) or "|-" in self.code or any(shapes.EXEC_NAME.fullmatch(word) for word in words):
            self._commands()
        for body in (
            [body.replace("$_", self.call.stdin.strip()) for body in re.findall(r"`((?:[^`\\]|\\.)*)`", self.code)]
            if self.language != "node" or "zx" in self.call.args or "$`" in self.code
            else []
        ):
            self.call.shell(self.unquoted(f'"{body}"'))
        for groups in shapes.TICKS.findall(self.code):
            self.call.shell(self.unquoted(f'"{next((group for group in groups if group), "")}"'))
        self._paths(bare, words)
        self._files()
        for literal in shapes.PRINT.findall(self.code):
            self.out += self.unquoted(literal) + "\n"
        self.call.state = outer

    def _shapes(self, bare: str) -> None:
        code, call = self.code, self.call
        connected = shapes.SOCKET.search(code) is not None
        runs = "`" in code or re.search(r"popen|\bexec\w*\b|\bsystem\b|spawn|shell_exec|subprocess", bare) is not None
        if self.language == "node":
            runs = "child_process" in code and re.search(r"\b(?:exec|spawn)\w*\(\s*[^\s'\"`)]", code) is not None
            runs = runs and shapes.REQUEST.search(code) is not None
        if connected and (shapes.SHELLISH.search(code) or runs):
            call.emit("net.shell")
        sent = [shapes.SENT, *map(re.escape, re.findall(rf"([$]?\b\w+)\s*:?=[^\n;=]{{0,80}}?{shapes.SENT}", code)[:5])]
        if shapes.SERVER.search(" ".join([code, *call.args])) and re.search(
            rf"{shapes.RUNS}(?:{'|'.join(sent)})", code
        ):
            call.emit("net.shell")
        if (self.language not in ("awk", "node") and shapes.BOMB.search(bare)) or shapes.respawns(code):
            call.emit("process.forkbomb")
        if shapes.KILL.search(code):
            call.emit("process.killall")
        if shapes.ROOT.search(code):
            call.emit("privilege.become")
        low = self.language == "c" or re.search(r"\blibc::|\bnix::|\bsyscall\.|\bunix\.", bare)
        if low and re.search(r"\b[rR]eboot\s*\(", bare):
            call.emit("process.power")
        if low and re.search(r"(?i)\b(?:u?mount2?|f?init_module|ptrace)\s*\(", bare):
            call.emit("kernel.mount")
        if shapes.SETUID.search(bare):
            call.emit("privilege.setuid")
        if re.search(
            r"\bsyscall\s*\(?\s*&?(?:\d|SYS_(?:reboot|mount|kexec|init_module|setns|unshare))|\bchroot\b|\bunshare\b|\bsetns\b|\bpivot_root\b",
            bare,
        ):
            call.emit("kernel.namespace")
        fetched = (
            shapes.FETCH.search(code) is not None
            or re.search(r"(?:include|require|source|import)(?:_once)?\s*\(?\s*['\"]https?:", code) is not None
        )
        if fetched and (
            shapes.EVAL.search(bare) or re.search(r"child_process|\bsystem\b|\bexec\b|execSync|include\b", bare)
        ):
            call.emit("exec.network", "code from the network")
        sending = fetched or connected or re.search(r"dns|UDP|WebSocket|nodemailer", code) is not None
        if sending and re.search(
            r"process\.env\b(?!\.(?!\w*(?:TOKEN|SECRET|KEY|PASS)))|ENV\.to_|\$_ENV|%ENV|\bENV\b(?!\[)|"
            r"getenv\(\)|ENV\[['\"]\w*(?:TOKEN|SECRET|KEY|PASS)",
            code,
        ):
            call.emit("net.send", "", "sensitive")
        for name, literal in shapes.POISON.findall(code):
            call.machine.set(name, self.unquoted(literal), call.state.fork())
        for literal in re.findall(rf"putenv\s*\(?\s*({_STRING})", code):
            name, _, value = self.unquoted(literal).partition("=")
            call.machine.set(name, value, call.state.fork())
        self._evals()

    def _evals(self) -> None:
        for found in shapes.EVAL.finditer(self.code):
            self.call.machine.tick()
            rest = self.code[found.end() :]
            literal = re.match(rf"[\s(]*(?:[\w.]+\s*[(=]\s*){{0,3}}({_STRING})", rest)
            if shapes.STDIN.search(rest.partition(";")[0]) and self.stdin:
                LexScan(self.call, self.language, self.stdin).run()
            if literal:
                for text in re.findall(_STRING, balanced(rest.lstrip(" ("))):
                    inner = LexScan(self.call, self.language, self.unquoted(text, False))
                    if len(text) < len(self.code):
                        inner.run()
            elif re.match(
                r"[\s(]*(?:gz(?:inflate|uncompress)|base64|decode|unpack|Buffer|atob|pack|str_rot13|\w*[Dd]ecode)",
                self.code[found.end() :],
            ):
                self.call.emit("exec.disguised", self.code)
        for text in self.literals() if re.search(r"include|require|import", self.code) else []:
            if text.startswith("data:"):
                LexScan(self.call, self.language, text.partition(",")[2]).run()

    def _commands(self) -> None:
        """The code can run something: each literal that is a command, and each list of literals that is one."""
        printed = {self.unquoted(literal) for literal in shapes.PRINT.findall(self.code)}
        named = self._named()
        texts = self.literals() if named is None else named + self._given()
        piped = any(re.fullmatch(r"(?:/\S*/)?(?:ba|da|z|k)?sh", literal) for literal in texts)
        literals, out = [literal for literal in texts if piped or literal not in printed], ""
        for index, text in enumerate(literals):
            text = re.sub(r"%s$", UNKNOWN, text)
            first = text.split()[:1]
            name = shapes.PROGRAM_PATH.sub("", first[0]).lstrip("\\") if first else ""
            if not self.call.is_program(name) and UNKNOWN not in name and not re.search(r"[|;&$=]", text):
                continue
            if len(text.split()) > 1:
                out += self.call.shell(text) if self.call.is_program(name) else self.call.guess(text)
                for path in self._fillers(text, literals):
                    self.call.shell(text.rstrip(UNKNOWN) + path)
            elif self.call.is_program(name) and name not in listed(
                "[ test . file link split format type read install set"
            ):
                rest = [
                    word
                    for word in literals[index + 1 :]
                    if word not in ("utf8", "utf-8", "inherit", "pipe", "ignore", "r", "w")
                ]
                out += self.call.run([name, *rest] if name not in rest[:1] else rest)
        if NETWORK in out and shapes.FED_SHELL.search(self.code):
            self.call.emit("exec.network", self.code)
        given = [unglob(word) for word in self.argv if word != "--"]
        if given and self.call.is_program(solid(given[0]).rsplit("/", 1)[-1]):
            self.call.run(given)
        for word in given:
            text = re.sub(r"^-+\w+=", "", word)
            self.call.shell(text) if re.match(r"\w+\s", text) and self.call.is_program(text.split()[0]) else None
        self._computed()
        if shapes.STDIN.search(self.code) and self.stdin:
            for line in self.stdin.splitlines()[:8]:
                self.call.shell(line)
                words = [literal for literal in literals if " " not in literal]
                self.call.run([*words, line]) if words and self.call.is_program(words[0]) else None

    def _computed(self) -> None:
        """A command that the code computes in a way that folding could not follow is one in disguise."""
        bare = re.sub(_STRING, '""', self.code)
        if self.language == "node" and not re.search(r"child_process|process\.|Bun|Deno", self.code):
            return
        seen: set[str] = set()
        for found in shapes.RUN.finditer(bare):
            self.call.machine.tick()
            rest = re.sub(r"^\s*\(", "", bare[found.end() : found.end() + 600])
            args = re.split(r"[;\n]", balanced(rest))[0]
            if args in seen:
                continue
            seen.add(args)
            sources = [rf"(?<![\w$]){re.escape(name)}\s*=~?[^;\n]*" for name in re.findall(r"[$@]?[A-Za-z_]\w*", args)]
            texts = [args] + [text for source in sources[:4] for text in re.findall(source, bare)]
            if any(shapes.DECODES.search(text) for text in texts):
                self.call.emit("exec.disguised", self.code)

    def _named(self) -> list[str] | None:
        """The literals in the calls that run something, where each names its command outright; else None: it may be any
        text in the code."""
        masked = masked_code(self.code)
        found: list[str] = []
        if (
            re.search(r"\]\s*\(", masked)
            or shapes.FED_SHELL.search(self.code)
            or self.language in ("awk", "tcl", "lisp", "groovy")
            or any(shapes.EXEC_NAME.fullmatch(text) and text != "child_process" for text in self.literals())
        ):
            return None
        for call in shapes.EXECISH.finditer(masked):
            self.call.machine.tick()
            before, rest = masked[max(0, call.start() - 1) : call.start()], self.code[call.end() :]
            prefix = call[0] in ("getRuntime(", "child_process", "Process.") or rest.startswith(".Command(")
            if prefix or (call[0] == "`" and not re.match(r"[\w$)]", before)):
                continue
            rest = "(" + rest if call[0][-1] == "(" else rest.removeprefix("new")
            start = re.match(rf"\s*\(?\s*(?:new String\[\]\s*\{{|List\.of\(|\[)?\s*{_STRING}\s*(?=[]),;}}\n]|$)", rest)
            segment = (
                balanced(rest.lstrip().removeprefix("("))
                if rest.lstrip()[:1] == "("
                else re.split(r"[;\n]", rest, maxsplit=1)[0]
            )
            chained = re.match(r"\)\s*\.\s*args?\b", rest.lstrip()[1 + len(segment) :])
            texts = [self.unquoted(text) for text in re.findall(_STRING, segment)]
            loose = (
                set(re.findall(r"[$@]?[A-Za-z_]\w*(?!\w*['\"]?\s*:)", re.sub(_STRING, "", segment)))
                - shapes.OPTION_WORDS
            )
            if not start or chained or loose or any(UNKNOWN in text for text in texts):
                return None
            found += texts
        if len(found) > 200:
            raise TooComplex("it runs too many commands to be judged; put it in a file and run that")
        return found or None

    @staticmethod
    def _fillers(text: str, literals: list[str]) -> list[str]:
        """A command that ends open (`"rm -rf " + d`) is completed by whatever paths the code names."""
        return [word for word in literals if re.match(r"[~/]\S*$", word)][:4] if text[-1] in UNKNOWN + " " else []

    def _paths(self, bare: str, words: list[str]) -> None:
        """Literals that are paths, in code that deletes, changes or reads."""
        by_name = any(DELETISH.fullmatch(word) for word in words)
        deletes = by_name or DELETISH.search(bare) is not None
        named = named_targets(self.code, self.unquoted) if deletes and not by_name else None
        changes, reads = shapes.CHANGISH.search(bare), shapes.READISH.search(bare)
        only_read = {self.unquoted(text) for text in re.findall(rf"[rR]ead\w*\s*\(\s*({_STRING})", self.code)}
        for path in named or []:
            self.call.delete(path.replace("*", STAR).replace("~", "/home/sandbox", 1), "recursive")
        for path in [*path_literals(self.code, self.unquoted), *self._given()]:
            if shapes.ENGINE.search(path):
                self.call.emit("kernel.engine", path)
            metadata(self.call, path)
            if not re.match(r"[~/]|\.{1,2}/?$|(?:\./)?[*/]*\*$|[<>]\s*[/~]", path) or re.search(r"\n|://", path):
                continue
            path = path.lstrip("<> ").replace("*", STAR)
            if not path.endswith(STAR) and shapes.LISTS.search(bare):
                narrow = re.search(
                    r"filter|endsWith|end_with|match|grep|\bif\b(?!\s*\(?(?:-[fe]\b|[^)]{0,40}(?:isFile|file\?)))|\bnext\b|test\(|includes",
                    bare,
                )
                path = f"{path.rstrip('/')}/{ATOM if narrow else STAR}"
            kind = self.call.locate(path)[1]
            if path.endswith(STAR) and shapes.WIPES.search(self.code) and not shapes.EDITS.search(bare):
                self.call.write(path, "", "truncate")
            if deletes and named is None and path not in only_read:
                self.call.delete(path.replace("~", "/home/sandbox", 1), "recursive")
            if changes and kind in ("root", "system", "home", "secret", "workspace_root", "device", "kernel"):
                self.call.change(path, "recursive", "open")
            if (reads and kind in ("secret", "device")) or (kind == "secret" and "(" in bare):
                self.call.read(path)

    def _files(self) -> None:
        for found in shapes.WRITE.finditer(self.code):
            content = re.match(rf"\s*,\s*({_STRING})", self.code[found.end() :])
            self.call.write(self.unquoted(found[1]), self.unquoted(content[1]) if content else UNKNOWN)
        for args in shapes.OPEN.findall(self.code):
            self._opened(args)
        for args in re.findall(
            r"(?:copyFile(?:Sync)?|cpSync|cp)\s*\(([^;\n]*)|(?:symlink|link)(?:Sync)?\s*\(?([^;\n]*)|\bcopy\s*\(([^;\n]*)|FileUtils\.(?:cp\w*|"
            r"mv|ln_s\w*|install|copy\w*)\s*\(?([^;\n]*)|File\.symlink\s*\(?([^;\n]*)",
            self.code,
        ):
            literals = [self.unquoted(literal) for literal in re.findall(_STRING, "".join(args))]
            if len(literals) > 1:
                self.call.write(literals[1])
        for args in shapes.READ.findall(self.code):
            literal = re.match(rf"[^'\"]{{0,24}}({_STRING})", args)
            path = self.unquoted(literal[1]) if literal else ""
            if path.startswith(("/", "~", ".")):
                text = self.call.read(path)
                if NETWORK in text and shapes.EVAL.search(self.code):
                    self.call.emit("exec.network", path)
                if has(text, SECRET + SENSITIVE) and (
                    shapes.FETCH.search(self.code) or shapes.SOCKET.search(self.code)
                ):
                    self.call.emit("net.send", path, "sensitive")
        for literal in re.findall(rf"chmod(?:Sync)?\s*\(?\s*(?:0?o?[0-7]+\s*,\s*)?({_STRING})", self.code):
            mode = re.search(r"chmod(?:Sync)?[^;]*?\b0?o?([0-7]{3,5})\b", self.code)
            self.call.run(["chmod", mode[1] if mode else "755", self.unquoted(literal)])

    def _opened(self, args: str) -> None:
        literals = [self.unquoted(literal) for literal in re.findall(_STRING, balanced(args))]
        for index, literal in enumerate(literals):
            mode = literals[index + 1] if index + 1 < len(literals) else ""
            if re.fullmatch(r"\s*[+]?>{1,2}(:\w+)?\s*", literal) and mode:
                self.call.write(mode)
            elif re.match(r"\s*>{1,2}\s*[~/.\w]", literal):
                self.call.write(literal.strip().lstrip("> "))
            elif re.match(r"\s*\|", literal) or (literal.strip() in ("-|", "|-") and mode):
                self.call.shell(mode if literal.strip() in ("-|", "|-") else literal.strip().lstrip("|"))
            elif literal.rstrip().endswith("|") and len(literal) > 1:
                self.call.shell(literal.rstrip().rstrip("|"))
            elif re.match(r"[~/.\w]", literal) and (
                re.search(r"\bO_(?:WRONLY|RDWR|TRUNC|CREAT|APPEND)\b", args)
                or (re.fullmatch(r"[rwa]b?\+?b?", mode) and re.search(r"[wa+]", mode))
            ):
                self.call.write(literal)


def unknown_output(code: str, printed: str) -> str:
    """What a one-liner prints: its literals, or, where it computes, something that this command holds in disguise."""
    if NETWORK in printed:
        return printed
    prints = re.findall(r"\bprint|\bputs|\becho|console\.log|stdout|\bsay\b|write|STDOUT|\bp\b", code)
    return (
        printed
        if printed and len(prints) <= printed.count("\n")
        else DISGUISED
        if prints or re.search(r"['\"]", code)
        else UNKNOWN
    )
