"""Python's pure functions: text in, text out."""

import base64
import binascii
import re
import zlib
from abc import abstractmethod
from typing import Any

from .call import Call
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SENSITIVE, STAR, UNKNOWN, known, taints
from .pyvalues import Ref, _bytes, _codec, _integer, _join, _literal, _many, _part, _text, mapping
from .quoting import listed
from .shellstate import BASE_ENV

_PASS = re.compile(
    r"(str|bytes|bytearray|pathlib\.(Pure)?(Posix)?Path|os\.path\.(abspath|realpath|normpath|expandvars|"
    r"dirname)|os\.fs(path|encode|decode)|list|tuple|shlex\.quote|shlex\.join|iter|sorted|io\.\w+|"
    r"textwrap\.dedent|memoryview|sys\.intern)"
)
_TRANSFORMS = re.compile(
    r"(html|re|struct|quopri|uu|binascii|codecs|string|urllib\.parse|bz2|lzma)\.(?!compile|match|search)"
)
_CLIENTS = re.compile(
    r"(redis|pymongo|imaplib|poplib|nntplib|telnetlib|psycopg2?|asyncpg|pymysql|mysql|MySQLdb|pika|kafka|nats|stomp|websockets?|dns|"
    r"xmlrpc|paho|boto3|ldap3?|etcd3)\."
)
_FOREIGN = re.compile(r"(?<![\w./-])(?!127\.|0\.0)(?:[\w-]+\.)+[a-z\d]+")
_LOOP_LIMIT = 256


class Pure:
    """The part of the Python reader that computes values."""

    call: Call
    names: dict[str, Any]

    @abstractmethod
    def invoke(self, function: Ref, args: list[Any], words: dict[str, Any]) -> Any: ...

    def _environ(self, name: str) -> str:
        return _text(self.call.state.get(name))

    def _pure(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        state = self.call.state
        if name in ("glob.glob", "glob.iglob"):
            return [first.replace("*", STAR)]
        if name in ("os.listdir", "os.scandir"):
            return [STAR]
        if name == "os.walk":
            return [[first, [STAR], [STAR]]]
        if name in ("os.path.join", "posixpath.join", "pathlib.PurePath"):
            return _join([_text(arg) for arg in args])
        if name in ("os.path.expanduser",):
            return first.replace("~", state.home(), 1) if first.startswith("~") else first
        if name in ("pathlib.Path.home",):
            return state.home()
        if name in ("getpass.getuser", "os.getlogin"):
            return BASE_ENV["USER"]
        if name.startswith("pwd.getpw"):
            entry = [BASE_ENV["USER"], "x", 1000, 1000, "", state.home(), "/bin/bash"]
            return [entry] if name.endswith("all") else entry
        if name in ("site.getusersitepackages", "site.getsitepackages", "sysconfig.get_path"):
            return f"{state.home()}/.local/lib/python3/site-packages"
        if name in ("os.getcwd", "pathlib.Path.cwd"):
            return state.cwd
        if name in ("os.getenv", "os.environ.get"):
            return self._environ(first)
        if name in listed(
            "tempfile.mkdtemp tempfile.mktemp tempfile.gettempdir tempfile.NamedTemporaryFile "
            "tempfile.TemporaryDirectory tempfile.mkstemp"
        ):
            return f"/tmp/{ATOM}"
        if name in ("input", "sys.stdin.read", "sys.stdin.readline", "raw_input"):
            return self.call.stdin or UNKNOWN
        if name == "shlex.split":
            return first.split()
        if name in ("chr",) and args and isinstance(args[0], int):
            return chr(args[0]) if 0 <= args[0] < 0x110000 else UNKNOWN
        if name == "ord" and len(first) == 1:
            return ord(first)
        if name in ("int", "len") and args:
            return len(args[0]) if name == "len" and isinstance(args[0], str | list) else _integer(args)
        if name == "map" and len(args) > 1 and isinstance(args[0], Ref):
            return [self.invoke(args[0], [item], {}) for item in _many(args[1])[:_LOOP_LIMIT]]
        if name == "range" and all(isinstance(arg, int) for arg in args) and args:
            return list(range(*args[:3])[:_LOOP_LIMIT]) if args[2:3] != [0] else UNKNOWN
        if name in ("reversed",) and args:
            return list(reversed(_many(args[0])))
        if (
            name in ("bytes", "bytearray")
            and args
            and isinstance(args[0], list)
            and all(isinstance(item, int) and 0 <= item < 256 for item in args[0])
        ):
            return "".join(map(chr, args[0]))
        if name in ("bytes.fromhex", "binascii.unhexlify", "binascii.a2b_hex", "bytearray.fromhex"):
            return _bytes(first, lambda raw: binascii.unhexlify(re.sub(rb"\s", b"", raw)))
        if name in ("codecs.decode", "codecs.encode", "codecs.getdecoder"):
            return _codec(first, _text(args[1]) if len(args) > 1 else "utf-8")
        if re.fullmatch(
            r"base64\.(b64decode|standard_b64decode|urlsafe_b64decode|decodebytes|decodestring|a2b_base64)|"
            r"binascii\.a2b_base64",
            name,
        ):
            return _bytes(first, lambda raw: base64.b64decode(raw.translate(bytes.maketrans(b"-_", b"+/")) + b"==="))
        if name in ("base64.b32decode", "base64.b16decode", "base64.b85decode", "base64.a85decode"):
            return _bytes(first, getattr(base64, name.split(".")[1]))
        if name in ("zlib.decompress", "gzip.decompress"):
            return _bytes(first, lambda raw: zlib.decompressobj(47).decompress(raw, 1 << 20))
        if name.startswith("base64.") or name in ("binascii.hexlify", "json.dumps", "repr"):
            inner = args[0].name if args and isinstance(args[0], Ref) else ""
            return (
                SENSITIVE
                if inner == "os.environ"
                else (ENCODED if name.startswith("b") else "") + (taints(first) or first)
            )
        if name in ("dict", "os.environ.copy"):
            return mapping(*(args or [Ref("os.environ")] if name != "dict" else args), words)
        if _PASS.fullmatch(name):
            return (
                SENSITIVE
                if args and isinstance(args[0], Ref) and args[0].name == "os.environ"
                else args[0]
                if len(args) == 1
                else _join([_text(a) for a in args])
                if "Path" in name and args
                else first
            )
        if name.startswith("ctypes."):
            return UNKNOWN
        if name.startswith(("socket.", "paramiko.", "smtplib.", "ftplib.")):
            self.names["socket"] = Ref("socket")
            return Ref("value.socket", NETWORK) if name.endswith("socket") else NETWORK
        if NETWORK in _text(Ref(name)) or (
            _CLIENTS.match(name) and _FOREIGN.search(" ".join(map(_text, [*args, *words.values()])))
        ):
            return NETWORK
        if name in ("json.loads", "ast.literal_eval") and known(first):
            return _literal(first)
        if name == "fileinput.input" and not args:
            return self.call.stdin.splitlines() or UNKNOWN
        if _TRANSFORMS.match(name) and args and known("".join(_text(arg) for arg in args)):
            return DISGUISED
        return _part(taints("".join(_text(arg) for arg in args)).replace(ATOM, "").replace(FILE, "")) or UNKNOWN
