"""Other languages' one-liners, read tolerantly: string literals are folded, then the calls that matter are looked for.

No grammar per language: what counts is the text that reaches a call that runs, deletes, writes, reads or sends.
"""

import base64
import binascii
import re
from collections.abc import Callable

from .call import Call
from .marks import ENCODED, NETWORK, SECRET, SENSITIVE, UNKNOWN, has
from .quoting import ansi_c

_STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)"""
_CALLISH = r"[\s(]*"
_RUN = re.compile(
    r"(?<![\w>])(?:child_process\.|cp\.|require\([^)]*\)\.|Kernel[.:]+|Process\.|IO\.|Open3\.|os\.|io\.|exec\.|Deno\.|Bun\.|subprocess\.|\w+\.)?"
    r"(?P<name>system2?|exec[lv]?p?e?|execSync|execFile(?:Sync)?|popen\d?|shell_exec|passthru|proc_open|pcntl_exec|execute|spawn(?:Sync)?|capture[23]e?|Command|shell|run|qx|readpipe|getRuntime\(\)\.exec|ShellExecute|shell-command|call-process|posix_spawnp?|g_spawn_command_line_sync)"
    r"(?P<open>\s*\(\s*|\s+|\s*\[\s*)(?P<args>" + _STRING + r"[^;\n]*|\$?\w+[^;\n]*|\[[^;\n]*)"
)
_TICKS = re.compile(r"(?:qx|%x)\s*(?:\{([^}]*)\}|\(([^)]*)\)|\[([^\]]*)\]|/([^/]*)/|!([^!]*)!|\|([^|]*)\||'([^']*)')")
_DELETE = re.compile(r"(?P<name>rmSync|rmdirSync|unlinkSync|removeSync|emptyDirSync|rimraf(?:\.sync)?|rm_rf|rm_r|remove_entry(?:_secure)?|rmtree|remove_tree|remove_dir_all|RemoveAll|\bunlink|\brmdir|\bFile\.delete|Dir\.rmdir|FileUtils\.rm\w*|fs\.rm|fs\.unlink|fs\.promises\.rm|os\.remove|\bdelete_tree|file\.remove|file delete)(?P<rest>[^;\n]*)")
_WRITE = re.compile(r"(?:writeFile(?:Sync)?|appendFile(?:Sync)?|createWriteStream|file_put_contents|File\.(?:write|binwrite)|IO\.(?:write|binwrite)|Deno\.writeTextFile(?:Sync)?|Bun\.write|outputFile(?:Sync)?|truncate(?:Sync)?|spit|WriteFile)\s*\(?\s*(" + _STRING + ")")
_OPEN = re.compile(r"(?:\bopen|fopen|io\.open|File\.(?:open|new)|openSync|sysopen|copyFile(?:Sync)?|rename(?:Sync)?|\bcopy|symlink(?:Sync)?|FileUtils\.\w+|File\.(?:rename|symlink))\s*\(?\s*([^;\n]*)")
_READ = re.compile(r"(?:readFile(?:Sync)?|file_get_contents|readfile|\bfile|File\.(?:read|readlines|foreach|open|new)|IO\.(?:read|readlines)|createReadStream|slurp|include|require_once|Deno\.readTextFile(?:Sync)?|fopen|io\.open|io\.lines|\bopen|readLines|loadfile|dofile)\s*\(?\s*([^;\n]*)")
_PRINT = re.compile(r"(?:\bprint(?:f|ln)?|\bputs|\becho|console\.log|process\.stdout\.write|\bsay|io\.write|\bcat|\$stdout\.(?:write|print)|STDOUT\.(?:write|print)|fmt\.Print\w*)\s*\(?\s*(" + _STRING + r")(?=\s*[;)}\n,]|\s*$)")
_SOCKET = re.compile(r"net\.(?:Socket|connect|createConnection|Dial)|require\(['\"]net['\"]\)|fsockopen|stream_socket_client|TCPSocket|IO::Socket|Socket\.(?:tcp|new)|socket\(|use Socket|UDPSocket|require\(['\"]socket['\"]\)|/inet/tcp|TCPServer|createServer|java\.net\.Socket|connect\(")
_SHELLISH = re.compile(r"/bin/(?:ba|da|z|k)?sh|['\"](?:sh|bash|cmd(?:\.exe)?)['\"]|\bsh -i|cmd\.exe|STDIN|dup2|\$stdin")
_BOMB = re.compile(r"fork\s*(?:\(\))?\s*(?:while|until)|(?:while|until|loop|for)\b[^;]{0,40}?[({\s](?:1|true|;;|do)?[^\n]{0,60}\bfork\b|while\s*\(?\s*(?:true|1)\s*\)?[^\n]{0,40}(?:spawn|fork|exec)\w*\(|setInterval\([^)]*(?:spawn|fork)|fork\s+while\s+fork|:\(\)\s*\{|1\s+while\s+fork")
_KILL = re.compile(r"kill\s*\(?\s*['\"]?(?:9|KILL|SIGKILL|-9|TERM|15)['\"]?\s*,\s*-?1\b|process\.kill\(\s*-?1\b|posix_kill\(\s*-?1\b|\bkill\(\s*-1")
_ROOT = re.compile(r"set(?:re|e|res)?uid\s*\(?\s*0|POSIX::setuid|Process::(?:Sys\.)?(?:UID\.)?(?:set|change)?\w*uid\w*\s*\(?=?\s*0|process\.set[eu]*[ug]id\(|posix_set\w*uid\(\s*0|\$[<>]\s*=\s*0|\$UID\s*=\s*0")
_FETCH = re.compile(r"https?\.get\(|\bfetch\(|Net::HTTP|open-uri|URI\.open|LWP|HTTP::Tiny|file_get_contents\(\s*['\"]https?:|curl_exec|axios|require\(['\"]https?['\"]\)|socket\.http|WebClient|urlopen|requests\.get|HttpURLConnection|new URL\(")
_EVAL = re.compile(r"\beval\b|new Function\s*\(|instance_eval|class_eval|assert\s*\(|create_function|\bload(?:string)?\s*\(|Function\s*\(|vm\.run\w+|\bsource\(|dofile|preg_replace\([^)]*/e|require\s*\(?\s*\$|\beval_string")


def fold(code: str) -> str:
    """Join concatenated literals and decode encoded ones, until nothing changes."""
    for _ in range(6):
        before = code
        for pattern, change in _FOLDS:
            code = pattern.sub(change, code)
        if code == before:
            break
    return code


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def unquote(literal: str, expand: bool = True) -> str:
    body = literal[1:-1]
    if literal[0] == "'":
        return re.sub(r"\\(['\\])", r"\1", body)
    text = ansi_c(body)
    return re.sub(r"\$\{[^}]*\}|#\{[^}]*\}|(?<![\\\w])[$@]\w+", UNKNOWN, text) if expand and literal[0] in "\"`" else text


def _decoder(decode: Callable[[bytes], bytes]) -> Callable[[re.Match[str]], str]:
    def change(found: re.Match[str]) -> str:
        literal = next(group for group in found.groups() if group)
        try:
            return _quote(decode(unquote(literal, False).encode()).decode("utf-8", "replace"))
        except (ValueError, binascii.Error):
            return found[0]

    return change


def _codes(found: re.Match[str]) -> str:
    numbers = re.findall(r"0x[0-9a-fA-F]+|\d+", found[1])
    return _quote("".join(chr(int(number, 0)) for number in numbers if int(number, 0) < 0xD800)) if numbers else found[0]


def _base64(raw: bytes) -> bytes:
    return base64.b64decode(raw + b"==")


_S = f"({_STRING})"
_FOLDS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(rf"{_S}\s*(?:\+|\.\.|\.(?!\w)|<<)\s*{_S}"), lambda m: _quote(unquote(m[1], False) + unquote(m[2], False))),
    (re.compile(rf"(?:atob|base64_decode|decode_base64|MIME::Base64::decode(?:_base64)?|Base64\.(?:strict_|urlsafe_)?decode(?:64)?|b64decode)\s*\(?\s*{_S}\s*\)?"), _decoder(_base64)),
    (re.compile(rf"Buffer\.from\(\s*{_S}\s*,\s*['\"]base64(?:url)?['\"]\s*\)(?:\.toString\([^)]*\))?"), _decoder(_base64)),
    (re.compile(rf"(?:Buffer\.from\(\s*{_S}\s*,\s*['\"]hex['\"]\s*\)(?:\.toString\([^)]*\))?|hex2bin\(\s*{_S}\s*\)|pack\s*\(?\s*['\"]H\*['\"]\s*,\s*{_S}\s*\)?|\[\s*{_S}\s*\]\.pack\(?\s*['\"]H\*['\"]\s*\)?)"), _decoder(lambda raw: binascii.unhexlify(raw))),
    (re.compile(rf"(?:{_S}\.unpack1?\(?\s*['\"]m0?['\"]\s*\)?(?:\[0\]|\.first)?|unpack\s*\(?\s*['\"]u['\"]\s*,\s*{_S}\)?)"), _decoder(_base64)),
    (re.compile(r"String\.fromCh?a?r?CodePoint\(([\d,\sxa-fA-F]+)\)|String\.fromCharCode\(([\d,\sxa-fA-F]+)\)"), lambda m: _codes(re.match(r"(.*)", m[1] or m[2], re.S))),  # type: ignore[arg-type]
    (re.compile(r"\[([\d,\sx]+)\]\.(?:pack\(?\s*['\"][cCU]\*['\"]\s*\)?|map\(?[^)]*chr\)?\.join(?:\([^)]*\))?)"), _codes),
    (re.compile(r"(?<![\w.])chr\s*\(?\s*(\d+)\s*\)?"), _codes),
    (re.compile(r"pack\s*\(?\s*['\"][cCU]\*['\"]\s*,\s*([\d,\s]+)\)?"), _codes),
    (re.compile(rf"(?:strrev\(\s*{_S}\s*\)|(?:scalar\s+)?reverse\s*\(?\s*{_S}\s*\)?|{_S}\.reverse\b(?:\(\))?|{_S}\.split\(['\"]{{2}}\)\.reverse\(\)\.join\(['\"]{{2}}\))"), _decoder(lambda raw: raw[::-1])),
    (re.compile(rf"str_rot13\(\s*{_S}\s*\)"), _decoder(lambda raw: __import__("codecs").decode(raw.decode(), "rot13").encode())),
    (re.compile(rf"\[\s*{_S}((?:\s*,\s*{_STRING})*)\s*\]\.join\(\s*{_S}?\s*\)"), lambda m: _quote((unquote(m[3]) if m[3] else ",").join(unquote(s, False) for s in re.findall(_STRING, m[1] + m[2])))),
    (re.compile(rf"join\s*\(?\s*{_S}\s*,\s*({_STRING}(?:\s*,\s*{_STRING})*)\s*\)?"), lambda m: _quote(unquote(m[1]).join(unquote(s, False) for s in re.findall(_STRING, m[2])))),
]


class LexScan:
    def __init__(self, call: Call, language: str, code: str) -> None:
        self.call, self.language = call, language
        self.code = self._with_names(fold(code))
        self.out = ""

    def _with_names(self, code: str) -> str:
        """Put literals in the place of the variables that hold them."""
        for name, literal in re.findall(rf"(?:^|[;\s{{(])(?:my\s+|var\s+|let\s+|const\s+|local\s+)?([$@]?\w+)\s*:?=\s*({_STRING})", code)[:20]:
            code = re.sub(rf"(?<![\w$'\"]){re.escape(name)}(?!\w)(?!\s*:?=[^=])", lambda _, text=literal: text, code)  # type: ignore[misc]
            if name.startswith("$") and literal[0] in "'\"":
                inner = literal[1:-1].replace('"', '\\"')
                code = re.sub(rf'("(?:[^"\\]|\\.)*){re.escape(name)}(?!\w)', lambda m, text=inner: m[1] + text, code)  # type: ignore[misc]
        return fold(code)

    def run(self) -> None:
        self._shapes()
        for found in _RUN.finditer(self.code):
            self._command(found["args"], found["name"])
        if self.language in ("perl", "ruby", "php"):
            for body in re.findall(r"`((?:[^`\\]|\\.)*)`", self.code):
                self.call.shell(unquote(f'"{body}"'))
        for groups in _TICKS.findall(self.code):
            self.call.shell(next((group for group in groups if group), ""))
        self._files()
        for literal in _PRINT.findall(self.code):
            self.out += unquote(literal) + "\n"

    def _shapes(self) -> None:
        code, call = self.code, self.call
        if _SOCKET.search(code) and _SHELLISH.search(code):
            call.emit("net.shell")
        if _BOMB.search(code) and self.language != "awk":
            call.emit("process.forkbomb")
        if _KILL.search(code):
            call.emit("process.killall")
        if _ROOT.search(code):
            call.emit("privilege.become")
        fetched = _FETCH.search(code) is not None
        if fetched and (_EVAL.search(code) or re.search(r"child_process|system|exec\b|execSync", code)):
            call.emit("exec.network", "code from the network")
        if fetched and re.search(r"process\.env\b(?!\.)|ENV\.to_|\$_ENV|%ENV|\bENV\b(?!\[)", code):
            call.emit("net.send", "", "sensitive")
        self._evals()

    def _evals(self) -> None:
        for found in _EVAL.finditer(self.code):
            literal = re.match(rf"\s*\(?\s*({_STRING})", self.code[found.end() :])
            if literal:
                inner = LexScan(self.call, self.language, unquote(literal[1]))
                if len(inner.code) < len(self.code):
                    inner.run()
            elif re.match(r"[\s(]*(?:gz(?:inflate|uncompress)|base64|decode|unpack|Buffer|atob|pack|str_rot13|\w*[Dd]ecode)", self.code[found.end() :]):
                self.call.emit("exec.disguised", self.code)
            elif re.match(r"[\s(]*(?:file_get_contents|fetch|URI|Net|get\()", self.code[found.end() :]) and "http" in self.code:
                self.call.emit("exec.network", self.code)

    def _command(self, args: str, name: str) -> None:
        literals = [unquote(literal) for literal in re.findall(_STRING, _balanced(args))]
        if not literals:
            if re.match(r"[$@]?\w+\s*\)?", args) and name in ("system", "exec", "popen", "execSync") and self.language in ("perl", "awk", "ruby"):
                self._stdin_command(args)
            return
        if name in ("run", "shell", "Command", "execute") and self.language not in ("lua", "node", "go", "osascript", "php"):
            return
        listed = len(literals) > 1 and re.match(rf"\[?\s*{_STRING}\s*,\s*\[?\s*{_STRING}", args.strip()) is not None
        if listed and not re.search(r"\s", literals[0].strip()):
            options = {"utf8", "utf-8", "inherit", "pipe", "r", "w", "rb", "ignore"}
            self.call.run([word for word in literals if word not in options])
        else:
            self.call.shell(literals[0])

    def _stdin_command(self, args: str) -> None:
        if re.match(r"\$_|\$0|\$line|<STDIN>|\$1|gets|STDIN|ARGF", args):
            self.call.shell(self.call.stdin) if self.call.stdin else None

    def _files(self) -> None:
        for found in _DELETE.finditer(self.code):
            deep = found["name"] not in ("unlink", "unlinkSync", "rmdir", "File.delete", "Dir.rmdir", "fs.unlink", "os.remove", "rmdirSync") or "recursive" in found["rest"]
            targets = [unquote(literal) for literal in re.findall(_STRING, found["rest"])]
            globs = re.findall(r"<([^<>]+)>|glob\s*\(?\s*['\"]([^'\"]+)", found["rest"])
            for path in targets + [a or b for a, b in globs]:
                if re.search(r"^[~/.\w*\ufdd0]", path) and path not in ("recursive", "force", "utf8"):
                    self.call.delete(path.replace("*", "\ufdd8"), *(["recursive"] if deep else []))
        for literal in _WRITE.findall(self.code):
            self.call.write(unquote(literal))
        for args in _OPEN.findall(self.code):
            self._opened(args)
        for args in _READ.findall(self.code):
            literal = re.match(rf"[^'\"]{{0,24}}({_STRING})", args)
            path = unquote(literal[1]) if literal else ""
            if path.startswith(("/", "~", ".")) and not re.match(r"https?:", path):
                text = self.call.read(path)
                if has(text, SECRET + SENSITIVE) and (_FETCH.search(self.code) or _SOCKET.search(self.code)):
                    self.call.emit("net.send", path, "sensitive")
        for literal in re.findall(rf"chmod(?:Sync)?\s*\(?\s*(?:0?o?[0-7]+\s*,\s*)?({_STRING})", self.code):
            mode = re.search(r"chmod(?:Sync)?[^;]*?\b0?o?([0-7]{3,5})\b", self.code)
            self.call.run(["chmod", mode[1] if mode else "755", unquote(literal)])

    def _opened(self, args: str) -> None:
        literals = [unquote(literal) for literal in re.findall(_STRING, _balanced(args))]
        for index, literal in enumerate(literals):
            mode = literals[index + 1] if index + 1 < len(literals) else ""
            if re.fullmatch(r"\s*[+]?>{1,2}(:\w+)?\s*", literal) and mode:
                self.call.write(mode)
            elif re.match(r"\s*>{1,2}\s*[~/.\w]", literal):
                self.call.write(literal.strip().lstrip("> "))
            elif re.match(r"\s*\|", literal) or literal.strip() in ("-|", "|-") and mode:
                self.call.shell(mode if literal.strip() in ("-|", "|-") else literal.strip().lstrip("|"))
            elif literal.rstrip().endswith("|") and len(literal) > 1:
                self.call.shell(literal.rstrip().rstrip("|"))
            elif re.fullmatch(r"[rwa]b?\+?b?", mode) and re.search(r"[wa+]", mode) and re.match(r"[~/.\w]", literal):
                self.call.write(literal)


def _balanced(args: str) -> str:
    """The arguments up to the parenthesis that closes them."""
    depth, quote, escaped = 0, "", False
    for at, char in enumerate(args):
        if escaped or char == "\\":
            escaped = not escaped
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                return args[:at]
    return args


def unknown_output(code: str, printed: str) -> str:
    """What a one-liner prints: its literals, or, where it computes, something that this command holds in disguise."""
    if NETWORK in printed:
        return printed
    prints = re.findall(r"\bprint|\bputs|\becho|console\.log|stdout|\bsay\b|\bwrite", code)
    return printed if printed and len(prints) <= printed.count("\n") else ENCODED if prints else UNKNOWN
