"""Makes scripts by a grammar. The fuzzer's bytes choose, so a mutation is another script and not noise.

The scripts are only judged, never run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

PATHS = [
    "/",
    "~",
    ".",
    "..",
    "*",
    "/etc/shadow",
    "/dev/sda",
    "build/out",
    "/tmp/x",
    "-",
    "a b",
    "/proc/self/mem",
]
FLAGS = [
    "-rf",
    "-c",
    "-e",
    "-i",
    "-n",
    "-o",
    "-x",
    "--",
    "-exec",
    "-I{}",
    "-",
    "+x",
    "777",
    "{}",
    ";",
    "-delete",
]
NAMES = [
    "x",
    "y",
    "IFS",
    "PATH",
    "HOME",
    "@",
    "*",
    "#",
    "?",
    "0",
    "1",
    "a[0]",
    "a[@]",
    "a[$x]",
    "!x",
    "#x",
    "#",
]
VALUES = [
    "",
    "1",
    "-1",
    "08",
    "0x",
    "²",
    "9" * 20,
    "/",
    "rm -rf /",
    "é",
    "\u202e",
    "\\",
    "a,b",
    "%s",
    "~root",
    "[a-z]",
]
OPERATORS = [
    "",
    ":-",
    "-",
    ":=",
    ":+",
    ":?",
    "#",
    "##",
    "%",
    "%%",
    "/",
    "//",
    "/#",
    "/%",
    ":",
    "^^",
    ",",
    "@P",
    "@E",
]
ARITHMETIC = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "<<",
    ">>",
    "&",
    "|",
    "==",
    ",",
    "=",
    "+=",
    "**=",
    "&&",
    "?1:",
]
JOINTS = [" | ", " |& ", " && ", " || ", "; ", " & ", "\n"]
REDIRECTIONS = [
    ">",
    ">>",
    "<",
    "<>",
    ">|",
    "&>",
    "&>>",
    "2>",
    "<<<",
    "2>&1 >",
    ">&",
    "<&",
    "{fd}>",
]
LANGUAGES = [
    "python3 -c",
    "perl -e",
    "ruby -e",
    "node -e",
    "php -r",
    "awk",
    "sed",
    "lua -e",
    "bash -c",
    "eval",
    "jq",
]
LANGUAGES += [
    "sed -i",
    "perl -pi -e",
    "find . -exec",
    "xargs -I{} sh -c",
    "env -S",
    "printf",
    "echo -e",
    "vim -c",
]
CODE = [
    "import os",
    "os.system(",
    "open(",
    "'",
    '"',
    "`",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\\",
    "\\x41",
    "%c",
    ";",
    ",",
]
CODE += [
    "=",
    "+",
    "*",
    "$x",
    "/",
    "rm -rf /",
    "/etc/shadow",
    "system ",
    "exec(",
    "eval(",
    "base64",
    "'rm'",
    "s/a/b/e",
]
CODE += [
    "w x",
    "for i in ",
    "lambda: ",
    "x",
    ".join(",
    "chr(47)",
    "0",
    "9" * 9,
    "\n",
    " ",
    "#",
]
CODE += [
    "require('child_process')",
    "import(",
    "[[",
    "%9999d",
    "range(",
    "**9",
    "x=",
    "if ",
    "yield ",
]
SPECIAL = [
    "declare -A a=([k]=v)",
    "a=(1 2)",
    "trap 'rm x' EXIT",
    "alias l=ls",
    "coproc cat",
    "set -- a b",
    "read -r x",
]
SPECIAL += [
    "let x=1",
    "exec 3<>/dev/tcp/h/1",
    "shopt -s extglob",
    "local -n r=x",
    "printf -v x %s a",
    "mapfile a",
]

COMPOUNDS = [
    "( <s> )",
    "{ <s>; }",
    "if <s>; then <s>; else <s>; fi",
    "while <s>; do <s>; done",
    "! <s>",
    "time <s>",
]
COMPOUNDS += [
    "until <s>; do <s>; done",
    "for x in <w> <w>; do <s>; done",
    "for ((x=0; x<<n>; x++)); do <s>; done",
]
COMPOUNDS += [
    "case <w> in <w>) <s>;; *) <s>;& esac",
    "select x in <w>; do <s>; done",
    "f() { <s>; }; f <w>",
]
COMPOUNDS += [
    "(( <n> ))",
    "f() { <s>; f; }; f",
    "[[ <w> =~ <w> ]]",
    "[[ -f <w> && <w> == <w> ]]",
    "x=(<w> <w> ${x[@]})",
]
COMPOUNDS += ["x+=<w>", "x=$x$x$x<w>"]
HEREDOCS = [
    "<c> <<E\n<s>\nE\n",
    "<c> <<'E'\n<s>\nE\n",
    "<c> <<-E\n\t<s>\n\tE\n",
    "<c> <<E | sh\n<s>\nE\n",
]
SUBSTITUTIONS = ["$(<s>)", "`<s>`", "<(<s>)", ">(<s>)", '"$(<s>)"', "$(< <w>)"]


class Script:
    """Makes one script from a FuzzedDataProvider. Without bytes left it takes the first of all choices."""

    def __init__(self, data: Any, programs: Sequence[str]) -> None:
        self.data, self.programs = data, programs

    def pick(self, choices: Sequence[str]) -> str:
        return choices[self.data.ConsumeIntInRange(0, len(choices) - 1)]

    def some(self, most: int) -> range:
        return range(self.data.ConsumeIntInRange(1, most))

    def text(self, depth: int = 4) -> str:
        return "".join(
            self.statement(depth) + self.pick(JOINTS) for _ in self.some(3)
        ) + self.statement(depth)

    def statement(self, depth: int) -> str:
        if depth <= 0 or not self.data.remaining_bytes():
            return self.simple(0)
        kinds = [
            self.simple,
            self.compound,
            self.one_liner,
            self.heredoc,
            self.redirected,
            self.special,
        ]
        return kinds[self.data.ConsumeIntInRange(0, len(kinds) - 1)](depth - 1)

    def simple(self, depth: int) -> str:
        prefix = f"{self.name()}={self.word(depth)} " if self.data.ConsumeBool() else ""
        return f"{prefix}{self.pick(self.programs)} {' '.join(self.word(depth) for _ in self.some(5))}"

    def compound(self, depth: int) -> str:
        return self.filled(self.pick(COMPOUNDS), depth)

    def filled(self, form: str, depth: int) -> str:
        parts = {
            "s": self.statement,
            "w": self.word,
            "n": self.number,
            "c": self.simple,
        }
        return re.sub("<([swnc])>", lambda found: parts[found[1]](depth), form)

    def one_liner(self, depth: int) -> str:
        code = "".join(self.pick(CODE) for _ in self.some(12))
        return f"{self.pick(LANGUAGES)} {shlex.quote(code)} {self.word(depth)}"

    def heredoc(self, depth: int) -> str:
        return self.filled(self.pick(HEREDOCS), depth)

    def redirected(self, depth: int) -> str:
        return f"{self.statement(depth)} {self.pick(REDIRECTIONS)} {self.word(depth)}"

    def special(self, _depth: int) -> str:
        return self.pick(SPECIAL)

    def name(self) -> str:
        return self.pick(["x", "y", "IFS", "PATH", "a[0]", "a[x]", "BASH_ENV", "x+"])

    def word(self, depth: int) -> str:
        kinds = [self.path, self.flag, self.value, self.raw]
        if depth > 0 and self.data.remaining_bytes():
            kinds += [
                self.parameter,
                self.substitution,
                self.arithmetic,
                self.braces,
                self.joined,
                self.ansi,
            ]
        return kinds[self.data.ConsumeIntInRange(0, len(kinds) - 1)](depth - 1)

    def path(self, _depth: int) -> str:
        return self.pick(PATHS)

    def flag(self, _depth: int) -> str:
        return self.pick(FLAGS)

    def value(self, _depth: int) -> str:
        return shlex.quote(self.pick(VALUES))

    def raw(self, _depth: int) -> str:
        return self.data.ConsumeUnicodeNoSurrogates(self.data.ConsumeIntInRange(0, 6))

    def parameter(self, depth: int) -> str:
        operator = self.pick(OPERATORS)
        rest = self.word(depth) if operator and operator[0] != "@" else ""
        word = f"${{{self.pick(NAMES)}{operator}{rest}}}"
        return f'"{word}"' if self.data.ConsumeBool() else word

    def substitution(self, depth: int) -> str:
        return self.filled(self.pick(SUBSTITUTIONS), depth)

    def arithmetic(self, depth: int) -> str:
        return f"$(({self.number(depth)}))"

    def number(self, depth: int) -> str:
        first = self.pick(
            [
                "1",
                "9",
                "x",
                "x++",
                "-x",
                "~0",
                "08",
                "16#ff",
                "a[$x]",
                "99999999999",
                "²",
            ]
        )
        return (
            first
            if depth <= 0
            else f"({self.number(depth - 1)}){self.pick(ARITHMETIC)}{first}"
        )

    def braces(self, depth: int) -> str:
        form = self.pick(
            [
                "{a,b}",
                "{1..9}",
                "{a..z..2}",
                "{{a,b},c}",
                "{1..999999}",
                "{,}",
                "{a,",
                "{%s,x}",
            ]
        )
        return form.replace("%s", self.word(depth)) * self.data.ConsumeIntInRange(1, 4)

    def joined(self, depth: int) -> str:
        return self.word(depth) + self.word(depth)

    def ansi(self, _depth: int) -> str:
        return (
            "$'"
            + self.pick(
                [
                    "\\x2f",
                    "\\u202e",
                    "\\ud800",
                    "\\0",
                    "\\U110000",
                    "\\c",
                    "\\777",
                    "\\x",
                ]
            )
            + "'"
        )
